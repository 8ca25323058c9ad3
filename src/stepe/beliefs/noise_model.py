"""How labels go wrong: the noise matrix, counted from guesses that no label of its own had a say in.

Counting is confident learning's (Northcutt et al., 2021): of the rows whose guess names a class as surely as guesses of
rows with that label usually do, how many carry which label.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from stepe.beliefs.confident import CLOSE, is_confident, usual_confidence
from stepe.beliefs.parts import in_parts

Floats = npt.NDArray[np.float64]
Labels = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

DRAWN = 0.5
"""how far a class's wrong labels are drawn towards the frequencies of all labels: few rows say how they go wrong"""
NOBODY = -1
ALL = slice(None)


@dataclass(frozen=True)
class NoiseModel:
    """The noise matrix with the rows that it was counted from."""

    labels: Labels
    named: Labels
    """of each row, the class that its guess names surely; -1 where it names none"""
    classes: int
    rows: Bools | None = None
    """of each row, whether it was counted; ``None``: all were"""

    @classmethod
    def counted(cls, labels: Labels, guesses: Floats, rows: Bools | None = None) -> "NoiseModel":
        """Count the rows whose guess is as sure of a class as guesses of rows with that label usually are.

        ``rows`` says which rows are counted, and which are only judged; by default all are.
        """
        classes, named = guesses.shape[1], np.full(len(labels), NOBODY)
        taught = slice(None) if rows is None else rows
        usual = usual_confidence(guesses[taught], labels[taught])
        for part in in_parts(len(labels), classes):
            sure = is_confident(guesses[part], usual)
            named[part] = np.where(sure.any(1), np.where(sure, guesses[part], -1).argmax(1), NOBODY)
        if rows is not None:
            named[~rows] = NOBODY
        return cls(labels, named, classes, rows)

    @cached_property
    def frequency(self) -> Floats:
        """The share of each class among the labels."""
        labels = self.labels if self.rows is None else self.labels[self.rows]
        return np.bincount(labels, minlength=self.classes) / max(1, len(labels))

    @cached_property
    def matrix(self) -> Floats:
        """The noise matrix: P(label j | true class i) at [i, j]. A class that no guess names keeps its labels."""
        counts, total = self._counts, self._counts.sum(1, keepdims=True)
        found = np.where(total > 0, counts / np.where(total > 0, total, 1), np.eye(self.classes))
        right = found.diagonal()[:, None]
        drawn = self._drawn(found, right, self.frequency[None, :], self.frequency[:, None])
        np.fill_diagonal(drawn, found.diagonal())
        return drawn

    def of_labels(self, part: slice = ALL) -> Floats:
        """Return each row's probability of its label under each true class, the row's own count taken out."""
        labels = self.labels[part]
        evidence = self.matrix[:, labels].T.copy()
        rows = np.flatnonzero(self.named[part] != NOBODY)
        named, label = self.named[part][rows], labels[rows]
        worth = self._worth[label]
        agrees = named == label
        total = self._counts.sum(1)[named] - worth
        alone = total <= CLOSE * worth
        total = np.where(alone, 1, total)
        right = np.where(alone, 1, (self._counts[named, named] - worth * agrees) / total)
        given = np.where(alone, agrees, (self._counts[named, label] - worth) / total)
        drawn = self._drawn(given, right, self.frequency[label], self.frequency[named])
        evidence[rows, named] = np.where(agrees, right, drawn)
        return evidence

    @cached_property
    def _raw(self) -> Floats:
        counts = np.zeros((self.classes, self.classes))
        found = self.named != NOBODY
        np.add.at(counts, (self.named[found], self.labels[found]), 1)
        return counts

    @cached_property
    def _worth(self) -> Floats:
        """How many rows each counted row of a label stands for, so that labels occur as often as they do."""
        counted = self._raw.sum(0)
        total = len(self.labels) if self.rows is None else np.count_nonzero(self.rows)
        return np.where(counted > 0, self.frequency * total / np.maximum(counted, 1), 0.0)

    @cached_property
    def _counts(self) -> Floats:
        return self._raw * self._worth

    @staticmethod
    def _drawn(found: Floats, right: Floats, of_label: Floats, of_true: Floats) -> Floats:
        """Draw the probability of a wrong label half-way from what was counted to how often the label occurs."""
        by_frequency = (1 - right) * of_label / np.maximum(1 - of_true, CLOSE)
        return (1 - DRAWN) * found + DRAWN * by_frequency


def undone(guesses: Floats, matrix: Floats, steps: int) -> Floats:
    """Turn guesses of the given label into guesses of the true class (Richardson, 1972; Lucy, 1974).

    Each step moves a guess towards one that, sent through the noise matrix, gives what was guessed of the label.

    >>> undone(np.array([[0.6, 0.4]]), np.array([[0.6, 0.4], [0.0, 1.0]]), 200).round(2).tolist()
    [[1.0, 0.0]]
    """
    found = guesses
    for _ in range(steps):
        found = found * ((guesses / np.maximum(found @ matrix, CLOSE**2)) @ matrix.T)
        found /= found.sum(1, keepdims=True)
    return found
