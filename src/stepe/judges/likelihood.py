"""From scores to probabilities, by the likelihood of the rows that count."""

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize_scalar

from stepe.judges.base import Floats

ENOUGH = 5_000
"""settings that all rows share are chosen by so many rows"""
LOG_LOW, LOG_HIGH = -7.0, 5.0
"""range of the logarithm of a temperature"""
TINY = 1e-12


def softmax(scores: Floats, temperature: float = 1.0) -> Floats:
    """Return probabilities that rise with the scores; the lower the temperature, the more decided.

    >>> softmax(np.array([[0.0, 0.0]])).tolist()
    [[0.5, 0.5]]
    """
    scaled: Floats = scores - scores.max(1, keepdims=True)
    scaled /= temperature
    np.exp(scaled, out=scaled)
    scaled /= scaled.sum(1, keepdims=True)
    return scaled


def likelihood(probability: Floats, weights: Floats, targets: Floats) -> float:
    """Return the mean log probability of the targets, over the rows that count."""
    each = (targets * np.log(np.maximum(probability, TINY))).sum(1)
    return float(weights @ each / max(weights.sum(), TINY))


def sample_of_rows(weights: Floats, most: int = ENOUGH) -> npt.NDArray[np.int64]:
    """Choose rows that count, evenly spread over the data, at most so many.

    >>> sample_of_rows(np.array([1.0, 0.0, 1.0, 1.0]), most=2).tolist()
    [0, 3]
    """
    counted = np.flatnonzero(weights)
    if len(counted) <= most:
        return counted
    return counted[np.linspace(0, len(counted) - 1, most).round().astype(np.int64)]


def best_temperature(scores: Floats, weights: Floats, targets: Floats) -> float:
    """Find the temperature under which the targets are likeliest."""
    rows = sample_of_rows(weights)
    if not len(rows):
        return 1.0
    scores, weights, targets = scores[rows], weights[rows], targets[rows]
    spread = float(scores.std()) or 1.0
    found = minimize_scalar(
        lambda log: -likelihood(softmax(scores, spread * np.exp(log)), weights, targets),
        bounds=(LOG_LOW, LOG_HIGH),
        method="bounded",
        options={"xatol": 0.01},
    )
    return spread * float(np.exp(found.x))


def tempered(probability: Floats, temperature: float) -> Floats:
    """Make probabilities more decided (below 1) or less (above)."""
    return softmax(np.log(np.maximum(probability, TINY)), temperature)
