"""Which labels are pointed out: those more likely wrong than right, or as many as a person decides."""

import numpy as np
import numpy.typing as npt

from stepe.beliefs.believe import FLAGGED


def cut(
    suspicion: npt.ArrayLike, *, top: int | None = None, min_suspicion: float | None = None
) -> npt.NDArray[np.bool_]:
    """Choose the most suspicious labels; of equally suspicious ones, those that come first.

    Args:
        suspicion: of each label, how likely it is wrong; one of which nothing is known (NaN) is never chosen.
        top: so many, or all there are. Labels of classes that are hardly recognised, and those of rows that tell
            nothing, are at most as likely wrong as right, and come last.
        min_suspicion: those at least so suspicious; with ``top``, at most so many of them.

    Without either, labels are chosen that are more likely wrong than right.

    >>> suspicion = [0.9, 0.2, float("nan"), 0.6, 0.6]
    >>> cut(suspicion).tolist()
    [True, False, False, True, True]
    >>> cut(suspicion, top=2).tolist()
    [True, False, False, True, False]
    >>> cut(suspicion, min_suspicion=0.7).tolist()
    [True, False, False, False, False]
    """
    suspicion = np.asarray(suspicion, dtype=np.float64)
    if top is None and min_suspicion is None:
        return suspicion > FLAGGED
    chosen = suspicion >= (0.0 if min_suspicion is None else min_suspicion)
    if top is not None:
        first = np.argsort(np.where(chosen, -suspicion, np.inf), kind="stable")[:top]
        chosen &= np.isin(np.arange(len(suspicion)), first)
    return chosen
