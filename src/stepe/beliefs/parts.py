"""Rows in parts, so that what is computed in double precision at once stays small.

Rows x classes may be large, so an answer has the precision of what it was made from (a caller hands single precision
where double would not fit), and is filled part by part.
"""

from collections.abc import Iterator

CELLS = 1 << 21
"""as many numbers are worked on at once"""


def in_parts(rows: int, width: int, cells: int | None = None) -> Iterator[slice]:
    """Split rows of so many numbers into parts of a bounded number of cells, one row at least.

    >>> list(in_parts(5, 10, cells=20))
    [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    """
    step = max(1, (CELLS if cells is None else cells) // max(1, width))
    for start in range(0, rows, step):
        yield slice(start, min(rows, start + step))
