"""Several labels at once, each yes or no: binary cross-entropy over tags, some of them wrong.

A sample is as suspicious as its worst tag; the suggestion turns that tag over.

    python examples/multi_label.py
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import stepe

TAGS = ["beach", "forest", "night", "people", "snow"]
FEATURES, SAMPLES, RATE = 20, 1000, 0.2


def criterion(logits: Tensor, tags: Tensor) -> Tensor:
    """One loss per sample."""
    return F.binary_cross_entropy_with_logits(logits, tags, reduction="none").mean(1)


def make_data(n: int, directions: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    x = torch.randn(n, FEATURES, generator=generator)
    return x, (x @ directions > 1).float()


def main() -> None:
    generator = torch.Generator().manual_seed(0)
    directions = torch.randn(FEATURES, len(TAGS), generator=generator) / 2
    x, true = make_data(SAMPLES, directions, generator)
    test = make_data(2000, directions, generator)
    noisy = torch.rand(SAMPLES, generator=generator) < RATE
    turned = torch.randint(len(TAGS), (SAMPLES,), generator=generator)
    given = (true - F.one_hot(turned, len(TAGS)) * noisy[:, None]).abs()

    for method, options in (("plain", {}), ("step-e", {"noise_rate": RATE})):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(FEATURES, 64), nn.ReLU(), nn.Linear(64, len(TAGS)))
        result = stepe.fit(
            model,
            x,
            given,
            method=method,
            class_names=TAGS,
            criterion=criterion,
            epochs=40,
            learning_rate=0.2,
            test=test,
            truth=stepe.Truth(noisy),
            device="cpu",
            **options,
        )
        with torch.no_grad():
            right = ((result.model.eval()(test[0]) > 0) == test[1].bool()).float().mean()
        print(f"{method}: {right:.1%} of the tags of clean test data right")

    found = result.summary.noise.flagged
    print(f"{result.summary.flagged} samples look wrong; {found.precision:.0%} of them are")
    for issue in result.issues.head(3).itertuples():
        tags = ", ".join(tag for tag, applies in zip(TAGS, true[issue.row], strict=True) if applies) or "(none)"
        print(f"  row {issue.row}: given {issue.given_label}; suggested {issue.suggested_label}; true {tags}")


if __name__ == "__main__":
    main()
