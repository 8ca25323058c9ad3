"""From a ledger to advice: which labels to look at first, and what they might be instead.

*Dropped* is a training decision, *flagged* is advice. rho_max lies above the noise rate by design, so the dropped set
holds clean samples too; a dropped sample that the model agrees with, or agreed with for long, is no suspect.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from stepe.beliefs.confident import prunable
from stepe.beliefs.names import Names
from stepe.beliefs.rate import CAP
from stepe.evidence.noise_rate import deniable_share
from stepe.evidence.posterior import Belief, beyond_doubt
from stepe.loop.labels import given_names, suggested_names
from stepe.loop.ledger import Ledger, Observation

BLANK = 0.5
"""an input that shows something of a class with less than this probability is pointed out for that"""
DOUBTFUL = 0.9
"""where nobody can tell how many labels are wrong, an input that shows less than this is doubted too"""
CONTRADICTED = 0.9
"""share of its probes in which a flagged sample was predicted differently from its label"""
CONTRADICTED_NUMBERS = 0.5
"""the same for numbers: while a regression is still far off, no residual stands out"""

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


def flags(ledger: Ledger, labels: Tensor, belief: Belief | None = None) -> Tensor:
    """Which samples to advise people to look at.

    Where a running guess is kept: those dropped whose label is least likely to be right, as many as there are wrong
    ones by the ``belief``; where nobody can tell how many that are, in all or in a class that is hardly recognised,
    only those more likely wrong than right, and never all of such a class. Where next to nothing is dropped because the
    estimate is beyond belief: class by class, those of all that confident learning would prune, unless their class is
    never named, and inputs that show little; at most a half. Else those dropped that the model contradicts, in the end
    and before: a hard sample that was dropped is soon contradicted too, for nobody teaches it any more; a wrong label
    was contradicted all along.
    """
    if belief is not None:
        choose = _prunable if belief.noise.is_beyond_belief else _least_likely
        return choose(belief, ledger, labels)
    margin = ledger["margin"]
    share = CONTRADICTED_NUMBERS if "output" in ledger.columns else CONTRADICTED
    often = ledger["times_contradicted"] >= share * ledger["times_probed"]
    # Without logits there is no prediction to disagree with: the drop alone has to do.
    return ledger["dropped"] & (((margin < 0) & often) | torch.isnan(margin))


def _least_likely(belief: Belief, ledger: Ledger, labels: Tensor) -> Tensor:
    noise, right, guess = belief.noise, belief.right.nan_to_num(nan=0.0), ledger["guess"]
    labels = labels.to(right.device)
    suspects = ledger["dropped"] & ~beyond_doubt(1 - right, guess, labels)
    chosen = _lowest(right, suspects, round(noise.rate * len(right)))
    recognised = (deniable_share(guess, labels) == 1).to(right.device)[labels]
    return chosen & ((right < 0.5) | (recognised & (not noise.is_vague)))


def _prunable(belief: Belief, ledger: Ledger, labels: Tensor) -> Tensor:
    right, likely = belief.right, belief.likely.double().cpu().nan_to_num()
    suspects = torch.from_numpy(prunable(likely.numpy(), labels.cpu().numpy())).to(right.device)
    never_named = (deniable_share(ledger["guess"], labels) == 0).to(right.device)[labels.to(right.device)]
    suspects = suspects & ~never_named | right.isnan()
    right = right.nan_to_num(nan=0.0)
    if belief.shows is not None:
        suspects |= belief.shows.to(right.device) < DOUBTFUL
    return _lowest(right, suspects & ~ledger["trusted"], round(CAP * len(right)))


def _lowest(right: Tensor, suspects: Tensor, most: int) -> Tensor:
    """Of the suspects, those least likely to be right."""
    order = torch.argsort(torch.where(suspects, right, torch.inf), stable=True)
    chosen = torch.zeros_like(suspects)
    chosen[order[:most]] = True
    return chosen & suspects


def training_table(
    ledger: Ledger,
    labels: Tensor,
    class_names: list[str],
    names: Names,
    epochs_after_warmup: int,
    belief: Belief | None = None,
) -> dict[str, Any]:
    """One row per training sample, by sample index, in :data:`COLUMNS`; ranks follow the suspicion.

    Where the samples have groups, ``group`` is one more column.
    """
    trust, prediction, confidence = ledger["trust"], ledger["prediction"], ledger["confidence"]
    flagged = flags(ledger, labels, belief)
    blank = torch.zeros_like(flagged)
    if belief is not None:
        trust, likely, given = belief.right, belief.likely, labels.to(ledger.device)[:, None]
        # Whoever is pointed to a label wants to know what else it could be.
        confidence, prediction = torch.where(flagged[:, None], likely.scatter(1, given, 0.0), likely).max(1)
        if belief.shows is not None:
            blank = flagged & (belief.shows.to(flagged.device) < BLANK)
            if belief.noise.is_beyond_belief:  # some are flagged for that alone, and agreed with
                blank |= flagged & (likely.argmax(1) == given.squeeze(1)) & ~trust.isnan()
            confidence = confidence.masked_fill(blank, torch.nan)  # what a guess about nothing says is no suggestion
    seen = Observation(
        ledger["loss"],
        prediction=prediction,
        confidence=confidence,
        given_probability=torch.where(torch.isnan(trust), _percentile_trust(ledger["loss"]), trust),
        margin=ledger["margin"],
        output=ledger.columns.get("output"),
    )
    dropped_share = (ledger["drop_count"].double() / max(1, epochs_after_warmup)).clamp(max=1)
    return _table(seen, labels, class_names, names, ledger["dropped"], flagged, dropped_share, blank)


def held_out_table(seen: Observation, labels: Tensor, class_names: list[str], names: Names) -> dict[str, Any]:
    """One row per held-out sample, which the model never trained on; none is dropped or flagged."""
    nothing = torch.zeros(len(labels), dtype=torch.bool)
    never = torch.zeros(len(labels), dtype=torch.double)
    return _table(seen, labels, class_names, names, nothing, nothing, never, nothing)


def _percentile_trust(loss: Tensor) -> Tensor:
    """Where no probability of the given label is known, the rank of the loss stands in for it."""
    ranked = torch.where(torch.isfinite(loss), loss, torch.inf)
    rank = torch.argsort(torch.argsort(ranked, stable=True), stable=True)
    return 1 - (rank + 1) / len(loss)


def _table(
    seen: Observation,
    labels: Tensor,
    class_names: list[str],
    names: Names,
    dropped: Tensor,
    flagged: Tensor,
    dropped_share: Tensor,
    blank: Tensor,
) -> dict[str, Any]:
    n = len(labels)
    dropped, flagged, dropped_share = dropped.cpu(), flagged.cpu(), dropped_share.cpu()
    missing = torch.full((n,), float("nan"))
    given_probability = missing if seen.given_probability is None else seen.given_probability.cpu()
    suspicion = (1 - given_probability).double().numpy().round(6)
    margin = (missing if seen.margin is None else seen.margin.cpu()).double().numpy().round(4)
    confidence = (missing if seen.confidence is None else seen.confidence.cpu()).double().numpy().round(6)
    suggested = suggested_names(seen, labels, class_names)
    given = names.given or given_names(labels, class_names)
    order = np.lexsort((np.arange(n), -np.nan_to_num(suspicion, nan=2.0), ~flagged.numpy()))
    rank = np.empty(n, dtype=np.int64)
    rank[order] = np.arange(1, n + 1)
    return {
        "rank": rank,
        "id": names.ids,
        "row": np.asarray(names.rows, dtype=np.int64),
        "split": [names.split] * n,
        "given_label": given,
        "suggested_label": suggested,
        "suspicion": suspicion,
        "suggestion_confidence": confidence,
        "dropped": dropped.numpy(),
        "flagged": flagged.numpy(),
        "dropped_share": dropped_share.numpy().round(4),
        "margin": margin,
        "reason": [
            _reason(*row)
            for row in zip(
                flagged.tolist(),
                dropped.tolist(),
                dropped_share.tolist(),
                suggested,
                confidence.tolist(),
                blank.tolist(),
                strict=True,
            )
        ],
        "status": names.status or ["open"] * n,
        **({} if names.groups is None else {"group": names.groups}),
    }


def _reason(flagged: bool, dropped: bool, dropped_share: float, suggested: str, confidence: float, blank: bool) -> str:
    often = f"dropped in {dropped_share:.0%} of the epochs after the warm-up"
    if blank:
        return f"{often}; it shows hardly anything of any class" if dropped else "it shows hardly anything of any class"
    if flagged:
        sure = "" if confidence != confidence else f" ({confidence:.0%})"
        said = f"the model says {suggested}{sure}" if suggested else ""
        if not dropped:
            return said or "the model hardly expects the label"
        return f"{often}; {said}" if said else f"{often} for a high loss"
    return "dropped for a high loss, but the model agrees, or long agreed, with the label" if dropped else ""
