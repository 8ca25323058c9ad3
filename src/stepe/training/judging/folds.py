"""Out-of-fold views: who judges which samples, what it may train on, and what all judges say together."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from stepe.errors import InputError
from stepe.loop.ledger import Observation
from stepe.loop.probe import judged
from stepe.loop.randomness import Stream
from stepe.methods.parts.guesses import recognised_by

Answer = tuple[Tensor, Tensor]
"""what one judge says of the samples of its fold: a row of class probabilities for each, and the class it predicts"""


@dataclass(frozen=True)
class Folds:
    """How many folds the samples are dealt to, and how many times independently."""

    folds: int
    splits: int = 1

    @classmethod
    def parse(cls, probe: str) -> "Folds":
        """Read ``cross:5``, or ``cross:2x3``: three independent splits into two folds.

        >>> Folds.parse("cross:2x3")
        Folds(folds=2, splits=3)
        """
        found = re.fullmatch(r"cross:(\d+)(?:x(\d+))?", probe)
        folds, splits = (int(found[1]), int(found[2] or 1)) if found else (0, 0)
        if folds < 2 or splits < 1:
            raise InputError(f"probe is {probe!r}; write cross:5, or cross:2x2 for two splits into two folds")
        return cls(folds, splits)

    def __str__(self) -> str:
        return f"cross:{self.folds}x{self.splits}"

    @property
    def judges(self) -> int:
        """How many judges there are: one for each fold of each split."""
        return self.folds * self.splits

    def deal(self, labels: Tensor, seed: int) -> Tensor:
        """Give the fold of every sample, a row per split; each class is spread evenly over the folds."""
        if self.folds > len(labels):
            raise InputError(f"{len(labels)} samples cannot be split into {self.folds} folds; ask for fewer")
        rows = []
        for split in range(self.splits):
            order = Stream.named(seed, "folds", split).shuffle(torch.arange(len(labels)))
            order = order[torch.argsort(labels[order], stable=True)]
            fold = torch.empty(len(labels), dtype=torch.int64)
            fold[order] = torch.arange(len(labels)) % self.folds
            rows.append(fold)
        return torch.stack(rows)


@dataclass(frozen=True)
class Dealt:
    """Samples that are dealt to folds. Each judge judges one fold and trains on nothing of it."""

    folds: Folds
    fold: Tensor
    """of every sample, a row per split"""
    labels: Tensor
    classes: int

    @classmethod
    def by(cls, folds: Folds, labels: Tensor, classes: int, seed: int) -> "Dealt":
        """Deal the samples."""
        return cls(folds, folds.deal(labels, seed), labels, classes)

    @property
    def parts(self) -> list[Tensor]:
        """The samples that each judge judges, as masks, split by split; it may train on the others."""
        return [row == fold for row in self.fold for fold in range(self.folds.folds)]

    def views(self, answers: Iterable[Answer]) -> "Views":
        """Put the answers of all judges together, in the order of :attr:`parts`."""
        n, splits = len(self.labels), len(self.fold)
        total, predicted = torch.zeros(n, self.classes), torch.zeros(splits, n, dtype=torch.int64)
        for position, (part, (probability, prediction)) in enumerate(zip(self.parts, answers, strict=True)):
            total[part] += probability
            predicted[position // self.folds.folds, part] = prediction
        return Views(total / splits, predicted, self.labels)


@dataclass(frozen=True)
class Views:
    """The guesses about every sample by judges that did not train on it."""

    probability: Tensor
    """n x classes, the mean over the splits"""
    predicted: Tensor
    """splits x n: the most likely class"""
    labels: Tensor

    @property
    def contradicted(self) -> float:
        """Share of the labels that are predicted differently."""
        return float((self.predicted != self.labels).double().mean())

    @property
    def tell_something(self) -> bool:
        """Whether they know anything of the labels."""
        return bool(recognised_by(self.probability, self.labels).any())

    def observe(self) -> Observation:
        """Say what this means for the labels."""
        return judged(self.probability, self.labels)
