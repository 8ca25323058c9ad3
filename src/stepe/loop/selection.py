"""Which samples to keep, given their scores and a drop fraction (section 3.3, step 2). Pure functions on tensors.

One rule, everywhere the same:

* ``kept = min(n - floor(rho * n + 1e-9), number of finite scores)``;
* the lowest scores are kept, and of equal ones those with the lower index;
* NaN and infinite scores go first, and are counted;
* a group floor wins over the count, and the shortfall is reported.

The cut is an order statistic, found by partition rather than a full sort, so every device finds the same one.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from stepe.errors import InputError
from stepe.loop.numpy_selection import keep_count
from stepe.loop.schedule import check_drop_fraction

SAMPLE = 10_000
"""scores whose order tells roughly where the cut lies"""


@dataclass(frozen=True)
class Selection:
    """A kept set and what is worth knowing about it."""

    kept: Tensor
    """bool, one per sample"""
    cut: float
    """the highest score the rule kept, floors aside; -inf when it kept none"""
    nonfinite: int
    """samples whose score is NaN or infinite"""
    shortfall: int
    """samples kept only because of a group floor: so many fewer were dropped than asked for"""


def select(scores: Tensor, drop_fraction: float, *, groups: Tensor | None = None, min_keep: float = 0.0) -> Selection:
    """Keep the samples with the lowest scores.

    ``min_keep`` is the share of every group that stays whatever its scores are (0 = off); ``groups`` holds one
    integer per sample.

    >>> select(torch.tensor([0.1, 2.0, 0.3, float("nan")]), 0.5).kept
    tensor([ True, False,  True, False])
    """
    _check(scores, drop_fraction, groups, min_keep)
    if scores.device.type == "mps":  # no kthvalue on every version there, and the same answer anyway
        moved = select(scores.cpu(), drop_fraction, groups=None if groups is None else groups.cpu(), min_keep=min_keep)
        return Selection(moved.kept.to(scores.device), moved.cut, moved.nonfinite, moved.shortfall)
    scores = scores.detach()
    keep_lowest = _keep_lowest_on_cpu if scores.device.type == "cpu" else _keep_lowest
    kept, cut, n_finite = keep_lowest(scores, drop_fraction)
    shortfall = 0
    if min_keep > 0:
        assert groups is not None
        before = int(kept.sum())
        kept = raise_to_floor(kept, scores, groups, min_keep)
        shortfall = int(kept.sum()) - before
    return Selection(kept, cut, len(scores) - n_finite, shortfall)


def protect(scores: Tensor, drop_fraction: float, trusted: Tensor | None) -> tuple[Tensor, float]:
    """Change scores and a drop fraction so that a selection keeps all trusted samples.

    >>> protect(torch.tensor([3.0, 2.0, 1.0]), 0.5, torch.tensor([True, False, False]))
    (tensor([0., 2., 1.]), 0.5)
    """
    if trusted is None:
        return scores, drop_fraction
    trusted = trusted.to(scores.device)
    lowest = float(torch.where(torch.isfinite(scores), scores, torch.inf).min())
    below = torch.where(trusted, lowest - 1 if math.isfinite(lowest) else 0.0, scores)
    return below, min(drop_fraction, float((~trusted).double().mean()))


def soften(scores: Tensor, selection: Selection, temperature: float) -> Tensor:
    """Give weights in [0, 1] instead of dropping; at temperature 0, or near it, the hard selection.

    A weight is ``sigmoid((cut - score) / temperature)`` with the cut halfway between the last kept and the first
    dropped score; ``temperature`` is in units of the score. Samples that only a group floor keeps stay at 1.
    """
    if not 0 <= temperature < math.inf:
        raise InputError(f"the softness is {temperature!r}; it must be 0 (drop) or a positive number of loss units")
    scores, hard = scores.detach(), selection.kept.to(torch.float32)
    finite = torch.isfinite(scores)
    dropped = finite & ~selection.kept
    if temperature == 0 or not bool(dropped.any()):
        return hard
    floor = selection.kept & (scores > selection.cut)
    cut = (selection.cut + float(scores[dropped].min())) / 2
    # Between neighbouring float32 scores only a double can lie (MPS has none).
    distance = cut - scores.to(torch.float32 if scores.device.type == "mps" else torch.float64)
    tied = finite & (distance == 0)
    if bool(tied.any()):
        # Equal scores on both sides of the cut: each goes halfway to its neighbour on the side the hard rule put it.
        lower, higher = distance[finite & (distance > 0)], distance[finite & (distance < 0)]
        up = float(lower.min()) / 2 if len(lower) else math.inf
        down = float(higher.max()) / 2 if len(higher) else -math.inf
        distance = torch.where(tied, torch.where(selection.kept, up, down), distance)
    weight = torch.sigmoid(distance / temperature).to(torch.float32)
    return torch.where(finite, torch.where(floor, hard, weight), torch.zeros_like(weight))


def _check(scores: Tensor, drop_fraction: float, groups: Tensor | None, min_keep: float) -> None:
    check_drop_fraction(drop_fraction)
    if scores.ndim != 1 or len(scores) == 0:
        raise InputError(f"scores have shape {tuple(scores.shape)}; they must be one number per sample, at least one")
    if not 0 <= min_keep <= 1:
        raise InputError(f"min_keep is {min_keep!r}; it must be a share in [0, 1]")
    if min_keep > 0 and groups is None:
        raise InputError("min_keep needs groups: one integer per sample, for example its class")
    if groups is not None and groups.shape != scores.shape:
        raise InputError(f"there are {len(groups)} groups for {len(scores)} scores; give one per sample")


def _keep_lowest(scores: Tensor, drop_fraction: float) -> tuple[Tensor, float, int]:
    """Return the kept mask, the highest kept score, and how many scores are finite."""
    finite = torch.isfinite(scores)
    n_finite = int(finite.sum())
    count = min(keep_count(len(scores), drop_fraction), n_finite)
    if count == 0:
        return torch.zeros_like(finite), -math.inf, n_finite
    ranked = torch.where(finite, scores, math.inf)
    cut = torch.kthvalue(ranked, count).values
    kept = ranked < cut
    tied = torch.nonzero(ranked == cut).squeeze(1)
    kept[tied[: count - int(kept.sum())]] = True
    return kept, float(cut), n_finite


def _keep_lowest_on_cpu(scores: Tensor, drop_fraction: float) -> tuple[Tensor, float, int]:
    """Do the same in numpy, whose passes over the scores are several times faster than torch's on CPU."""
    values = (scores.float() if scores.dtype in (torch.float16, torch.bfloat16) else scores).numpy()
    finite = np.isfinite(values)
    n_finite = int(np.count_nonzero(finite))
    count = min(keep_count(len(values), drop_fraction), n_finite)
    if count == 0:
        return torch.zeros(len(values), dtype=torch.bool), -math.inf, n_finite
    ranked = values if n_finite == len(values) else np.where(finite, values, np.inf)
    cut = _value_at_rank(ranked, count - 1)
    kept = ranked < cut
    missing = count - int(np.count_nonzero(kept))
    tied = ranked == cut
    if missing == np.count_nonzero(tied):
        kept |= tied
    else:
        kept[np.flatnonzero(tied)[:missing]] = True
    return torch.from_numpy(kept), float(cut), n_finite


def _value_at_rank(values: Any, rank: int) -> Any:
    """``np.sort(values)[rank]`` in a few passes.

    numpy's partition is slow on a long run of equal values. A sorted sample names two values around the answer,
    counting says on which side of them it lies, and only what lies strictly between is partitioned.
    """
    if len(values) > 10 * SAMPLE:
        sample = np.sort(values[:: len(values) // SAMPLE])
        guess = rank * len(sample) // len(values)
        # A twentieth of the sample is ten standard deviations of where the guess falls in data without a pattern.
        low = sample[max(guess - SAMPLE // 20, 0)]
        high = sample[min(guess + SAMPLE // 20, len(sample) - 1)]
        for pivot in (low, high):
            if np.count_nonzero(values < pivot) <= rank < np.count_nonzero(values <= pivot):
                return pivot
        between = (values > low) & (values < high)
        before = int(np.count_nonzero(values <= low))
        if before <= rank < before + np.count_nonzero(between):
            values, rank = values[between], rank - before
    return np.partition(values, rank)[rank]


def raise_to_floor(kept: Tensor, scores: Tensor, groups: Tensor, min_keep: float | Tensor) -> Tensor:
    """Re-admit the lowest finite scores of every group that fell under its floor.

    ``min_keep`` is one share for all groups, or one for each, by the group's number.
    """
    names, member = torch.unique(groups, return_inverse=True)
    size = torch.bincount(member, minlength=len(names))
    have = torch.bincount(member[kept], minlength=len(names))
    share = min_keep[names].double() if isinstance(min_keep, Tensor) else min_keep
    floor = torch.ceil(size.double() * share - 1e-9).long()
    index = torch.nonzero((have < floor)[member] & torch.isfinite(scores)).squeeze(1)
    # By group, then by score, then by index: a sample's place in its group is its distance to the group's first.
    index = index[torch.argsort(scores[index], stable=True)]
    index = index[torch.argsort(member[index], stable=True)]
    group = member[index]
    count = torch.bincount(group, minlength=len(names))
    place = torch.arange(len(index), device=index.device) - (count.cumsum(0) - count)[group]
    kept = kept.clone()
    kept[index[place < floor[group]]] = True
    return kept
