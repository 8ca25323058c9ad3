"""Rows of numbers on their main axes, where there are more columns than a judge needs."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from scipy.sparse import csr_matrix, issparse
from sklearn.decomposition import TruncatedSVD

from stepe.judges.base import Floats

AXES = 800
"""as many columns are enough for a judge"""
FEW_ROWS = 1_500
"""with so few rows, their products are decomposed instead of the columns"""
LARGE = 1 << 22
"""axes of more numbers than this are kept in single precision"""

Shapes = Mapping[str, tuple[str, ...]]
"""of each array of a step, what it has along each dimension: the same word means as many"""


def as_numbers(rows: Any) -> Floats:
    """Return rows, which may be sparse, as plain numbers."""
    return np.asarray(rows.toarray() if issparse(rows) else rows, dtype=np.float64)


@dataclass(frozen=True)
class OnAxes:
    """Rows, which may be sparse, on a few axes of the space they are in."""

    directions: Floats
    """columns x axes; large ones are of single precision"""
    name: ClassVar[str] = "on axes"
    shapes: ClassVar[Shapes] = {"directions": ("columns", "axes")}

    @property
    def takes(self) -> int:
        """How many columns it reads."""
        return int(self.directions.shape[0])

    @property
    def gives(self) -> int:
        """How many axes there are."""
        return int(self.directions.shape[1])

    def __call__(self, rows: Any) -> Floats:
        """Turn rows, each by itself."""
        return np.asarray(rows @ self.directions, dtype=np.float64)


@dataclass(frozen=True)
class FewAxes:
    """Rows, which may be sparse, on their main axes if they have many columns; else as they are."""

    features: Any
    seed: int = 0
    most: int = AXES

    @cached_property
    def rows(self) -> Floats:
        """The rows on few axes. Dense ones of few columns are those that were given, whatever their precision."""
        if not self._many_columns:
            return as_numbers(self.features) if issparse(self.features) else np.asarray(self.features)
        if not self._few_rows:
            return np.asarray(self._svd[0])
        values, axes = self._of_products
        return axes * np.sqrt(values)

    @cached_property
    def steps(self) -> tuple[OnAxes, ...]:
        """What puts new rows on the same axes; found when it is asked for, since axes of many columns are large."""
        if not self._many_columns:
            return ()
        if not self._few_rows:
            return (OnAxes(_compact(self._svd[1])),)
        values, axes = self._of_products
        return (OnAxes(_compact(np.asarray(self.features.T @ (axes / np.sqrt(values))))),)

    @property
    def _few_rows(self) -> bool:
        return bool(self.features.shape[0] <= FEW_ROWS)

    @property
    def _many_columns(self) -> bool:
        return bool(self.features.shape[1] > self.most or (issparse(self.features) and self._few_rows))

    @cached_property
    def _of_products(self) -> tuple[Floats, Floats]:
        """The eigenvalues and axes of the rows' products, the largest first."""
        products = self.features @ self.features.T
        values, axes = np.linalg.eigh(as_numbers(products))
        kept = values > values.max(initial=0) * 1e-10
        return values[kept][::-1][: self.most], axes[:, kept][:, ::-1][:, : self.most]

    @cached_property
    def _svd(self) -> tuple[Floats, Floats]:
        """The rows on the axes, and the axes."""
        reduced = TruncatedSVD(self.most, n_iter=1, random_state=self.seed)
        return reduced.fit_transform(csr_matrix(self.features)), reduced.components_.T


def _compact(directions: Floats) -> Floats:
    return directions.astype(np.float32) if directions.size > LARGE else directions
