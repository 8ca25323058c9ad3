"""Rows in parts, so that what is computed in double precision at once stays small.

Rows x classes may be large, so an answer has the precision of the targets it was made from (a caller hands single
precision where double would not fit), and is filled part by part.
"""

from collections.abc import Iterator

CELLS = 1 << 21
"""as many numbers are worked on at once"""


def chunks(n: int, width: int, cells: int = CELLS) -> Iterator[slice]:
    """Split ``n`` rows of ``width`` numbers into parts of a bounded number of cells, one row at least.

    >>> [(part.start, part.stop) for part in chunks(5, 10, cells=20)]
    [(0, 2), (2, 4), (4, 5)]
    """
    step = max(1, cells // max(1, width))
    for start in range(0, n, step):
        yield slice(start, min(start + step, n))
