"""The separation argument of the paper (section 3.5) on synthetic data, first on paper, then learned.

Under ideal parameters clean samples have losses below some L_out and wrongly labelled ones above it. What does the
objective keep then? And does training find its way there? docs/research/theory.md explains the numbers.

    python examples/separation.py
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import stepe
from stepe.loop.objective import minimise_over_gates

CLASSES, FEATURES, SAMPLES, RATE = 4, 50, 1000, 0.3


def make_data(n: int, centres: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Gaussian clouds, one per class, about eight standard deviations apart."""
    labels = torch.randint(CLASSES, (n,), generator=generator)
    return centres[labels] + torch.randn(n, FEATURES, generator=generator), labels


def corrupt(labels: Tensor, generator: torch.Generator) -> Tensor:
    """Move exactly a share RATE of the labels to another class."""
    wrong = torch.randperm(len(labels), generator=generator)[: round(RATE * len(labels))]
    given = labels.clone()
    given[wrong] = (labels[wrong] + torch.randint(1, CLASSES, wrong.shape, generator=generator)) % CLASSES
    return given


def ideal_losses(x: Tensor, given: Tensor, centres: Tensor) -> Tensor:
    """Losses under the parameters that generated the data: its log-odds are linear in x."""
    logits = x.double() @ centres.double().T - (centres.double() ** 2).sum(1) / 2
    return F.cross_entropy(logits, given, reduction="none")


def shares(kept: Tensor, noisy: Tensor) -> str:
    """How much of the clean set is kept, and of the noisy set dropped."""
    clean_kept, noisy_dropped = float(kept[~noisy].double().mean()), float((~kept)[noisy].double().mean())
    return f"{clean_kept:>11.1%} {noisy_dropped:>14.1%}"


def main() -> None:
    generator = torch.Generator().manual_seed(0)
    centres = 0.85 * torch.randn(CLASSES, FEATURES, generator=generator)
    x, clean = make_data(SAMPLES, centres, generator)
    test = make_data(2000, centres, generator)
    given = corrupt(clean, generator)
    noisy = given != clean

    losses = ideal_losses(x, given, centres)
    highest_clean, lowest_noisy = float(losses[~noisy].max()), float(losses[noisy].min())
    between = (highest_clean + lowest_noisy) / 2
    print(f"{SAMPLES} samples, {RATE:.0%} of the labels wrong")
    print(f"ideal parameters: clean losses end at {highest_clean:.2f}, noisy ones begin at {lowest_noisy:.2f}\n")

    print(f"{'gates that minimise J at the ideal parameters':<45} {'clean kept':>11} {'noisy dropped':>14}")
    for rho_max in (RATE, RATE + 0.05, 0.5):
        for name, reward in (("no keep reward", 0.0), ("keep reward between the losses", between)):
            kept = minimise_over_gates(losses, rho_max, reward).kept
            row = f"rho_max {rho_max:.2f}, {name}"
            print(f"{row:<45} {shares(kept, noisy)}")

    print(f"\n{'learned in 30 epochs':<45} {'clean kept':>11} {'noisy dropped':>14} {'test accuracy':>14}")
    for name, labels, options in (
        ("plain, given labels", given, {"method": "plain"}),
        ("Step-E, given labels, rho_max 0.30", given, {"method": "step-e", "rho_max": RATE}),
        ("Step-E, given labels, rho_max 0.35", given, {"method": "step-e", "rho_max": RATE + 0.05}),
        ("plain, clean labels (the oracle)", clean, {"method": "plain"}),
    ):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(FEATURES, 256), nn.ReLU(), nn.Linear(256, CLASSES))
        result = stepe.fit(model, x, labels, epochs=30, test=test, device="cpu", **options)
        print(f"{name:<45} {shares(~result.ledger['dropped'], noisy)} {result.summary.test_accuracy:>14.1%}")


if __name__ == "__main__":
    main()
