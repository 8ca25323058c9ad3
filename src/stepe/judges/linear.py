"""The linear judge: what features and texts need."""

from typing import Any

import numpy as np
from scipy.sparse import csr_matrix, issparse
from sklearn.decomposition import TruncatedSVD

from stepe.judges.base import Floats
from stepe.judges.blocks import Blocks
from stepe.judges.ridge import Ridge

AXES = 800
"""as many columns are enough for a judge"""
FEW_ROWS = 1_500
"""with so few rows, their products are decomposed instead of the columns"""


def linear(features: Any, blocks: Blocks, *, seed: int = 0) -> Ridge:
    """Make a linear judge of rows of numbers, which may be sparse; one may have more columns than rows."""
    return Ridge("linear", with_constant(unit_rows(on_few_axes(features, seed=seed))), blocks)


def on_few_axes(features: Any, *, most: int = AXES, seed: int = 0) -> Floats:
    """Put rows of numbers on their main axes, where there are more columns than a judge needs."""
    n, columns = features.shape
    if columns <= most and not issparse(features):
        return np.asarray(features, dtype=np.float64)
    if n <= FEW_ROWS:
        values, axes = np.linalg.eigh(np.asarray(_products(features)))
        kept = values > values.max(initial=0) * 1e-10
        largest_first: Floats = (axes[:, kept] * np.sqrt(values[kept]))[:, ::-1]
        return largest_first[:, :most]
    if columns <= most:
        return np.asarray(features.toarray(), dtype=np.float64)
    reduced: Floats = TruncatedSVD(most, n_iter=1, random_state=seed).fit_transform(csr_matrix(features))
    return reduced


def _products(features: Any) -> Any:
    products = features @ features.T
    return products.toarray() if issparse(products) else products


def unit_rows(rows: Floats) -> Floats:
    """Shift rows to their mean and scale each to length 1; a row at the mean stays there."""
    centred: Floats = rows - rows.mean(0)
    length = np.sqrt((centred * centred).sum(1, keepdims=True))
    centred /= np.where(length > 0, length, 1)
    return centred


def with_constant(rows: Floats) -> Floats:
    """Put a column of ones beside the others."""
    return np.hstack([rows, np.ones((len(rows), 1))])
