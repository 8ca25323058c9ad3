"""Rows that are left out together: copies of one input, or the rows of one patient."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from stepe.beliefs.parts import in_parts
from stepe.judges.base import Floats

Index = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Blocks:
    """A partition of the rows. A judge of a row has seen no other row of its block."""

    number: Index
    """the block of each row, from 0 on"""

    @classmethod
    def of_one_row(cls, n: int) -> Self:
        """Make every row a block of its own."""
        return cls(np.arange(n))

    @classmethod
    def by(cls, *keys: npt.NDArray[Any]) -> Self:
        """Put rows that agree in any of the keys into one block, and so rows that are linked by such rows.

        >>> Blocks.by(np.array(["a", "a", "b", "c"]), np.array([1, 2, 2, 3])).number.tolist()
        [0, 0, 0, 1]
        """
        from scipy.sparse import coo_matrix
        from scipy.sparse.csgraph import connected_components

        n, links = len(keys[0]), []
        for key in keys:
            _, first, group = np.unique(key, return_index=True, return_inverse=True)
            links.append(first[group.reshape(-1)])
        ends, rows = np.concatenate(links), np.tile(np.arange(n), len(keys))
        graph = coo_matrix((np.ones(len(rows), dtype=np.int8), (rows, ends)), shape=(n, n))
        return cls(connected_components(graph, directed=False)[1].astype(np.int64))

    @cached_property
    def count(self) -> int:
        """How many blocks there are."""
        return int(self.number.max()) + 1 if len(self.number) else 0

    @cached_property
    def sizes(self) -> Index:
        """How many rows each block has."""
        return np.bincount(self.number, minlength=self.count)

    @cached_property
    def _in_order(self) -> tuple[Index, Index]:
        """The rows, block by block, and where each block begins."""
        return np.argsort(self.number, kind="stable"), np.cumsum(self.sizes) - self.sizes

    def of_several_rows(self) -> Iterator[Index]:
        """Give the blocks of two rows or more, those of one size at once: blocks x rows of each."""
        order, begin = self._in_order
        for size in np.unique(self.sizes[self.sizes > 1]).tolist():
            yield order[begin[self.sizes == size][:, None] + np.arange(size)]

    def rows(self, chosen: npt.NDArray[Any]) -> Index:
        """Return all rows of the chosen blocks."""
        return np.flatnonzero(np.isin(self.number, chosen))

    def among(self, rows: Index) -> "Blocks":
        """Return the blocks of some of the rows alone."""
        return Blocks(np.unique(self.number[rows], return_inverse=True)[1].reshape(-1))


@dataclass(frozen=True)
class Frequencies:
    """How common each class is among the rows that count outside of a row's block.

    One row of each class is added, so that none is impossible.

    >>> two_rows = np.array([[1.0, 0.0], [0.0, 1.0]])
    >>> Frequencies(Blocks.of_one_row(2), np.ones(2), two_rows).around([0, 1]).round(2).tolist()
    [[0.33, 0.67], [0.67, 0.33]]
    """

    blocks: Blocks
    weights: Floats
    targets: Floats

    def around(self, rows: npt.ArrayLike) -> Floats:
        """Return the frequencies for some rows: rows x classes, in double precision."""
        rows = np.asarray(rows, dtype=np.int64)
        place, within = self._shared
        shared = place[self.blocks.number[rows]]
        own = np.where((shared >= 0)[:, None], within[shared], self.weights[rows, None] * self.targets[rows])
        outside: Floats = np.maximum(self._total - own, 0) + 1
        outside /= outside.sum(1, keepdims=True)
        return outside

    @cached_property
    def _total(self) -> Floats:
        total = np.zeros(self.targets.shape[1])
        for part in in_parts(*self.targets.shape):
            total += (self.weights[part, None] * self.targets[part]).sum(0)
        return total

    @cached_property
    def _shared(self) -> tuple[Index, Floats]:
        """The place of each block of several rows among those, else -1, and what its rows add up to."""
        several = np.flatnonzero(self.blocks.sizes > 1)
        place = np.full(self.blocks.count, -1)
        place[several] = np.arange(len(several))
        within = np.zeros((max(1, len(several)), self.targets.shape[1]), dtype=self.targets.dtype)
        rows = np.flatnonzero(place[self.blocks.number] >= 0)
        for part in in_parts(len(rows), self.targets.shape[1]):
            some = rows[part]
            np.add.at(within, place[self.blocks.number[some]], self.weights[some, None] * self.targets[some])
        return place, within
