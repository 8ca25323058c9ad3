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

import numpy as np
import torch
from torch import Tensor

from stepe.errors import InputError
from stepe.schedule import check_drop_max


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


def keep_count(n: int, drop_fraction: float) -> int:
    """How many of n samples stay. The epsilon keeps 0.3 * 10 from losing a sample to rounding."""
    return n - math.floor(drop_fraction * n + 1e-9)


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
    finite = torch.isfinite(scores)
    n_finite = int(finite.sum())
    count = min(keep_count(len(scores), drop_fraction), n_finite)
    if count == n_finite:
        kept, cut = finite.clone(), float(scores[finite].max()) if n_finite else -math.inf
    elif count == 0:
        kept, cut = torch.zeros_like(finite), -math.inf
    else:
        kept, cut = _keep_lowest(scores, finite, n_finite, count)
    shortfall = 0
    if min_keep > 0:
        assert groups is not None
        before = int(kept.sum())
        kept = _raise_to_floor(kept, scores, groups, min_keep)
        shortfall = int(kept.sum()) - before
    return Selection(kept, cut, len(scores) - n_finite, shortfall)


def soften(scores: Tensor, selection: Selection, temperature: float) -> Tensor:
    """Weights in [0, 1] that down-weight instead of dropping; at temperature 0, or near it, the hard selection.

    A weight is ``sigmoid((cut - score) / temperature)`` with the cut halfway between the last kept and the first
    dropped score; ``temperature`` is in units of the score. Samples that only a group floor keeps stay at 1.
    """
    if not temperature >= 0:
        raise InputError(f"the softness is {temperature!r}; it must be 0 (drop) or a positive number of loss units")
    hard = selection.kept.to(torch.float32)
    finite = torch.isfinite(scores)
    dropped = finite & ~selection.kept
    if temperature == 0 or not bool(dropped.any()):
        return hard
    floor = selection.kept & (scores > selection.cut)
    cut = (selection.cut + float(scores[dropped].min())) / 2 if selection.cut > -math.inf else -math.inf
    weight = torch.sigmoid((cut - scores.to(torch.float32)) / temperature)
    # A tie across the cut has no side of its own: the hard rule decides it.
    weight = torch.where((scores == cut) | floor, hard, weight)
    return torch.where(finite, weight, torch.zeros_like(weight))


def _check(scores: Tensor, drop_fraction: float, groups: Tensor | None, min_keep: float) -> None:
    check_drop_max(drop_fraction)
    if scores.ndim != 1 or len(scores) == 0:
        raise InputError(f"scores have shape {tuple(scores.shape)}; they must be one number per sample, at least one")
    if not 0 <= min_keep <= 1:
        raise InputError(f"min_keep is {min_keep!r}; it must be a share in [0, 1]")
    if min_keep > 0 and groups is None:
        raise InputError("min_keep needs groups: one integer per sample, for example its class")
    if groups is not None and groups.shape != scores.shape:
        raise InputError(f"there are {len(groups)} groups for {len(scores)} scores; give one per sample")


def _keep_lowest(scores: Tensor, finite: Tensor, n_finite: int, count: int) -> tuple[Tensor, float]:
    if scores.device.type == "cpu":
        return _keep_lowest_on_cpu(scores, finite, n_finite, count)
    ranked = scores if n_finite == len(scores) else torch.where(finite, scores, math.inf)
    cut = torch.kthvalue(ranked, count).values
    kept = ranked < cut
    tied = torch.nonzero(ranked == cut).squeeze(1)
    kept[tied[: count - int(kept.sum())]] = True
    return kept, float(cut)


def _keep_lowest_on_cpu(scores: Tensor, finite: Tensor, n_finite: int, count: int) -> tuple[Tensor, float]:
    """numpy's introselect moves values alone, several times faster than torch's kthvalue on CPU."""
    values = (scores if scores.dtype != torch.bfloat16 else scores.float()).numpy()
    ranked = values if n_finite == len(values) else np.where(finite.numpy(), values, np.inf)
    cut = np.partition(ranked, count - 1)[count - 1]
    kept = ranked < cut
    missing = count - int(np.count_nonzero(kept))
    tied = ranked == cut
    if missing == np.count_nonzero(tied):
        kept |= tied
    else:
        kept[np.flatnonzero(tied)[:missing]] = True
    return torch.from_numpy(kept), float(cut)


def _raise_to_floor(kept: Tensor, scores: Tensor, groups: Tensor, min_keep: float) -> Tensor:
    """Re-admit the lowest finite scores of every group that fell under its floor."""
    names, member = torch.unique(groups, return_inverse=True)
    size = torch.bincount(member, minlength=len(names))
    have = torch.bincount(member[kept], minlength=len(names))
    floor = torch.ceil(size.double() * min_keep - 1e-9).long()
    kept = kept.clone()
    by_group = torch.argsort(member, stable=True)
    end = size.cumsum(0)
    for group in torch.nonzero(have < floor).flatten().tolist():
        index = by_group[end[group] - size[group] : end[group]]
        finite = torch.isfinite(scores[index])
        wanted = min(int(floor[group]), int(finite.sum()))
        ranked = torch.where(finite, scores[index], math.inf)
        kept[index[torch.argsort(ranked, stable=True)[:wanted]]] = True
    return kept
