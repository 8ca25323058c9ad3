"""The rounds of an audit: look, believe, drop the doubtful labels, and look again without them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from stepe.beliefs.belief import Belief
from stepe.beliefs.believe import DOUBTED, Grounds, believe
from stepe.beliefs.rate import CAP_OF_ESTIMATE
from stepe.beliefs.signal import has_signal
from stepe.errors import InputError
from stepe.judges.base import Floats, Judge, View, one_hot
from stepe.judges.panel import SHARE
from stepe.loop.numpy_selection import keep_lowest

Labels = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

ROUNDS = 3
"""rounds at most"""
CHANGED = 0.01
"""a round that would learn from nearly the same rows as the last is not made: fewer than this share are others"""
MIN_KEEP = 0.5
"""share of every class that is never dropped: of a rare one, hardly recognised at first, all would go"""


@dataclass(frozen=True)
class Round:
    """What one round was made on, and what was believed after it."""

    view: View
    kept: Bools
    """the rows that the judge learned from"""
    learned: Bools
    """the rows that it might have learned from: all but those that are only judged"""
    rate: float
    """the share of wrong labels, by all rounds so far"""

    def row(self, number: int) -> dict[str, Any]:
        """Make a line of the history."""
        return {
            "epoch": number,
            "kept": int(np.count_nonzero(self.kept)),
            "dropped": int(np.count_nonzero(self.learned & ~self.kept)),
            "drop_fraction": 1 - np.count_nonzero(self.kept) / max(1, int(self.learned.sum())),
            "noise_rate": self.rate,
            "judge": dict(self.view.settings),
        }


@dataclass(frozen=True)
class Audit:
    """What the rounds came to."""

    belief: Belief
    rounds: Sequence[Round]
    kept: Bools
    """the rows that a model should learn from in the end"""

    @property
    def shares(self) -> dict[str, float]:
        """Each judge's share of what the panel said in the last round, the largest first."""
        last = self.rounds[-1].view.settings
        shares = {name.removesuffix(SHARE): share for name, share in last.items() if name.endswith(SHARE)}
        return dict(sorted(shares.items(), key=lambda item: -item[1]))


def audit(
    judge: Judge,
    labels: Labels,
    classes: int,
    *,
    evidence: float = 1.0,
    strangers: float = 0.0,
    rounds: int = ROUNDS,
    rho_max: float = CAP_OF_ESTIMATE,
    min_keep: float = MIN_KEEP,
    groups: Labels | None = None,
    trusted: Bools | None = None,
    weights: Floats | None = None,
    judged: int | None = None,
    dtype: npt.DTypeLike = np.float64,
    before: Sequence[Round] = (),
    follow: Callable[[Round], None] = lambda round: None,
) -> Audit:
    """Find out which labels are wrong, by a judge that looks at them in rounds.

    Args:
        judge: who looks; often a :class:`stepe.judges.panel.Panel`.
        labels: the class that each row is said to be of.
        classes: how many classes there are.
        evidence: how much a label says for itself (:func:`stepe.beliefs.believe.believe`).
        strangers: how far a guess that hesitates speaks of an input of none of the classes (the same).
        rounds: how many at most; one is a look at all rows, each further one leaves out the labels that seem wrong by
            then. When these are nearly the same as the time before, it is over.
        rho_max: the largest share of the rows that is ever left out.
        min_keep: the share of every class, or of every group, that is never left out.
        groups: a number for each row, where ``min_keep`` protects groups and not classes.
        trusted: of each row, whether its label was checked: it is never left out.
        weights: how much each row counts; of rows that count nothing, labels are judged and teach nothing.
        judged: how many rows have a label to judge, of which they are the first; by default all.
        dtype: the precision of what is said of every class of every row.
        before: rounds that an interrupted audit has made.
        follow: is told each round as it ends.
    """
    targets = one_hot(labels, classes, dtype)
    weights = np.ones(len(labels)) if weights is None else weights
    learned, floors = weights > 0, labels if groups is None else groups
    if not learned.any():
        raise InputError("all rows have the weight 0, so there is nothing to learn from; give some a weight")
    checked = np.zeros(len(labels), dtype=np.bool_) if trusted is None else trusted

    def suspicion_after(looks: Sequence[Floats]) -> Floats:
        if not has_signal(labels[learned], looks[0][learned]):
            return np.zeros(len(labels))  # who knows nothing has nothing to doubt
        doubt = 1 - Grounds.of(labels, looks, learned, strangers).p_right(evidence)
        return np.where(checked, 0.0, doubt)

    done, looks = list(before), [round.view.probability for round in before]
    suspicion = suspicion_after(looks) if looks else np.zeros(len(labels))
    while True:
        kept = learned.copy()
        share = min(float((suspicion[learned] > 1 - DOUBTED).mean()), rho_max)
        kept[learned] = keep_lowest(
            suspicion[learned], share, groups=floors[learned], min_keep=min_keep, trusted=checked[learned]
        )
        if len(done) >= rounds or (done and not _changes(kept, done[-1].kept, learned)):
            break
        view = judge.look(weights * kept, targets)
        looks.append(view.probability)
        suspicion = suspicion_after(looks)
        done.append(Round(view, kept, learned, float(suspicion[learned].mean())))
        follow(done[-1])
    first = slice(judged)
    belief = believe(
        labels[first],
        [look[first] for look in looks],
        evidence=evidence,
        strangers=strangers,
        trusted=checked[first],
        learned=learned[first],
    )
    return Audit(belief, done, kept)


def _changes(kept: Bools, before: Bools, learned: Bools) -> bool:
    """Say whether a round would learn from other rows than the one before."""
    return bool(np.count_nonzero(kept != before) >= CHANGED * np.count_nonzero(learned))
