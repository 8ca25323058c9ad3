"""Planted noise, for experiments: wrong labels of three kinds, and corrupted inputs.

The rate is the realised share: ``symmetric:0.4`` changes exactly ``round(0.4 * n)`` labels.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from stepe.errors import InputError
from stepe.loop.randomness import Stream


@dataclass(frozen=True)
class Planted:
    """Inputs and labels after planting, and which samples were touched."""

    x: Tensor
    labels: Tensor
    noisy: Tensor
    """bool: which samples were corrupted"""


def symmetric(x: Tensor, labels: Tensor, classes: int, rate: float, seed: int) -> Planted:
    """Any other class, each equally likely."""
    chosen = _choose(len(labels), rate, seed)
    shift = 1 + Stream.named(seed, "noise/class").integers(chosen, classes - 1)
    return _relabel(x, labels, chosen, (labels[chosen] + shift) % classes)


def asymmetric(x: Tensor, labels: Tensor, classes: int, rate: float, seed: int) -> Planted:
    """Always the next class, the same share of every class: a confusion that a model can learn."""
    order = Stream.named(seed, "noise/sample").shuffle(torch.arange(len(labels)))
    chosen = torch.cat(
        [of_class[: round(rate * len(of_class))] for c in range(classes) for of_class in [order[labels[order] == c]]]
    )
    return _relabel(x, labels, chosen, (labels[chosen] + 1) % classes)


def instance(x: Tensor, labels: Tensor, classes: int, rate: float, seed: int) -> Planted:
    """Depends on the input: some inputs are easier to get wrong, and each is taken for what it resembles.

    A random direction per class says how easily a sample of it is mistaken, random projections into what; Gumbel
    noise on both makes it a draw rather than a rule (after Xia et al., 2020).
    """
    sample = torch.arange(len(labels))
    flat = x.reshape(len(x), -1).to(torch.float32)
    flat = (flat - flat.mean(0)) / (flat.std(0) + 1e-6) / flat.shape[1] ** 0.5
    # One column of directions per class that may be mistaken, one per class it may be taken for.
    weight = Stream.named(seed, "noise/direction").normal(torch.arange(flat.shape[1] * classes * (classes + 1)))
    weight = weight.reshape(classes, flat.shape[1], classes + 1)
    scores = torch.stack([flat[i] @ weight[int(label)] for i, label in enumerate(labels)])
    ease = scores[:, 0] + _gumbel(Stream.named(seed, "noise/sample"), sample)
    chosen = torch.argsort(ease, descending=True, stable=True)[: round(rate * len(labels))]
    taken_for = scores[:, 1:] + torch.stack(
        [_gumbel(Stream.named(seed, "noise/class"), sample, draw=c) for c in range(classes)], dim=1
    )
    taken_for[sample, labels] = -torch.inf
    return _relabel(x, labels, chosen, taken_for[chosen].argmax(1))


def outliers(x: Tensor, labels: Tensor, classes: int, rate: float, seed: int) -> Planted:
    """Corrupted inputs under right labels: every value is drawn anew from the range of the data."""
    chosen = _choose(len(labels), rate, seed)
    low, high = float(x.min()), float(x.max())
    width = x[0].numel()
    cell = chosen[:, None] * width + torch.arange(width)
    corrupted = x.clone()
    drawn = low + (high - low) * Stream.named(seed, "noise/input").uniform(cell)
    corrupted[chosen] = drawn.reshape(len(chosen), *x.shape[1:]).to(x.dtype)
    return Planted(corrupted, labels, _mask(chosen, len(labels)))


Kind = Callable[[Tensor, Tensor, int, float, int], Planted]
KINDS: dict[str, Kind] = {
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

    def plant(self, x: Tensor, labels: Tensor, classes: int, seed: int) -> Planted:
        """Corrupt a share of the samples."""
        return KINDS[self.kind](x, labels, classes, self.rate, seed)


def _choose(n: int, rate: float, seed: int) -> Tensor:
    return Stream.named(seed, "noise/sample").shuffle(torch.arange(n))[: round(rate * n)]


def _mask(chosen: Tensor, n: int) -> Tensor:
    mask = torch.zeros(n, dtype=torch.bool)
    mask[chosen] = True
    return mask


def _relabel(x: Tensor, labels: Tensor, chosen: Tensor, new: Tensor) -> Planted:
    noisy = labels.clone()
    noisy[chosen] = new
    return Planted(x, noisy, _mask(chosen, len(labels)))


def _gumbel(stream: Stream, sample: Tensor, draw: int = 0) -> Tensor:
    return -torch.log(-torch.log(stream.uniform(sample, draw).clamp(1e-7, 1 - 1e-7)))
