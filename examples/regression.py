"""Wrong numbers instead of wrong classes: a regression with Huber loss.

Some rows carry the target of another row, as when a column slipped. Nothing but the criterion differs from classes.

    python examples/regression.py
"""

from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import stepe

FEATURES, SAMPLES, RATE = 8, 1000, 0.25


def make_data(n: int, direction: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    x = torch.randn(n, FEATURES, generator=generator)
    y = 3 * torch.sin(x @ direction) + x[:, 0]
    return x, y + 0.2 * torch.randn(n, generator=generator)


def main() -> None:
    generator = torch.Generator().manual_seed(0)
    direction = F.normalize(torch.randn(FEATURES, generator=generator), dim=0)
    x, true = make_data(SAMPLES, direction, generator)
    test = make_data(2000, direction, generator)
    slipped = torch.rand(SAMPLES, generator=generator) < RATE
    given = torch.where(slipped, true.roll(1), true)
    noisy = (given - true).abs() > 1  # a slip may happen to land close by

    for method, options in (("plain", {}), ("step-e", {"noise_rate": RATE})):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(FEATURES, 256), nn.ReLU(), nn.Linear(256, 1), nn.Flatten(0))
        result = stepe.fit(
            model,
            x,
            given,
            method=method,
            criterion=partial(F.huber_loss, reduction="none"),
            epochs=60,
            learning_rate=0.05,
            test=test,
            truth=stepe.Truth(noisy),
            device="cpu",
            **options,
        )
        print(f"{method}: Huber loss on clean test data {result.summary.test_loss:.3f}")

    found = result.summary.noise.flagged
    print(f"{result.summary.flagged} numbers look wrong; {found.precision:.0%} of them are")
    for issue in result.issues.head(3).itertuples():
        was = true[issue.row]
        print(f"  row {issue.row}: given {issue.given_label}, suggested {issue.suggested_label}, true {was:.2f}")


if __name__ == "__main__":
    main()
