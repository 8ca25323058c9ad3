"""From scores to probabilities, by the likelihood of the rows that count."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize_scalar

from stepe.beliefs.parts import in_parts
from stepe.judges.base import Floats

ENOUGH = 5_000
"""settings that all rows share are chosen by so many rows"""
ENOUGH_CELLS = 2_000_000
"""and by fewer of many classes: by so many rows times classes"""
LOG_LOW, LOG_HIGH = -7.0, 5.0
"""range of the logarithm of a temperature"""
TINY = 1e-12


def softmax(scores: Floats, temperature: float = 1.0, out: Floats | None = None) -> Floats:
    """Return probabilities that rise with the scores; the lower the temperature, the more decided.

    They are written into ``out``, which may be the scores; by default they are new, of the same precision.

    >>> softmax(np.array([[0.0, 0.0]])).tolist()
    [[0.5, 0.5]]
    """
    out = np.empty_like(scores) if out is None else out
    for part in in_parts(*scores.shape):
        scaled = np.array(scores[part], dtype=np.float64)
        scaled -= scaled.max(1, keepdims=True)
        scaled /= temperature
        np.exp(scaled, out=scaled)
        scaled /= scaled.sum(1, keepdims=True)
        out[part] = scaled
    return out


def tempered(probability: Floats, temperature: float, out: Floats | None = None) -> Floats:
    """Make probabilities more decided (below 1) or less (above); they are written into ``out``, if it is given."""
    out = np.empty_like(probability) if out is None else out
    for part in in_parts(*probability.shape):
        softmax(logarithm(probability[part]), temperature, out=out[part])
    return out


def logarithm(probability: Floats) -> Floats:
    """Return scores of which :func:`softmax` makes the probabilities again."""
    found: Floats = np.log(np.maximum(probability, TINY, dtype=np.float64))
    return found


def sample_of_rows(weights: Floats, classes: int, most: int = ENOUGH) -> npt.NDArray[np.int64]:
    """Choose rows that count, evenly spread over the data, at most so many, and fewer of many classes.

    >>> sample_of_rows(np.array([1.0, 0.0, 1.0, 1.0]), classes=2, most=2).tolist()
    [0, 3]
    """
    most = min(most, max(1, ENOUGH_CELLS // max(1, classes)))
    counted = np.flatnonzero(weights)
    if len(counted) <= most:
        return counted
    return counted[np.linspace(0, len(counted) - 1, most).round().astype(np.int64)]


@dataclass(frozen=True)
class Fit:
    """How well scores fit the targets of the rows that count, at any temperature.

    Targets are mostly zero, and a logarithm is taken only of the probabilities that count.
    """

    scores: Floats
    weights: Floats
    targets: Floats

    def likelihood(self, temperature: float) -> float:
        """Return the mean log probability of the targets, over the rows that count."""
        raised = np.exp(self._below_the_best / temperature)
        rows, classes = self._cells
        each = np.log(np.maximum(raised[rows, classes] / raised.sum(1)[rows], TINY))
        return float(self._counted @ each / max(float(self.weights.sum()), TINY))

    def best_temperature(self) -> float:
        """Find the temperature under which a sample of the rows is likeliest."""
        rows = sample_of_rows(self.weights, self.scores.shape[1])
        if not len(rows):
            return 1.0
        if len(rows) < len(self.weights):
            return Fit(self.scores[rows], self.weights[rows], self.targets[rows]).best_temperature()
        spread = float(self.scores.std()) or 1.0
        found = minimize_scalar(
            lambda log: -self.likelihood(spread * np.exp(log)),
            bounds=(LOG_LOW, LOG_HIGH),
            method="bounded",
            options={"xatol": 0.01},
        )
        return spread * float(np.exp(found.x))

    @cached_property
    def _below_the_best(self) -> Floats:
        below: Floats = np.subtract(self.scores, self.scores.max(1, keepdims=True), dtype=np.float64)
        return below

    @cached_property
    def _cells(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Rows and classes of the targets that are not zero."""
        rows, classes = np.nonzero(self.targets)
        return rows, classes

    @cached_property
    def _counted(self) -> Floats:
        rows, classes = self._cells
        counted: Floats = self.weights[rows] * self.targets[rows, classes]
        return counted
