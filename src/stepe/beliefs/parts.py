"""Large arrays of rows x classes, a part of the rows at a time: what is computed of them in between stays small."""

from collections.abc import Iterator

CELLS = 1 << 22
"""cells of an array of double precision that are worked on at once"""


def in_parts(rows: int, classes: int, cells: int = CELLS) -> Iterator[slice]:
    """Split rows into parts of a bounded number of cells.

    >>> list(in_parts(5, 10, cells=20))
    [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    """
    step = max(1, cells // max(1, classes))
    for start in range(0, rows, step):
        yield slice(start, min(rows, start + step))
