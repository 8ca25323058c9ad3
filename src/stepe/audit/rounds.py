"""The rounds of an audit: look, believe, drop the doubtful labels, and look again without them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from stepe.beliefs.believe import Believed, believe
from stepe.beliefs.rate import CAP_OF_ESTIMATE
from stepe.judges.base import Floats, Judge, View, one_hot
from stepe.loop.numpy_selection import keep_lowest

Labels = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

ROUNDS = 3
MIN_KEEP = 0.5
"""share of every class that is never dropped: of a rare one, hardly recognised at first, all would go"""
DOUBTED = 0.7
"""labels less likely to be right than this are dropped in the next round: more than are wrong, as in Step-E"""


@dataclass(frozen=True)
class Round:
    """What one round was made on, and what was believed after it."""

    view: View
    kept: Bools
    """the rows that the judge learned from"""
    rate: float
    """the share of wrong labels, by all rounds so far"""

    def row(self, number: int) -> dict[str, Any]:
        """Make a line of the history."""
        return {
            "epoch": number,
            "kept": int(np.count_nonzero(self.kept)),
            "drop_fraction": float((~self.kept).mean()),
            "noise_rate": self.rate,
            "judge": dict(self.view.settings),
        }


@dataclass(frozen=True)
class Audit:
    """What the rounds came to."""

    believed: Believed
    rounds: Sequence[Round]


def audit(
    judge: Judge,
    labels: Labels,
    classes: int,
    *,
    evidence: float = 1.0,
    rounds: int = ROUNDS,
    rho_max: float = CAP_OF_ESTIMATE,
    min_keep: float = MIN_KEEP,
    groups: Labels | None = None,
    trusted: Bools | None = None,
    weights: Floats | None = None,
    before: Sequence[Round] = (),
    follow: Callable[[Round], None] = lambda round: None,
) -> Audit:
    """Find out which labels are wrong, by a judge that looks at them in rounds.

    Args:
        judge: who looks; often a :class:`stepe.judges.panel.Panel`.
        labels: the class that each row is said to be of.
        classes: how many classes there are.
        evidence: how much a label says for itself (:func:`stepe.beliefs.believe.believe`).
        rounds: how many; one is a look at all rows, each further one leaves out the labels that seem wrong by then.
        rho_max: the largest share of the rows that is ever left out.
        min_keep: the share of every class, or of every group, that is never left out.
        groups: a number for each row, where ``min_keep`` protects groups and not classes.
        trusted: of each row, whether its label was checked: it is never left out.
        weights: how much each row counts.
        before: rounds that an interrupted audit has made.
        follow: is told each round as it ends.
    """
    targets = one_hot(labels, classes)
    weights = np.ones(len(labels)) if weights is None else weights
    floors = labels if groups is None else groups
    done, kept = list(before), np.ones(len(labels), dtype=np.bool_)
    looks = [round.view.probability for round in done]
    believed = believe(labels, looks, evidence=evidence, trusted=trusted) if looks else None
    while believed is None or len(done) < rounds:
        if believed is not None:
            share = min(float((believed.p_right < DOUBTED).mean()), rho_max)
            kept = keep_lowest(1 - believed.p_right, share, groups=floors, min_keep=min_keep, trusted=trusted)
        view = judge.look(weights * kept, targets)
        looks.append(view.probability)
        believed = believe(labels, looks, evidence=evidence, trusted=trusted)
        done.append(Round(view, kept, believed.rate))
        follow(done[-1])
    return Audit(believed, done)
