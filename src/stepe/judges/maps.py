"""How rows of numbers become the columns of a ridge regression, in steps that new rows can take as well.

A step is fitted on rows without their labels, and turns each row by itself. It holds nothing but arrays, so that it can
be stored.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Protocol, Self

import numpy as np
from scipy.spatial.distance import pdist
from sklearn.kernel_approximation import RBFSampler

from stepe.judges.axes import FewAxes, Shapes, as_numbers
from stepe.judges.base import Floats

COSINES = 500
SHARPNESS = 1.125
"""width of the kernel, by the median distance of two rows"""
DISTANCES_OF = 1_000
"""rows between which distances are taken"""
MOST_RANKS = 20_000
"""of longer columns so many values are kept, evenly spread over the sorted ones"""


class Step(Protocol):
    """Turns rows of some numbers into rows of others."""

    name: ClassVar[str]
    shapes: ClassVar[Shapes]

    @property
    def takes(self) -> int:
        """How many columns it reads."""

    @property
    def gives(self) -> int:
        """How many columns it makes."""

    def __call__(self, rows: Any) -> Floats:
        """Turn rows, each by itself."""


Steps = Callable[[], Sequence[Step]]
"""asked only where the steps are wanted, since some are large"""


def no_steps() -> Sequence[Step]:
    """Return no step: the rows are used as they are."""
    return ()


@dataclass(frozen=True)
class OfLengthOne:
    """Rows shifted by the mean of those it was fitted on, and of length 1 then; a row at the mean stays there."""

    mean: Floats
    name: ClassVar[str] = "of length one"
    shapes: ClassVar[Shapes] = {"mean": ("columns",)}

    @classmethod
    def fit(cls, rows: Floats) -> Self:
        """Find the mean."""
        return cls(rows.mean(0, dtype=np.float64))

    @property
    def takes(self) -> int:
        """How many columns it reads."""
        return len(self.mean)

    gives = takes

    def __call__(self, rows: Any) -> Floats:
        """Turn rows, each by itself."""
        made: Floats = as_numbers(rows) - self.mean
        length = np.sqrt((made * made).sum(1, keepdims=True))
        made /= np.where(length > 0, length, 1)
        return made


@dataclass(frozen=True)
class Standardised:
    """Columns that had mean 0 and standard deviation 1 where it was fitted; constant ones are left out."""

    mean: Floats
    spread: Floats
    """the standard deviation of each column; 0 for those left out"""
    name: ClassVar[str] = "standardised"
    shapes: ClassVar[Shapes] = {"mean": ("columns",), "spread": ("columns",)}

    @classmethod
    def fit(cls, columns: Floats) -> Self:
        """Find the mean and the standard deviation."""
        spread = columns.std(0)
        varying = spread > 1e-12 * np.maximum(1, np.abs(columns).max(0, initial=0))
        return cls(columns.mean(0), np.where(varying, spread, 0))

    @property
    def takes(self) -> int:
        """How many columns it reads."""
        return len(self.mean)

    @property
    def gives(self) -> int:
        """How many columns vary."""
        return int(np.count_nonzero(self.spread))

    def __call__(self, rows: Any) -> Floats:
        """Turn rows, each by itself."""
        kept = np.flatnonzero(self.spread)
        made: Floats = as_numbers(rows)[:, kept] - self.mean[kept]
        made /= self.spread[kept]
        return made


@dataclass(frozen=True)
class Ranked:
    """Of each number the share of the rows it was fitted on that lie below; between two of those, a share between.

    Equal numbers share the mean of their ranks. A number beyond all others has the rank of the last of them.
    """

    values: Floats
    """some rows x columns: each column sorted"""
    ranks: Floats
    """the rank of each of these rows, as a share of all rows"""
    name: ClassVar[str] = "ranked"
    shapes: ClassVar[Shapes] = {"values": ("rows", "columns"), "ranks": ("rows",)}

    @classmethod
    def fit(cls, columns: Floats) -> Self:
        """Sort each column."""
        n = len(columns)
        kept = np.linspace(0, max(0, n - 1), min(n, MOST_RANKS)).round().astype(np.int64)
        return cls(np.sort(columns, axis=0)[kept], (kept + 1) / max(1, n))

    @property
    def takes(self) -> int:
        """How many columns it reads."""
        return int(self.values.shape[1])

    gives = takes

    def __call__(self, rows: Any) -> Floats:
        """Turn rows, each by itself."""
        rows = as_numbers(rows)
        made: Floats = np.zeros_like(rows)
        for column, (known, rank) in enumerate(self._points):
            made[:, column] = np.interp(rows[:, column], known, rank)
        return made

    @cached_property
    def _points(self) -> list[tuple[Floats, Floats]]:
        """Of each column, its different values and the rank of each."""
        points = []
        for column in self.values.T if len(self.values) else ():
            known, first, count = np.unique(column, return_index=True, return_counts=True)
            points.append((known, (self.ranks[first] + self.ranks[first + count - 1]) / 2))
        return points


@dataclass(frozen=True)
class WithCosines:
    """Random Fourier features of rows (Rahimi and Recht, 2007), beside the rows themselves on a few axes."""

    waves: Floats
    """columns x cosines"""
    offset: Floats
    directions: Floats
    """columns x axes; columns x 0 where the columns are few enough to stand as they are"""
    name: ClassVar[str] = "with cosines"
    shapes: ClassVar[Shapes] = {
        "waves": ("columns", "cosines"),
        "offset": ("cosines",),
        "directions": ("columns", "axes"),
    }

    @classmethod
    def fit(cls, columns: Floats, seed: int) -> Self:
        """Draw the waves, as long as rows are far from each other."""
        rows = columns[np.linspace(0, len(columns) - 1, min(len(columns), DISTANCES_OF)).astype(np.int64)]
        typical = float(np.median(pdist(rows))) if len(rows) > 1 else 0.0
        sampler = RBFSampler(gamma=SHARPNESS / (typical or 1.0) ** 2, n_components=COSINES, random_state=seed)
        sampler.fit(columns)
        axes = [step.directions for step in FewAxes(columns, seed).steps] or [np.zeros((columns.shape[1], 0))]
        return cls(sampler.random_weights_, sampler.random_offset_, *axes)

    @property
    def takes(self) -> int:
        """How many columns it reads."""
        return int(self.waves.shape[0])

    @property
    def gives(self) -> int:
        """How many cosines and axes there are."""
        return int(self.waves.shape[1]) + (int(self.directions.shape[1]) or self.takes)

    def __call__(self, rows: Any) -> Floats:
        """Turn rows, each by itself."""
        columns = as_numbers(rows)
        cosines: Floats = np.cos(columns @ self.waves + self.offset) * np.sqrt(2 / self.waves.shape[1])
        few = columns @ self.directions if self.directions.shape[1] else columns
        return np.hstack([cosines, few / np.sqrt(few.shape[1])])
