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
from stepe.beliefs.noise_model import NOBODY, Bools, Floats, Labels, NoiseModel, undone
from stepe.beliefs.outside import outside
from stepe.beliefs.parts import in_parts
from stepe.beliefs.rate import UNKNOWN, Rate
from stepe.beliefs.signal import rare_classes, recognised_classes

FLAGGED = 0.5
"""labels more suspicious than this are pointed out: they are more likely wrong than right"""
STEPS = 5
"""in which the noise is undone where there is one look; every further look undoes some of it by itself"""
SURE, STEEP = 3.0, 3.0
"""the counted matrix counts half where it explains labels better by so many standard errors, and how fast it gains"""
SWAY = 0.25
"""nobody can say how much a label says for itself but so much: the range of the rate comes from both ends"""
BESIDE = 0.025
"""and may be wrong by so much for other reasons"""
SMALLEST = 1e-3
"""variance of a label's being wrong, at least: few labels never tell that none is"""
TINY = 1e-9


def believe(
    labels: npt.ArrayLike,
    guesses: Floats | Sequence[Floats],
    *,
    evidence: float = 1.0,
    strangers: float = 0.0,
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
        strangers: how far a guess that hesitates between many classes, more than is usual, speaks of an input of none
            of them; at 0, not at all (:mod:`stepe.beliefs.outside`).
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
    grounds = Grounds.of(labels, looks, learned, strangers)
    p_right, suggestion, confidence = grounds.posterior(evidence)
    others = [grounds.p_right(evidence + sway) for sway in (-SWAY, SWAY)]
    if len(looks) > 1:
        others.append(Grounds.of(labels, looks[:-1], learned, strangers).p_right(evidence))
    checked = np.zeros(len(labels), dtype=np.bool_) if trusted is None else trusted

    def settled(recognised: Bools) -> tuple[Floats, Rate]:
        """Settle how likely labels are right, and how many are wrong, by the classes that may be called wrong."""
        doubt = np.where(recognised[labels], 1.0, FLAGGED)  # halved, it never flags
        each = [np.where(checked, 1.0, 1 - doubt * (1 - right)) for right in (p_right, *others)]
        return each[0], _range_of([float(1 - right[taught].mean()) for right in each], int(np.count_nonzero(taught)))

    if recognised is None:
        recognised = recognised_classes(labels[taught], looks[0][taught])
    signal = bool(recognised.any())
    right, rate = settled(recognised)
    if rate.low == 0:  # where nothing need be wrong, being rare is no reason to be called so
        recognised = recognised.copy()
        recognised[rare_classes(labels[taught], len(recognised))] = False
        right, rate = settled(recognised)
    return Belief(
        rate=rate if signal else UNKNOWN,
        rate_was_found=True,
        noise=grounds.noise.matrix,
        p_right=right,
        suggestion=suggestion,
        confidence=confidence,
        recognised=recognised,
        flagged=right < 1 - FLAGGED,
        has_signal=signal,
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
    beyond: Floats
    """how likely each row is of none of the classes, before its label is looked at"""

    @classmethod
    def of(
        cls, labels: Labels, looks: Sequence[Floats], learned: Bools | None = None, strangers: float = 0.0
    ) -> "Grounds":
        """Undo the noise in what was guessed of the labels, and average it with what was guessed since."""
        last = NoiseModel.counted(labels, looks[-1], learned)
        first = last if len(looks) == 1 else NoiseModel.counted(labels, looks[0], learned)
        guess = np.empty_like(looks[0])
        for part in in_parts(*guess.shape):
            before = undone(np.asarray(looks[0][part], dtype=np.float64), first.matrix, STEPS // len(looks))
            guess[part] = (before + sum(look[part] for look in looks[1:])) / len(looks)
        return cls(labels, guess, last, outside(guess, strangers, learned))

    def p_right(self, evidence: float) -> Floats:
        """Return how likely each label is right."""
        return self.posterior(evidence)[0]

    def posterior(self, evidence: float) -> tuple[Floats, Labels, Floats]:
        """Return how likely each label is right, which class is the likeliest, and how likely that is.

        Beside a label that is more likely wrong than right stands another one, even where it is the likeliest of all;
        beside one on an input of none of the classes, none (-1).
        """
        n, classes = self.guess.shape
        beyond = self.beyond
        right, suggestion, confidence = np.empty(n), np.empty(n, dtype=np.int64), np.empty(n)
        # A first belief by the counted matrix alone: its rate is that of the matrix in which wrong labels are alike.
        for part in in_parts(n, classes):
            of_label, _ = self._bayes(part, self._counted(part), beyond[part], evidence)
            right[part] = of_label[np.arange(len(of_label)), self.labels[part]]
        learned = slice(None) if self.noise.rows is None else self.noise.rows
        rate = max(float(1 - right[learned].mean()), self._least)
        structure = self._structure(rate)
        for part in in_parts(n, classes):
            labels = self.labels[part]
            rows = np.arange(len(labels))
            pooled = self._counted(part) ** structure * _alike(labels, classes, rate) ** (1 - structure)
            posterior, none = self._bayes(part, pooled, beyond[part], evidence)
            right[part] = posterior[rows, labels]
            doubted = right[part] < 1 - FLAGGED
            posterior[rows[doubted], labels[doubted]] = -1
            likeliest = posterior.argmax(1)
            sure = np.maximum(posterior[rows, likeliest], 0)
            suggestion[part] = np.where(sure > none, likeliest, NOBODY)
            confidence[part] = np.where(sure > none, sure, np.nan)
        return right, suggestion, confidence

    def _bayes(self, part: slice, of_label: Floats, beyond: Floats, evidence: float) -> tuple[Floats, Floats]:
        """Return how likely each class is, and how likely none of them; a label of none is one of those in use."""
        likely = (1 - beyond)[:, None] * np.maximum(self.guess[part], TINY) * np.maximum(of_label, TINY) ** evidence
        none = beyond * self.noise.frequency[self.labels[part]] ** evidence
        total = likely.sum(1) + none
        likely /= total[:, None]
        return likely, none / total

    @property
    def _least(self) -> float:
        """The share of wrong labels, at least: one of each class more than was counted, so that none is impossible."""
        rows, classes = self.noise.rows, self.guess.shape[1]
        n = len(self.labels) if rows is None else int(np.count_nonzero(rows))
        return float(classes / (n + classes))

    def _counted(self, part: slice) -> Floats:
        """Return each row's probability of its label under each true class, as it was counted."""
        found: Floats = np.maximum(self.noise.of_labels(part), self._least / max(1, self.guess.shape[1] - 1))
        return found

    def _structure(self, rate: float) -> float:
        """Weigh the counted matrix by how surely labels are likelier under it than if all wrong ones were alike."""
        n, classes = self.guess.shape
        gain = np.empty(n)
        for part in in_parts(n, classes):
            guess, labels = self.guess[part], self.labels[part]
            counted = (guess * self._counted(part)).sum(1)
            alike = (guess * _alike(labels, classes, rate)).sum(1)
            gain[part] = np.log(np.maximum(counted, TINY)) - np.log(np.maximum(alike, TINY))
        gain = gain if self.noise.rows is None else gain[self.noise.rows]
        error = float(gain.std()) / np.sqrt(len(gain))
        surely = float(gain.mean()) / error if error > 0 else 0.0
        return float(1 / (1 + np.exp(-np.clip((surely - SURE) / STEEP, -50, 50))))


def _alike(labels: Labels, classes: int, rate: float) -> Floats:
    """Return the probability of each label under each true class, where all wrong labels are alike."""
    found = np.full((len(labels), classes), max(rate, TINY) / max(1, classes - 1))
    found[np.arange(len(labels)), labels] = max(1 - rate, TINY)
    return found
