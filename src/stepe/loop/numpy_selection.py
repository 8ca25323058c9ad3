"""Which rows to keep, given their scores and a drop fraction: the rule of :mod:`stepe.loop.selection`, in numpy.

Slow and plain, for rounds of judges: they are few, and judges do not need torch.
"""

import math

import numpy as np
import numpy.typing as npt

from stepe.loop.schedule import check_drop_fraction

Scores = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


def keep_count(n: int, drop_fraction: float) -> int:
    """Count how many of n samples stay. The epsilon keeps 0.3 * 10 from losing a sample to rounding."""
    return n - math.floor(drop_fraction * n + 1e-9)


def keep_lowest(
    scores: Scores,
    drop_fraction: float,
    *,
    groups: npt.NDArray[np.int64] | None = None,
    min_keep: float = 0.0,
    trusted: Bools | None = None,
) -> Bools:
    """Keep the rows with the lowest scores, and those that are trusted.

    Of equal scores those of lower index are kept; scores that are not finite go first. ``min_keep`` is the share of
    every group that stays whatever its scores are.

    >>> keep_lowest(np.array([0.1, 2.0, 0.3, np.nan]), 0.5).tolist()
    [True, False, True, False]
    """
    check_drop_fraction(drop_fraction)
    n, finite = len(scores), np.isfinite(scores)
    if trusted is not None:
        lowest = scores.min(initial=np.inf, where=finite)
        scores = np.where(trusted, lowest - 1 if math.isfinite(lowest) else 0.0, scores)
        drop_fraction, finite = min(drop_fraction, float((~trusted).mean())), np.isfinite(scores)
    lowest_first = np.argsort(np.where(finite, scores, np.inf), kind="stable")[: np.count_nonzero(finite)]
    kept = np.zeros(n, dtype=np.bool_)
    kept[lowest_first[: keep_count(n, drop_fraction)]] = True
    if groups is not None and min_keep > 0:
        for group in np.unique(groups):
            floor = math.ceil(np.count_nonzero(groups == group) * min_keep - 1e-9)
            if np.count_nonzero(kept & (groups == group)) < floor:
                kept[lowest_first[groups[lowest_first] == group][:floor]] = True
    return kept
