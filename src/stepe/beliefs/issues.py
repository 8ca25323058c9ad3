"""From a belief to advice: which labels to look at first, and what they might be instead.

*Dropped* is a training decision, *flagged* is advice. rho_max lies above the noise rate by design, so the dropped set
holds clean samples too; a dropped sample that the model agrees with, or agreed with for long, is no suspect.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from stepe.beliefs.belief import Belief
from stepe.beliefs.names import Names, class_name, given_names, number_names, turned_names
from stepe.loop.kinds import LabelKind

COLUMNS = (
    "rank",
    "id",
    "row",
    "split",
    "given_label",
    "suggested_label",
    "suspicion",
    "suggestion_confidence",
    "dropped",
    "flagged",
    "dropped_share",
    "margin",
    "reason",
    "status",
)


TINY = float(np.finfo(np.float32).tiny)


@dataclass(frozen=True)
class Past:
    """What a run did with the rows, and what its model says of their labels."""

    dropped: npt.NDArray[np.bool_]
    """whether the last epoch left a row out"""
    dropped_share: npt.NDArray[np.float64]
    """share of the epochs after the warm-up that left it out"""
    margin: npt.NDArray[np.floating[Any]]
    """logit of the given label minus the largest other one; NaN where it is unknown"""
    output: npt.NDArray[np.floating[Any]] | None = None
    """the predicted numbers, where labels are numbers"""
    by_judges: bool = False
    """whether judges said it that never saw the labels, and no model in training"""


def margins_of(guess: npt.NDArray[np.floating[Any]], labels: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Return by how much each label is likelier than any other class, as the difference of logarithms.

    >>> margins_of(np.array([[0.5, 0.25, 0.25]]), np.array([0])).round(2).tolist()
    [0.69]
    """
    rows, others = np.arange(len(guess)), guess.copy()
    others[rows, labels] = 0
    own, best = (np.maximum(each.astype(np.float64), TINY) for each in (guess[rows, labels], others.max(1)))
    margin: npt.NDArray[np.float64] = np.log(own) - np.log(best)
    return margin


def issue_table(
    belief: Belief, past: Past, kind: LabelKind, labels: npt.NDArray[Any], class_names: list[str], names: Names
) -> dict[str, Any]:
    """Write one row per sample, by sample index, in :data:`COLUMNS`; ranks follow the suspicion.

    Where the samples have groups, ``group`` is one more column.
    """
    n = len(labels)
    suspicion = (1 - belief.p_right).astype(np.float64).round(6)
    confidence = belief.confidence.astype(np.float64).round(6)
    suggested = suggested_names(belief, past, kind, labels, class_names)
    order = np.lexsort((np.arange(n), -np.nan_to_num(suspicion, nan=2.0), ~belief.flagged))
    rank = np.empty(n, dtype=np.int64)
    rank[order] = np.arange(1, n + 1)
    told = zip(
        belief.flagged.tolist(),
        past.dropped.tolist(),
        past.dropped_share.tolist(),
        suggested,
        confidence.tolist(),
        strict=True,
    )
    given = names.given or given_names(kind, labels, class_names)
    why = _reason_of_judges if past.by_judges else _reason
    return {
        "rank": rank,
        "id": names.ids,
        "row": np.asarray(names.rows, dtype=np.int64),
        "split": [names.split] * n,
        "given_label": given,
        "suggested_label": suggested,
        "suspicion": suspicion,
        "suggestion_confidence": confidence,
        "dropped": past.dropped,
        "flagged": belief.flagged,
        "dropped_share": past.dropped_share.round(4),
        "margin": past.margin.astype(np.float64).round(4),
        "reason": [why(*row, given=label) for row, label in zip(told, given, strict=True)],
        "status": names.status or ["open"] * n,
        **({} if names.groups is None else {"group": names.groups}),
    }


def suggested_names(
    belief: Belief, past: Past, kind: LabelKind, labels: npt.NDArray[Any], class_names: list[str]
) -> list[str]:
    """Name what the labels should rather be; nothing where nobody can say.

    Of marks, the one that the model disagrees with most is turned over.
    """
    if past.output is not None:
        return number_names(past.output)
    if kind == "classes":
        return [class_name(number, class_names) for number in belief.suggestion.tolist()]
    if kind == "numbers":
        return [""] * len(labels)
    return turned_names(labels, belief.suggestion, (belief.suggestion >= 0) & (past.margin < 0), class_names)


def _reason_of_judges(
    flagged: bool, dropped: bool, dropped_share: float, suggested: str, confidence: float, given: str
) -> str:
    if not flagged:
        return ""
    if suggested == given:
        return "judges that never saw this label rather agree with it"
    if not suggested:
        return "looks like none of the classes to judges that never saw this label"
    return f"looks like {suggested} to judges that never saw this label ({confidence:.0%})"


def _reason(flagged: bool, dropped: bool, dropped_share: float, suggested: str, confidence: float, given: str) -> str:
    often = f"dropped in {dropped_share:.0%} of the epochs after the warm-up"
    if flagged:
        sure = "" if confidence != confidence else f" ({confidence:.0%})"
        said = f"the model says {suggested}{sure}" if suggested else ""
        if not dropped:
            return said or "the model hardly expects the label"
        return f"{often}; {said}" if said else f"{often} for a high loss"
    return "dropped for a high loss, but the model agrees, or long agreed, with the label" if dropped else ""
