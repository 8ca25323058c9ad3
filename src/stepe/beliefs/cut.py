"""Where a person cuts: how many labels are pointed out."""

import numpy as np

from stepe.beliefs.noise_model import Bools, Floats


def cut(suspicion: Floats, *, top: int | None = None, min_suspicion: float | None = None) -> Bools:
    """Choose the most suspicious labels: so many of them, those above a suspicion, or both.

    Of equally suspicious ones those of lower index are chosen; what nothing was learned of (NaN) is not.

    >>> cut(np.array([0.2, 0.9, np.nan, 0.6]), top=2).tolist()
    [False, True, False, True]
    >>> cut(np.array([0.2, 0.9, np.nan, 0.6]), min_suspicion=0.7).tolist()
    [False, True, False, False]
    """
    known = ~np.isnan(suspicion)
    chosen: Bools = known if min_suspicion is None else known & (np.nan_to_num(suspicion) >= min_suspicion)
    if top is None or np.count_nonzero(chosen) <= top:
        return chosen
    order = np.argsort(np.where(chosen, -suspicion, np.inf), kind="stable")
    kept = np.zeros(len(suspicion), dtype=np.bool_)
    kept[order[:top]] = True
    return kept
