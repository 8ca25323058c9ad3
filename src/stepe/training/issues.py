"""What a training found, as tables: a row for each sample that it trained on, or was tested on."""

from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from stepe.beliefs.belief import Belief
from stepe.beliefs.issues import Past, issue_table
from stepe.beliefs.names import Names
from stepe.beliefs.rate import UNKNOWN
from stepe.loop.ledger import Ledger, Observation
from stepe.loop.task import Task


def training_table(
    belief: Belief, ledger: Ledger, task: Task, warmup: int, class_names: list[str], names: Names
) -> dict[str, Any]:
    """Write one row per training sample, as :func:`stepe.beliefs.issues.issue_table` does."""
    past = past_of(ledger, task, warmup)
    return issue_table(belief, past, task.kind, _array(task.labels), class_names, names)


def past_of(ledger: Ledger, task: Task, warmup: int) -> Past:
    """Say what a run did with its training samples."""
    share = (ledger["drop_count"].double() / max(1, task.epochs - warmup)).clamp(max=1)
    output = ledger.columns.get("output")
    return Past(
        _array(ledger["dropped"]),
        _array(share),
        _array(ledger["margin"]),
        None if output is None else _array(output),
    )


def held_out_table(
    seen: Observation, task: Task, labels: Tensor, class_names: list[str], names: Names
) -> dict[str, Any]:
    """Write one row per held-out sample; none is dropped or flagged."""
    n = len(labels)
    margin = np.full(n, np.nan) if seen.margin is None else _array(seen.margin)
    output = None if seen.output is None else _array(seen.output)
    past = Past(np.zeros(n, dtype=np.bool_), np.zeros(n), margin, output)
    return issue_table(believe_unseen(seen, task.classes), past, task.kind, _array(labels), class_names, names)


def believe_unseen(seen: Observation, classes: int) -> Belief:
    """Make the belief of samples that nobody trained on: how likely their labels are; none is pointed out."""
    n = len(seen.loss)
    confidence = np.full(n, np.nan) if seen.confidence is None else _array(seen.confidence)
    suggestion = np.full(n, -1) if seen.prediction is None else _array(seen.prediction)
    if seen.confidence is not None:  # logits that are not finite suggest nothing
        suggestion = np.where(np.isnan(confidence), -1, suggestion)
    return Belief(
        rate=UNKNOWN,
        rate_was_found=False,
        noise=np.full((classes, classes), np.nan),
        p_right=np.full(n, np.nan) if seen.given_probability is None else _array(seen.given_probability),
        suggestion=suggestion,
        confidence=confidence,
        recognised=np.ones(classes, dtype=np.bool_),
        flagged=np.zeros(n, dtype=np.bool_),
    )


def _array(values: Tensor) -> npt.NDArray[Any]:
    return values.detach().cpu().numpy()
