"""What is believed of the labels where no guess is kept: those are suspects that were dropped and long contradicted."""

import numpy as np
import torch
from torch import Tensor

from stepe.beliefs.belief import Belief
from stepe.beliefs.rate import UNKNOWN, Rate
from stepe.loop.ledger import Ledger
from stepe.loop.task import Task

CONTRADICTED = 0.9
"""share of its probes in which a flagged sample was predicted differently from its label"""
CONTRADICTED_NUMBERS = 0.5
"""the same for numbers: while a regression is still far off, no residual stands out"""


def believe_contradictions(ledger: Ledger, task: Task, *, found: Rate | None = None) -> Belief:
    """Make the belief of what the ledger remembers; ``found`` is the rate of wrong labels where it was found out."""
    trust, known = ledger["trust"], task.noise_rate
    prediction, confidence = ledger["prediction"], ledger["confidence"]
    return Belief(
        rate=found or (UNKNOWN if known is None else Rate(known, known, known)),
        rate_was_found=found is not None,
        noise=np.full((task.classes, task.classes), np.nan),
        p_right=torch.where(torch.isnan(trust), _percentile_trust(ledger["loss"]), trust).cpu().numpy(),
        # Logits that are not finite suggest nothing.
        suggestion=torch.where(confidence.isnan(), -1, prediction).cpu().numpy(),
        confidence=confidence.cpu().numpy().copy(),
        recognised=np.ones(task.classes, dtype=np.bool_),
        flagged=_contradicted(ledger).cpu().numpy(),
    )


def _contradicted(ledger: Ledger) -> Tensor:
    """Find those dropped that the model contradicts, in the end and before.

    A hard sample that was dropped is soon contradicted too, for nobody teaches it any more; a wrong label was
    contradicted all along.
    """
    margin = ledger["margin"]
    share = CONTRADICTED_NUMBERS if "output" in ledger.columns else CONTRADICTED
    often = ledger["times_contradicted"] >= share * ledger["times_probed"]
    # Without logits there is no prediction to disagree with: the drop alone has to do.
    return ledger["dropped"] & (((margin < 0) & often) | torch.isnan(margin))


def _percentile_trust(loss: Tensor) -> Tensor:
    """Let the rank of the loss stand in for the probability of the given label, where that is not known."""
    ranked = torch.where(torch.isfinite(loss), loss, torch.inf)
    rank = torch.argsort(torch.argsort(ranked, stable=True), stable=True)
    return 1 - (rank + 1) / len(loss)
