"""What a sample's neighbours think: the mean guess of those that a model represents most alike."""

import torch
import torch.nn.functional as F
from torch import Tensor

from stepe.errors import InputError

GRID = 2048
"""Representations of length 1 are rounded to this many steps. Products and sums are then whole numbers below 2 ** 24,
exact in single precision, and in TF32, whatever their order: chunks of any size find the same neighbours."""
PAIRS = 1 << 25
"""as many pairs of samples are compared at once, at about 20 bytes each"""


def vote(features: Tensor, guess: Tensor, k: int = 100, chunk: int | None = None) -> Tensor:
    """For each sample, the mean guess of its ``k`` nearest neighbours; one row per sample, in single precision.

    Args:
        features: n rows of a representation; the angle between two of them is their distance (cosine similarity).
        guess: n rows, such as probabilities of classes.
        k: how many neighbours; all others, if there are no more.
        chunk: how many samples are compared with all others at once; by default as many as keep memory bounded.

    >>> features = torch.tensor([[1.0, 0.0], [0.9, 0.1], [0.8, 0.2], [0.0, 1.0]])
    >>> vote(features, torch.eye(4), k=2)
    tensor([[0.0000, 0.5000, 0.5000, 0.0000],
            [0.5000, 0.0000, 0.5000, 0.0000],
            [0.5000, 0.5000, 0.0000, 0.0000],
            [0.0000, 0.5000, 0.5000, 0.0000]])
    """
    if len(guess) != len(features):
        raise InputError(f"there are {len(guess)} guesses for {len(features)} representations; give one for each")
    neighbours = nearest(features, k, chunk).to(guess.device)
    total = torch.zeros(guess.shape, dtype=torch.float32, device=guess.device)
    for column in neighbours.unbind(1):  # one after the other: n x k x classes numbers at once would be too many
        total += guess[column]
    return total / neighbours.shape[1]


def nearest(features: Tensor, k: int, chunk: int | None = None) -> Tensor:
    """The ``k`` nearest other samples of each, nearest first; of equally near ones those of lower index.

    A representation that is zero or not finite is as near to one as to the other.
    """
    n = len(features)
    if features.ndim != 2 or n < 2:
        raise InputError(f"representations are of shape {tuple(features.shape)}; neighbours need two rows or more")
    if k < 1 or (chunk is not None and chunk < 1):
        raise InputError(f"k is {k} and chunk {chunk}; both must be 1 or more")
    k = min(k, n - 1)
    whole = torch.round(F.normalize(features.float(), dim=1).nan_to_num(0.0) * GRID)
    index = torch.arange(n, device=features.device)
    found = []
    for part in torch.split(index, chunk or max(1, PAIRS // n)):
        # Similarity first, then the index: no two are alike, so any device sorts them in one way.
        rank = (whole[part] @ whole.T).to(torch.int64) * n - index
        rank[torch.arange(len(part), device=features.device), part] = torch.iinfo(torch.int64).min
        found.append(rank.topk(k).indices)
    return torch.cat(found)
