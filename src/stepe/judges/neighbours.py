"""The nearest neighbours of every row, by the angle between them."""

import numpy as np
import numpy.typing as npt

from stepe.errors import InputError

GRID = 2048
"""Rows of length 1 are rounded to this many steps. Products and sums are then whole numbers below 2 ** 24, exact in
single precision, whatever their order: chunks of any size find the same neighbours."""
PAIRS = 1 << 25
"""as many pairs of rows are compared at once, at about 20 bytes each"""


def nearest(features: npt.ArrayLike, k: int, chunk: int | None = None) -> npt.NDArray[np.int64]:
    """The ``k`` nearest other rows of each, nearest first; of equally near ones those of lower index.

    A row that is zero or not finite is as near to one as to the other.

    Args:
        features: n rows of numbers; the angle between two of them is their distance (cosine similarity).
        k: how many neighbours; all others, if there are no more.
        chunk: how many rows are compared with all others at once; by default as many as keep memory bounded.

    >>> nearest([[1.0, 0.0], [0.9, 0.1], [0.8, 0.2], [0.0, 1.0]], k=2).tolist()
    [[1, 2], [0, 2], [1, 0], [2, 1]]
    """
    rows = np.asarray(features, dtype=np.float32)
    n = len(rows)
    if rows.ndim != 2 or n < 2:
        raise InputError(f"features are of shape {rows.shape}; neighbours need two rows or more")
    if k < 1 or (chunk is not None and chunk < 1):
        raise InputError(f"k is {k} and chunk {chunk}; both must be 1 or more")
    k = min(k, n - 1)
    whole = _on_the_grid(rows)
    index = np.arange(n, dtype=np.int64)
    found = []
    for part in np.array_split(index, -(-n // (chunk or max(1, PAIRS // n)))):
        # Similarity first, then the index: no two are alike, so there is one order.
        rank = (whole[part] @ whole.T).astype(np.int64) * n - index
        rank[np.arange(len(part)), part] = np.iinfo(np.int64).min
        best = np.argpartition(rank, n - k, axis=1)[:, n - k :]
        order = np.argsort(-np.take_along_axis(rank, best, 1), axis=1)
        found.append(np.take_along_axis(best, order, 1))
    return np.concatenate(found)


def _on_the_grid(rows: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Rows of length 1, in whole steps; those without a direction are zero."""
    largest = np.abs(rows).max(1, keepdims=True)  # taken out first: squares of small numbers vanish
    with np.errstate(all="ignore"):
        scaled = rows / largest
        unit = scaled / np.sqrt((scaled * scaled).sum(1, keepdims=True))
        steps: npt.NDArray[np.float32] = np.round(unit * GRID)
    steps[~np.isfinite(steps).all(1)] = 0
    return steps
