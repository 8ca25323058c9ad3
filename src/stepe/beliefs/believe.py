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

from stepe.beliefs.belief import Belief
from stepe.beliefs.noise_model import Bools, Floats, Labels, NoiseModel, undone
from stepe.beliefs.parts import in_parts
from stepe.beliefs.rate import Rate
from stepe.beliefs.signal import recognised_classes

FLAGGED = 0.5
"""labels more suspicious than this are pointed out: they are more likely wrong than right"""
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


def believe(
    labels: npt.ArrayLike,
    guesses: Floats | Sequence[Floats],
    *,
    evidence: float = 1.0,
    trusted: Bools | None = None,
    learned: Bools | None = None,
    recognised: Bools | None = None,
) -> Belief:
    """Say of each label how likely it is right, and of all of them how many are wrong.

    Args:
        labels: the class that each row is said to be of, as a number.
        guesses: rows x classes: how likely each class is for a row, said by somebody who did not see its label. Or
            several of these, looks: the first was learned from all labels; each further one without those that the
            ones before called wrong.
        evidence: how much a label says for itself (tau). 1 where classes overlap, so that a label is a fair draw among
            the classes that a guess allows; .5 where an expert could always tell and people erred.
        trusted: of each row, whether its label was checked: it is right.
        learned: of each row, whether guesses were learned from its label too; by default all were. These rows tell how
            labels go wrong, and how many; all are judged by it.
        recognised: of each class, whether its rows are told from others, where that was seen before; none is where rows
            tell nothing at all. By default the first look says.

    >>> guesses = np.array([[0.98, 0.02]] * 50 + [[0.02, 0.98]] * 50)
    >>> belief = believe([0] * 45 + [1] * 55, guesses)
    >>> np.flatnonzero(belief.flagged).tolist(), belief.suggestion[45].item()
    ([45, 46, 47, 48, 49], 0)
    """
    labels = np.asarray(labels, dtype=np.int64)
    looks = [guesses] if isinstance(guesses, np.ndarray) else list(guesses)
    taught = np.ones(len(labels), dtype=np.bool_) if learned is None else learned
    grounds = Grounds.of(labels, looks, learned)
    p_right, suggestion, confidence = grounds.posterior(evidence)
    rates = [grounds.p_right(evidence + sway) for sway in (-SWAY, SWAY)]
    if len(looks) > 1:
        rates.append(Grounds.of(labels, looks[:-1], learned).p_right(evidence))

    if recognised is None:
        recognised = recognised_classes(labels[taught], looks[0][taught])
    doubt = np.where(recognised[labels], 1.0, FLAGGED)  # halved, it never flags
    checked = np.zeros(len(labels), dtype=np.bool_) if trusted is None else trusted

    def settled(right: Floats) -> Floats:
        return np.where(checked, 1.0, 1 - doubt * (1 - right))

    p_right, rates = settled(p_right), [settled(each) for each in rates]
    return Belief(
        rate=_range_of([float(1 - each[taught].mean()) for each in (p_right, *rates)], int(np.count_nonzero(taught))),
        rate_was_found=True,
        noise=grounds.noise.matrix,
        p_right=p_right,
        suggestion=suggestion,
        confidence=confidence,
        recognised=recognised,
        flagged=p_right < 1 - FLAGGED,
        has_signal=bool(recognised.any()),
        evidence=evidence,
    )


def _range_of(rates: list[float], n: int) -> Rate:
    """Return the first rate, in a range that holds the others and what chance does beside.

    The others are those at both ends of the evidence, and that after fewer looks. Where the range begins at 0, it may
    be that nothing is wrong.
    """
    rate = rates[0]
    beside = float(np.sqrt(max(rate * (1 - rate), SMALLEST) / max(1, n))) + BESIDE
    return Rate(rate, max(0.0, min(rates) - beside), min(1.0, max(rates) + beside))


@dataclass(frozen=True)
class Grounds:
    """What a belief stands on: guesses of the true class, and how labels go wrong."""

    labels: Labels
    guess: Floats
    """the mean of the looks, the noise of the first undone"""
    noise: NoiseModel

    @classmethod
    def of(cls, labels: Labels, looks: Sequence[Floats], learned: Bools | None = None) -> "Grounds":
        """Undo the noise in what was guessed of the labels, and average it with what was guessed since."""
        last = NoiseModel.counted(labels, looks[-1], learned)
        first = last if len(looks) == 1 else NoiseModel.counted(labels, looks[0], learned)
        guess = np.empty_like(looks[0])
        for part in in_parts(*guess.shape):
            before = undone(np.asarray(looks[0][part], dtype=np.float64), first.matrix, STEPS // len(looks))
            guess[part] = (before + sum(look[part] for look in looks[1:])) / len(looks)
        return cls(labels, guess, last)

    def p_right(self, evidence: float) -> Floats:
        """Return how likely each label is right."""
        return self.posterior(evidence)[0]

    def posterior(self, evidence: float) -> tuple[Floats, Labels, Floats]:
        """Return how likely each label is right, which class is the likeliest, and how likely that is.

        Beside a label that is more likely wrong than right stands another one, even where it is the likeliest of all.
        """
        n, classes = self.guess.shape
        right, suggestion, confidence = np.empty(n), np.empty(n, dtype=np.int64), np.empty(n)
        # A first belief by the counted matrix alone: its rate is that of the matrix in which wrong labels are alike.
        for part in in_parts(n, classes):
            of_label = _bayes(self.guess[part], self.noise.of_labels(part), evidence)
            right[part] = of_label[np.arange(len(of_label)), self.labels[part]]
        learned = slice(None) if self.noise.rows is None else self.noise.rows
        rate = float(1 - right[learned].mean())
        structure = self._structure(rate)
        for part in in_parts(n, classes):
            labels = self.labels[part]
            counted = np.maximum(self.noise.of_labels(part), TINY)
            pooled = counted**structure * _alike(labels, classes, rate) ** (1 - structure)
            posterior = _bayes(self.guess[part], pooled, evidence)
            rows = np.arange(len(labels))
            right[part] = posterior[rows, labels]
            doubted = right[part] < 1 - FLAGGED
            posterior[rows[doubted], labels[doubted]] = -1
            suggestion[part] = posterior.argmax(1)
            confidence[part] = posterior[rows, suggestion[part]]
        return right, suggestion, np.maximum(confidence, 0)

    def _structure(self, rate: float) -> float:
        """Weigh the counted matrix by how surely labels are likelier under it than if all wrong ones were alike."""
        n, classes = self.guess.shape
        gain = np.empty(n)
        for part in in_parts(n, classes):
            guess, labels = self.guess[part], self.labels[part]
            counted = (guess * self.noise.of_labels(part)).sum(1)
            alike = (guess * _alike(labels, classes, rate)).sum(1)
            gain[part] = np.log(np.maximum(counted, TINY)) - np.log(np.maximum(alike, TINY))
        gain = gain if self.noise.rows is None else gain[self.noise.rows]
        error = float(gain.std()) / np.sqrt(len(gain))
        surely = float(gain.mean()) / error if error > 0 else 0.0
        return float(1 / (1 + np.exp(-np.clip((surely - SURE) / STEEP, -50, 50))))


def _bayes(guess: Floats, of_label: Floats, evidence: float) -> Floats:
    likely: Floats = np.maximum(guess, TINY) * np.maximum(of_label, TINY) ** evidence
    likely /= likely.sum(1, keepdims=True)
    return likely


def _alike(labels: Labels, classes: int, rate: float) -> Floats:
    """Return the probability of each label under each true class, where all wrong labels are alike."""
    found = np.full((len(labels), classes), max(rate, TINY) / max(1, classes - 1))
    found[np.arange(len(labels)), labels] = max(1 - rate, TINY)
    return found
