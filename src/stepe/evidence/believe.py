"""From a ledger to a belief: how likely each label is right, what it should be, and which ones to point out."""

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from stepe.beliefs.belief import Belief
from stepe.beliefs.confident import prunable
from stepe.beliefs.issues import Past, issue_table
from stepe.beliefs.names import Names
from stepe.beliefs.rate import CAP, UNKNOWN, Rate
from stepe.evidence.noise_rate import deniable_share
from stepe.evidence.posterior import Posterior, beyond_doubt, label_given_class
from stepe.loop.ledger import Ledger, Observation
from stepe.loop.task import Task

BLANK = 0.5
"""an input that shows something of a class with less than this probability is pointed out for that"""
DOUBTFUL = 0.9
"""where nobody can tell how many labels are wrong, an input that shows less than this is doubted too"""
CONTRADICTED = 0.9
"""share of its probes in which a flagged sample was predicted differently from its label"""
CONTRADICTED_NUMBERS = 0.5
"""the same for numbers: while a regression is still far off, no residual stands out"""


def believe(ledger: Ledger, task: Task, posterior: Posterior | None = None, *, found: Rate | None = None) -> Belief:
    """Make the belief of what a ledger remembers and, where a running guess is kept, of the posterior.

    ``found`` is the rate of wrong labels where it was found out.
    """
    trust, labels = ledger["trust"], task.labels
    prediction, confidence = ledger["prediction"], ledger["confidence"]
    blank = torch.zeros(ledger.n, dtype=torch.bool, device=ledger.device)
    recognised = recognised_classes(ledger, labels) if "guess" in ledger.columns else torch.ones(task.classes)
    noise = torch.full((task.classes, task.classes), torch.nan)
    known = task.noise_rate
    if posterior is None:
        rate = found or (UNKNOWN if known is None else Rate(known, known, known))
        flagged = _contradicted(ledger)
    else:
        rate, guess = posterior.rate, ledger["guess"]
        noise = label_given_class(guess, labels.to(guess.device), rate).T
        flagged = flags(posterior, ledger, labels, recognised)
        trust, likely, given = posterior.right, posterior.likely, labels.to(ledger.device)[:, None]
        # Beside a label that is pointed out stands another one, even where the guess agrees with it.
        confidence, prediction = torch.where(flagged[:, None], likely.scatter(1, given, 0.0), likely).max(1)
        if posterior.shows is not None:
            blank = flagged & (posterior.shows.to(flagged.device) < BLANK)
            if rate.is_beyond_belief:  # some are flagged for that alone, and agreed with
                blank |= flagged & (likely.argmax(1) == given.squeeze(1)) & ~trust.isnan()
            confidence = confidence.masked_fill(blank, torch.nan)  # what a guess about nothing says is no suggestion
    return Belief(
        rate=rate,
        rate_was_found=found is not None,
        noise=_array(noise),
        p_right=_array(torch.where(torch.isnan(trust), _percentile_trust(ledger["loss"]), trust)),
        **_suggested(prediction, confidence, ledger.n),
        recognised=_array(recognised == 1),
        flagged=_array(flagged),
    )


def recognised_classes(ledger: Ledger, labels: Tensor) -> Tensor:
    """Return the share of each class's labels that the running guess may call wrong; 1 where no label names it."""
    used = torch.bincount(labels.to(ledger["guess"].device), minlength=ledger["guess"].shape[1]) > 0
    return torch.where(used, deniable_share(ledger["guess"], labels), 1.0)


def believe_unseen(seen: Observation, classes: int) -> Belief:
    """Make the belief of samples that nobody trained on: how likely their labels are; none is pointed out."""
    n = len(seen.loss)
    missing, nothing = torch.full((n,), torch.nan), torch.zeros(n, dtype=torch.bool)
    return Belief(
        rate=UNKNOWN,
        rate_was_found=False,
        noise=_array(torch.full((classes, classes), torch.nan)),
        p_right=_array(missing if seen.given_probability is None else seen.given_probability),
        **_suggested(seen.prediction, seen.confidence, n),
        recognised=np.ones(classes, dtype=np.bool_),
        flagged=_array(nothing),
    )


def flags(posterior: Posterior, ledger: Ledger, labels: Tensor, recognised: Tensor) -> Tensor:
    """Say which samples people should look at, where a running guess is kept.

    Those dropped whose label is least likely to be right, as many as there are wrong ones; where nobody can tell how
    many that are, in all or in a class that is hardly recognised, only those more likely wrong than right, and never
    all of such a class. Where next to nothing is dropped because the estimate is beyond belief: class by class, those
    of all that confident learning would prune, unless their class is never named, and inputs that show little; at most
    a half.
    """
    choose = _prunable if posterior.rate.is_beyond_belief else _least_likely
    return choose(posterior, ledger, labels, recognised)


def _contradicted(ledger: Ledger) -> Tensor:
    """Those dropped that the model contradicts, in the end and before.

    A hard sample that was dropped is soon contradicted too, for nobody teaches it any more; a wrong label was
    contradicted all along.
    """
    margin = ledger["margin"]
    share = CONTRADICTED_NUMBERS if "output" in ledger.columns else CONTRADICTED
    often = ledger["times_contradicted"] >= share * ledger["times_probed"]
    # Without logits there is no prediction to disagree with: the drop alone has to do.
    return ledger["dropped"] & (((margin < 0) & often) | torch.isnan(margin))


def _least_likely(posterior: Posterior, ledger: Ledger, labels: Tensor, recognised: Tensor) -> Tensor:
    rate, right = posterior.rate, posterior.right.nan_to_num(nan=0.0)
    labels = labels.to(right.device)
    suspects = ledger["dropped"] & ~beyond_doubt(1 - right, recognised, labels)
    chosen = _lowest(right, suspects, round(rate.rate * len(right)))
    well_known = (recognised == 1).to(right.device)[labels]
    return chosen & ((right < 0.5) | (well_known & (not rate.is_vague)))


def _prunable(posterior: Posterior, ledger: Ledger, labels: Tensor, recognised: Tensor) -> Tensor:
    right, likely = posterior.right, posterior.likely.double().cpu().nan_to_num()
    suspects = torch.from_numpy(prunable(likely.numpy(), labels.cpu().numpy())).to(right.device)
    never_named = (recognised == 0).to(right.device)[labels.to(right.device)]
    suspects = suspects & ~never_named | right.isnan()
    right = right.nan_to_num(nan=0.0)
    if posterior.shows is not None:
        suspects |= posterior.shows.to(right.device) < DOUBTFUL
    return _lowest(right, suspects & ~ledger["trusted"], round(CAP * len(right)))


def _lowest(right: Tensor, suspects: Tensor, most: int) -> Tensor:
    """Return those suspects that are least likely to be right."""
    order = torch.argsort(torch.where(suspects, right, torch.inf), stable=True)
    chosen = torch.zeros_like(suspects)
    chosen[order[:most]] = True
    return chosen & suspects


def _percentile_trust(loss: Tensor) -> Tensor:
    """Let the rank of the loss stand in for the probability of the given label, where that is not known."""
    ranked = torch.where(torch.isfinite(loss), loss, torch.inf)
    rank = torch.argsort(torch.argsort(ranked, stable=True), stable=True)
    return 1 - (rank + 1) / len(loss)


def _suggested(prediction: Tensor | None, confidence: Tensor | None, n: int) -> dict[str, Any]:
    """Return a suggestion and its confidence; logits that are not finite suggest nothing."""
    nobody = torch.full((n,), -1, dtype=torch.int64)
    if prediction is None:
        return {"suggestion": _array(nobody), "confidence": np.full(n, np.nan)}
    if confidence is None:
        return {"suggestion": _array(prediction), "confidence": np.full(n, np.nan)}
    return {
        "suggestion": _array(torch.where(confidence.isnan(), -1, prediction)),
        "confidence": _array(confidence),
    }


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


def training_table(
    belief: Belief, ledger: Ledger, task: Task, warmup: int, class_names: list[str], names: Names
) -> dict[str, Any]:
    """Write one row per training sample, as :func:`stepe.beliefs.issues.issue_table` does."""
    past = past_of(ledger, task, warmup)
    return issue_table(belief, past, task.kind, _array(task.labels), class_names, names)


def held_out_table(
    seen: Observation, task: Task, labels: Tensor, class_names: list[str], names: Names
) -> dict[str, Any]:
    """Write one row per held-out sample; none is dropped or flagged."""
    n = len(labels)
    margin = np.full(n, np.nan) if seen.margin is None else _array(seen.margin)
    output = None if seen.output is None else _array(seen.output)
    past = Past(np.zeros(n, dtype=np.bool_), np.zeros(n), margin, output)
    return issue_table(believe_unseen(seen, task.classes), past, task.kind, _array(labels), class_names, names)


def _array(values: Tensor) -> npt.NDArray[Any]:
    return values.detach().cpu().numpy()
