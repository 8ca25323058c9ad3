"""Planted noise, for experiments: wrong labels of three kinds, and corrupted inputs.

The rate is the realised share: ``symmetric:0.4`` changes exactly ``round(0.4 * n)`` labels.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from stepe.errors import InputError
from stepe.loop.draws import Draws

Array = npt.NDArray[Any]
Integers = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Planted:
    """The inputs and labels after planting, and which samples were touched."""

    x: Array
    labels: Integers
    noisy: Bools
    """for each sample, whether it was corrupted"""


def symmetric(x: Array, labels: Integers, classes: int, rate: float, seed: int) -> Planted:
    """Turn labels into any other class, each equally likely."""
    chosen = _choose(len(labels), rate, seed)
    shift = 1 + Draws.named(seed, "noise/class").integers(chosen, classes - 1)
    return _relabel(x, labels, chosen, (labels[chosen] + shift) % classes)


def asymmetric(x: Array, labels: Integers, classes: int, rate: float, seed: int) -> Planted:
    """Turn the same share of every class into the next class: a confusion that a model can learn."""
    order = Draws.named(seed, "noise/sample").shuffle(np.arange(len(labels)))
    members = (order[labels[order] == c] for c in range(classes))
    chosen = np.concatenate([of_class[: round(rate * len(of_class))] for of_class in members])
    return _relabel(x, labels, chosen, (labels[chosen] + 1) % classes)


def instance(x: Array, labels: Integers, classes: int, rate: float, seed: int) -> Planted:
    """Let the input decide: some inputs are easier to get wrong, and each is taken for what it resembles.

    A random direction per class says how easily a sample of it is mistaken, random projections into what; Gumbel
    noise on both makes it a draw rather than a rule (after Xia et al., 2020).
    """
    sample = np.arange(len(labels))
    flat = x.reshape(len(x), -1).astype(np.float32)
    flat -= flat.mean(0, dtype=np.float64)
    deviation = np.sqrt(np.square(flat).sum(0, dtype=np.float64) / max(1, len(flat) - 1))
    flat /= (deviation + 1e-6) * flat.shape[1] ** 0.5
    # One column of directions per class that may be mistaken, one per class it may be taken for.
    weight = Draws.named(seed, "noise/direction").normal(np.arange(flat.shape[1] * classes * (classes + 1)))
    weight = weight.reshape(classes, flat.shape[1], classes + 1)
    scores = np.empty((len(flat), classes + 1), dtype=np.float32)
    for label in range(classes):
        scores[labels == label] = flat[labels == label] @ weight[label]
    ease = scores[:, 0] + _gumbel(Draws.named(seed, "noise/sample"), sample)
    chosen = np.argsort(-ease, kind="stable")[: round(rate * len(labels))]
    draws = Draws.named(seed, "noise/class")
    taken_for = scores[:, 1:] + np.stack([_gumbel(draws, sample, draw=c) for c in range(classes)], axis=1)
    taken_for[sample, labels] = -np.inf
    return _relabel(x, labels, chosen, taken_for[chosen].argmax(1))


def outliers(x: Array, labels: Integers, classes: int, rate: float, seed: int) -> Planted:
    """Corrupt inputs under right labels: every value is drawn anew from the range of the data."""
    chosen = _choose(len(labels), rate, seed)
    low, high = float(x.min()), float(x.max())
    width = x[0].size
    cell = chosen[:, None] * width + np.arange(width)
    drawn = low + (high - low) * Draws.named(seed, "noise/input").uniform(cell)
    corrupted = x.copy()
    corrupted[chosen] = drawn.reshape(len(chosen), *x.shape[1:]).astype(x.dtype)
    return Planted(corrupted, labels, _mask(chosen, len(labels)))


Planter = Callable[[Array, Integers, int, float, int], Planted]
KINDS: dict[str, Planter] = {
    "symmetric": symmetric,
    "asymmetric": asymmetric,
    "instance": instance,
    "outliers": outliers,
}


@dataclass(frozen=True)
class Noise:
    """A kind of noise and its rate, as in ``symmetric:0.4``."""

    kind: str
    rate: float

    @classmethod
    def parse(cls, text: str) -> "Noise | None":
        """Read ``kind:rate``; ``none`` plants nothing."""
        if text == "none":
            return None
        kind, _, rate_text = text.partition(":")
        wanted = f"write it as kind:rate, for example symmetric:0.4, with a kind of {', '.join(KINDS)}; or none"
        if kind not in KINDS:
            raise InputError(f"noise is {text!r}, and {kind!r} is no kind of noise; {wanted}")
        try:
            rate = float(rate_text)
        except ValueError:
            raise InputError(f"noise is {text!r}, and {rate_text!r} is no number; {wanted}") from None
        if not 0 <= rate < 1:
            raise InputError(f"noise is {text!r}, and the rate must lie in [0, 1); {wanted}")
        return cls(kind, rate)

    def plant(self, x: Array, labels: Integers, classes: int, seed: int) -> Planted:
        """Corrupt a share of the samples."""
        return KINDS[self.kind](x, labels, classes, self.rate, seed)


def _choose(n: int, rate: float, seed: int) -> Integers:
    return Draws.named(seed, "noise/sample").shuffle(np.arange(n))[: round(rate * n)]


def _mask(chosen: Integers, n: int) -> Bools:
    mask = np.zeros(n, dtype=bool)
    mask[chosen] = True
    return mask


def _relabel(x: Array, labels: Integers, chosen: Integers, new: Integers) -> Planted:
    noisy = labels.copy()
    noisy[chosen] = new
    return Planted(x, noisy, _mask(chosen, len(labels)))


def _gumbel(draws: Draws, sample: Integers, draw: int = 0) -> Floats:
    found: Floats = -np.log(-np.log(draws.uniform(sample, draw).clip(1e-7, 1 - 1e-7)))
    return found
