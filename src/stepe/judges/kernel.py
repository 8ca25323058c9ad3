"""The kernel judge: what tables need. Ridge regression on random cosines beside the columns themselves."""

import numpy as np
from scipy.spatial.distance import pdist
from scipy.stats import rankdata
from sklearn.kernel_approximation import RBFSampler

from stepe.judges.base import Floats
from stepe.judges.blocks import Blocks
from stepe.judges.linear import on_few_axes, with_constant
from stepe.judges.ridge import Ridge

COSINES = 500
SHARPNESS = 1.125
"""width of the kernel, by the median distance of two rows"""
DISTANCES_OF = 1_000
"""rows between which distances are taken"""


def kernel(columns: Floats, blocks: Blocks, *, seed: int = 0) -> Ridge:
    """Make a kernel judge of standardised columns."""
    return Ridge("kernel", _with_cosines(standardised(columns), seed), blocks)


def rank_kernel(columns: Floats, blocks: Blocks, *, seed: int = 0) -> Ridge:
    """Make a kernel judge that sees of each number only its rank: long tails and outliers do not move it."""
    ranks = rankdata(columns, axis=0) / max(1, len(columns))
    return Ridge("ranks", _with_cosines(standardised(ranks), seed), blocks)


def standardised(columns: Floats) -> Floats:
    """Columns of mean 0 and standard deviation 1; constant ones are left out."""
    spread = columns.std(0)
    varying = spread > 1e-12 * np.maximum(1, np.abs(columns).max(0, initial=0))
    kept: Floats = columns[:, varying] - columns[:, varying].mean(0)
    kept /= spread[varying]
    return kept


def _with_cosines(columns: Floats, seed: int) -> Floats:
    if not columns.shape[1]:
        return with_constant(columns)
    rows = columns[np.linspace(0, len(columns) - 1, min(len(columns), DISTANCES_OF)).astype(np.int64)]
    typical = float(np.median(pdist(rows))) if len(rows) > 1 else 0.0
    sampler = RBFSampler(gamma=SHARPNESS / (typical or 1.0) ** 2, n_components=COSINES, random_state=seed)
    cosines = sampler.fit_transform(columns)
    few = on_few_axes(columns, seed=seed)
    return with_constant(np.hstack([cosines, few / np.sqrt(few.shape[1])]))
