"""Which runs the paper's tables and figures need, and the ones it should have had."""

from dataclasses import dataclass, field, replace
from typing import Any

from stepe.models.resnet import Stem

EPOCHS = 60
WARM_UP = 10
SEEDS = (13, 21, 42)
TIMED_SEED = 42
"""runs of this seed are timed alone on the device, and are the ones the paper's figures show"""
METHODS = {
    "baseline": "plain",
    "truncation": "truncation",
    "self-paced": "self-paced",
    "one-shot": "one-shot",
    "step-e": "step-e",
    "oracle": "oracle",
}
"""the tables' names -> ours"""
IDENTITY = ("data", "labels", "method", "seed", "stem", "variant", "epochs")
"""fields that tell the runs of a result file apart"""


@dataclass(frozen=True)
class Cell:
    """One run of the grid."""

    file: str
    """result file it belongs to"""
    data: str
    labels: str
    """a column of labels that people gave, or noise that is planted on the clean ones: ``symmetric:0.5``"""
    method: str
    """as the paper's tables call it"""
    seed: int
    stem: Stem = "imagenet"
    variant: str | None = None
    options: dict[str, Any] = field(default_factory=dict)
    """of the method, beyond the paper's own setting"""
    training: dict[str, Any] = field(default_factory=dict)
    """of ``fit``, beyond the paper's own setting"""
    epochs: int = EPOCHS
    warmup: int | None = WARM_UP
    """``None``: the method's own"""
    held_out: float = 0.0
    """share of the training images that takes the place of the test set, to choose settings by"""

    @property
    def key(self) -> str:
        """A name for the run's own file."""
        parts = [self.data, self.labels, self.method, str(self.seed), self.stem, self.variant or "paper"]
        if self.held_out:
            parts.append("hold-out")
        if self.epochs != EPOCHS:
            parts.append(f"{self.epochs} epochs")  # else a short run would pass for the long one
        return "-".join(part.replace("=", "").replace(" ", "_").replace("/", "_").replace(":", "") for part in parts)

    @property
    def timed(self) -> bool:
        """Whether the run must be alone on the device, so that its times mean something."""
        return self.file == "cifar100n" and self.seed == TIMED_SEED and self.variant is None

    def lasting(self, epochs: int) -> "Cell":
        """Return the same for another number of epochs; the warm-up keeps its share."""
        warmup = None if self.warmup is None else max(1, self.warmup * epochs // self.epochs)
        return replace(self, epochs=epochs, warmup=warmup)

    def describe(self) -> dict[str, Any]:
        """Return what identifies the run in a result file."""
        return {name: getattr(self, name) for name in IDENTITY}


VARIANTS: list[tuple[str, str, dict[str, Any]]] = [
    ("step-e", "rho_max=0.25", {"options": {"rho_max": 0.25}}),
    ("step-e", "rho_max=0.35", {"options": {"rho_max": 0.35}}),
    ("step-e", "rho_max=0.55", {"options": {"rho_max": 0.55}}),
    ("step-e", "warm-up 5", {"warmup": 5}),
    ("step-e", "warm-up 20", {"warmup": 20}),
    ("step-e", "plain probe", {"options": {"view": "plain"}}),
    ("truncation", "threshold after the first epoch", {"options": {"threshold": "first-epoch"}}),
    ("self-paced", "from 0.3 by 70%", {"options": {"keep_start": 0.3, "reach": 0.7}}),
    ("self-paced", "from 0.3 by the end", {"options": {"keep_start": 0.3, "reach": 1.0}}),
    ("self-paced", "from 0.3 by half", {"options": {"keep_start": 0.3, "reach": 0.5}}),
    ("self-paced", "from 0.5 by 70%", {"options": {"keep_start": 0.5, "reach": 0.7}}),
]
"""sensitivity, and the alternatives that the paper leaves open"""


def cifar100n(seeds: tuple[int, ...] = SEEDS) -> list[Cell]:
    """List the runs of the main table, noise detection and overhead, and the per-seed table."""
    return [Cell("cifar100n", "cifar100n", "noisy", method, seed) for method in METHODS for seed in seeds]


def cifar10n(seeds: tuple[int, ...] = SEEDS) -> list[Cell]:
    """List the runs of the appendix's table and curves, and of two label sets that the paper does not have."""
    main = [("aggre", seed) for seed in seeds]
    more = [("worst", TIMED_SEED), ("rand1", TIMED_SEED)] if TIMED_SEED in seeds else []
    return [
        Cell("cifar10n", "cifar10n", labels, method, seed)
        for labels, seed in main + more
        for method in ("baseline", "step-e", "oracle")
        # Clean labels are the same whatever the noisy ones are.
        if not (method == "oracle" and labels != "aggre")
    ]


def sensitivity() -> list[Cell]:
    """List the runs of Step-E's settings, one at a time, and of what the paper leaves open."""
    return [
        Cell("sensitivity", "cifar100n", "noisy", method, TIMED_SEED, variant=variant, **changed)
        for method, variant, changed in VARIANTS
    ]


def cifar_stem() -> list[Cell]:
    """List the runs of the main table with the stem that CIFAR networks usually have."""
    return [Cell("cifar-stem", "cifar100n", "noisy", method, TIMED_SEED, "cifar") for method in METHODS]
