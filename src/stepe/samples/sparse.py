"""Rows of a SciPy sparse matrix as samples: a batch is made of their entries, never of a dense matrix."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from stepe.loop.randomness import Stream
from stepe.loop.task import View
from stepe.models.sparse import SparseRows


class SparseSamples:
    """Samples that are held in a CSR matrix."""

    def __init__(self, matrix: Any):
        self.matrix = matrix.tocsr()

    def __len__(self) -> int:
        return int(self.matrix.shape[0])

    def fetch(self, parts: Sequence[Tensor], stream: Stream, view: View) -> Iterator[SparseRows]:
        """Give the entries of the rows of each part."""
        for part in parts:
            yield entries(self.matrix[part.numpy()])


def entries(matrix: Any, dtype: torch.dtype = torch.float32) -> SparseRows:
    """Return columns and values of a CSR matrix, and where its rows start."""
    return (
        torch.from_numpy(matrix.indices.astype(np.int64)),
        torch.from_numpy(matrix.data).to(dtype),
        torch.from_numpy(matrix.indptr[:-1].astype(np.int64)),
    )


@dataclass(frozen=True)
class SparseScale:
    """Scales columns to at most 1 in size, and all of them so that rows have length 1 on average; zeros stay zeros."""

    factor: npt.NDArray[np.float64]

    @classmethod
    def fit(cls, matrix: Any) -> "SparseScale":
        """Find the factors from the training data."""
        largest = abs(matrix).max(axis=0).toarray().ravel()
        column = 1 / np.where(largest > 0, largest, 1)
        squares = float((matrix.multiply(column)).power(2).sum()) / matrix.shape[0]
        return cls(column / (squares**0.5 or 1.0))

    def encode(self, matrix: Any) -> Any:
        """Scale a CSR matrix."""
        return matrix.multiply(self.factor).tocsr()
