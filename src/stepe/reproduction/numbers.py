"""The paper's own numbers, as its tables print them. Percent and seconds; ``None`` where it prints N/A."""

from typing import NamedTuple

METHOD_TITLES = {
    "baseline": "Baseline",
    "truncation": "Truncation",
    "self-paced": "Self-Paced",
    "one-shot": "One-Shot",
    "step-e": "Step-E",
    "oracle": "Oracle (clean labels)",
}
"""the name of a method in the result files -> in the paper's tables, in their order"""
FIGURE_SEED = 42
"""seed of every figure of a single run, and of the CIFAR-10N table"""


class MeanAndDeviation(NamedTuple):
    """Test accuracy over three seeds."""

    mean: float
    deviation: float


class PaperDetection(NamedTuple):
    """Noise detection and cost, means over three seeds."""

    f1: float | None
    auroc: float | None
    seconds_per_epoch: float
    overhead: float


class SeedResult(NamedTuple):
    """One run."""

    accuracy: float
    seconds: float
    f1: float | None
    auroc: float | None


MAIN = {
    "baseline": MeanAndDeviation(43.3, 0.7),
    "truncation": MeanAndDeviation(9.9, 0.8),
    "self-paced": MeanAndDeviation(43.7, 0.7),
    "one-shot": MeanAndDeviation(43.9, 0.4),
    "step-e": MeanAndDeviation(50.4, 0.9),
    "oracle": MeanAndDeviation(60.5, 0.2),
}
"""Table 1, ``tab:c100_main``: test accuracy on CIFAR-100N"""

NOISE = {
    "baseline": PaperDetection(None, None, 13.85, 0.0),
    "truncation": PaperDetection(None, None, 13.82, -0.2),
    "self-paced": PaperDetection(0.0, 78.7, 19.34, 39.6),
    "one-shot": PaperDetection(62.4, 79.0, 16.72, 20.7),
    "step-e": PaperDetection(72.2, 84.8, 19.17, 38.4),
}
"""Table 2, ``tab:noise_efficiency``: noise detection and training time on CIFAR-100N, on an RTX 5090"""

PER_SEED = {
    ("baseline", 13): SeedResult(42.9, 855.4, None, None),
    ("baseline", 21): SeedResult(42.9, 841.3, None, None),
    ("baseline", 42): SeedResult(44.1, 837.4, None, None),
    ("truncation", 13): SeedResult(10.8, 839.5, None, None),
    ("truncation", 21): SeedResult(9.8, 844.1, None, None),
    ("truncation", 42): SeedResult(9.2, 846.1, None, None),
    ("self-paced", 13): SeedResult(44.4, 1179.6, 0.0, 78.9),
    ("self-paced", 21): SeedResult(43.8, 1179.8, 0.0, 78.5),
    ("self-paced", 42): SeedResult(43.0, 1179.4, 0.0, 78.6),
    ("one-shot", 13): SeedResult(43.8, 1015.3, 62.4, 79.0),
    ("one-shot", 21): SeedResult(44.4, 1020.0, 63.1, 79.5),
    ("one-shot", 42): SeedResult(43.5, 1024.5, 61.9, 78.7),
    ("step-e", 13): SeedResult(50.9, 1170.7, 72.5, 85.0),
    ("step-e", 21): SeedResult(49.4, 1166.0, 72.1, 84.5),
    ("step-e", 42): SeedResult(51.0, 1171.0, 72.1, 84.9),
    ("oracle", 13): SeedResult(60.7, 844.5, None, None),
    ("oracle", 21): SeedResult(60.3, 845.9, None, None),
    ("oracle", 42): SeedResult(60.4, 844.5, None, None),
}
"""Table 3, ``tab:per_seed``: every run on CIFAR-100N, by method and seed"""

CIFAR10N = {"baseline": 83.9, "step-e": 85.3, "oracle": 85.9}
"""Table 4, ``tab:c10_main``: test accuracy on CIFAR-10N (aggre), seed 42"""
