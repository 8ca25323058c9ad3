"""From guesses to a belief about every label, in one pass of Bayes' rule.

A guess says how likely each class is for a row whose own label had no say in it. Guesses that were learned from labels,
some of them wrong, are guesses of the *label*: the noise matrix is undone first. Then a class is as likely as the
guess says, times how often its labels go wrong in this way. How they go wrong is told by two matrices: the one that was
counted, and one in which every wrong label is as likely as any other. The more surely the first explains the labels
better than the second, the more it counts.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from stepe.beliefs.noise_model import Floats, Labels, NoiseModel, undone
from stepe.beliefs.rate import Rate

STEPS = 5
"""in which the noise is undone where there is one look; every further look undoes some of it by itself"""
SURE, STEEP = 3.0, 3.0
"""the counted matrix counts half where it explains labels better by so many standard errors, and how fast it gains"""
SWAY = 0.25
"""nobody can say how much a label says for itself but so much: the range of the rate comes from both ends"""
BESIDE = 0.02
"""and may be wrong by so much for other reasons"""
SMALLEST = 1e-3
"""variance of a label's being wrong, at least: few labels never tell that none is"""
TINY = 1e-9


@dataclass(frozen=True)
class Believed:
    """What is believed of some labels."""

    p_right: Floats
    """of each row, the probability that its label is right"""
    suggestion: Labels
    """of each row, the likeliest other class"""
    confidence: Floats
    """of each row, the probability of that class"""
    noise: Floats
    """the noise matrix: P(label j | true class i) at [i, j]"""
    structure: float
    """how much the counted noise matrix counts, beside one in which all wrong labels are alike: from 0 to 1"""

    @property
    def rate(self) -> float:
        """The share of wrong labels."""
        return float(1 - self.p_right.mean())


def believe(
    labels: Labels,
    looks: Sequence[Floats],
    *,
    evidence: float = 1.0,
    trusted: npt.NDArray[np.bool_] | None = None,
) -> Believed:
    """Believe what follows from guesses about labels.

    Args:
        labels: the class that each row is said to be of.
        looks: guesses, rows x classes. The first was learned from all labels; each further one without those that the
            ones before called wrong.
        evidence: how much a label says for itself (tau). 1 where classes overlap, so that a label is a fair draw among
            the classes that a guess allows; .5 where an expert could always tell and people erred.
        trusted: of each row, whether its label was checked: it is right.
    """
    last = NoiseModel.counted(labels, looks[-1])
    first = last if len(looks) == 1 else NoiseModel.counted(labels, looks[0])
    guess = (undone(looks[0], first.matrix, STEPS // len(looks)) + sum(looks[1:])) / len(looks)
    rows = np.arange(len(labels))

    # A first belief by the counted matrix alone: its rate is that of the matrix in which wrong labels are alike.
    counted = last.of_labels()
    p_right = _posterior(guess, counted, evidence)[rows, labels]
    alike = _alike(labels, guess.shape[1], float(1 - p_right.mean()))
    structure = _structure(guess, counted, alike)
    pooled = np.maximum(counted, TINY) ** structure * alike ** (1 - structure)
    posterior = _posterior(guess, pooled, evidence)
    p_right = posterior[rows, labels].copy()
    if trusted is not None:
        p_right[trusted] = 1
    posterior[rows, labels] = -1
    suggestion = posterior.argmax(1)
    return Believed(p_right, suggestion, posterior[rows, suggestion], last.matrix, structure)


def rate_with_range(
    labels: Labels,
    looks: Sequence[Floats],
    *,
    evidence: float = 1.0,
    trusted: npt.NDArray[np.bool_] | None = None,
) -> Rate:
    """Estimate the share of wrong labels, with a range for what the estimate stands on.

    The range holds the estimates at both ends of the evidence, and those after fewer looks, widened by chance. Where it
    begins at 0, it may be that nothing is wrong.
    """
    rates = [believe(labels, looks, evidence=evidence + sway, trusted=trusted).rate for sway in (0, -SWAY, SWAY)]
    if len(looks) > 1:
        rates.append(believe(labels, looks[:-1], evidence=evidence, trusted=trusted).rate)
    rate = rates[0]
    beside = float(np.sqrt(max(rate * (1 - rate), SMALLEST) / len(labels))) + BESIDE
    return Rate(rate, max(0.0, min(rates) - beside), min(1.0, max(rates) + beside))


def _posterior(guess: Floats, of_label: Floats, evidence: float) -> Floats:
    likely: Floats = np.maximum(guess, TINY) * np.maximum(of_label, TINY) ** evidence
    likely /= likely.sum(1, keepdims=True)
    return likely


def _alike(labels: Labels, classes: int, rate: float) -> Floats:
    """Return the probability of each label under each true class, where all wrong labels are alike."""
    found = np.full((len(labels), classes), max(rate, TINY) / max(1, classes - 1))
    found[np.arange(len(labels)), labels] = max(1 - rate, TINY)
    return found


def _structure(guess: Floats, counted: Floats, alike: Floats) -> float:
    """Weigh the counted matrix by how surely the labels are likelier under it than under the other."""
    gain = np.log(np.maximum((guess * counted).sum(1), TINY)) - np.log(np.maximum((guess * alike).sum(1), TINY))
    error = float(gain.std()) / np.sqrt(len(gain))
    surely = float(gain.mean()) / error if error > 0 else 0.0
    return float(1 / (1 + np.exp(-np.clip((surely - SURE) / STEEP, -50, 50))))
