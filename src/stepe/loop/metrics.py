"""Accuracy, and how well the dropped set and the scores find the noise.

The truth, where a benchmark has it, lives in :class:`Truth`, and only the functions of this file receive it: no
method, probe, plan or engine ever sees it.
"""

from dataclasses import dataclass

import numpy as np
from torch import Tensor

from stepe.errors import InputError


@dataclass(frozen=True)
class Truth:
    """Which samples are corrupted; known for benchmarks only."""

    noisy: Tensor
    """bool, one per training sample"""
    labels: Tensor | None = None
    """the clean labels, for saying whether a suggestion was right"""

    @classmethod
    def from_labels(cls, given: Tensor, clean: Tensor) -> "Truth":
        """The truth about label noise."""
        if given.shape != clean.shape:
            raise InputError(f"there are {len(clean)} clean labels for {len(given)} given ones")
        return cls(given != clean, clean)


@dataclass(frozen=True)
class Detection:
    """Quality of a set of suspects; noisy is the positive class."""

    precision: float
    recall: float
    f1: float


def detection(suspected: Tensor, noisy: Tensor) -> Detection:
    """Precision, recall and F1 of a suspected set; a ratio with nothing below it counts as 0.

    >>> import torch
    >>> detection(torch.tensor([True, True, False]), torch.tensor([True, False, False]))
    Detection(precision=0.5, recall=1.0, f1=0.6666666666666666)
    """
    suspected, noisy = suspected.bool().cpu(), noisy.bool().cpu()
    hits = int((suspected & noisy).sum())
    n_suspected, n_noisy = int(suspected.sum()), int(noisy.sum())
    return Detection(
        precision=hits / n_suspected if n_suspected else 0.0,
        recall=hits / n_noisy if n_noisy else 0.0,
        f1=2 * hits / (n_suspected + n_noisy) if n_suspected + n_noisy else 0.0,
    )


def auroc(scores: Tensor, noisy: Tensor) -> float | None:
    """Chance that a noisy sample scores above a clean one, ties counting half; ``None`` without both kinds.

    Scores that are not finite rank highest, as the selection treats them.

    >>> import torch
    >>> auroc(torch.tensor([0.1, 0.9, 0.5]), torch.tensor([False, True, False]))
    1.0
    """
    values = scores.detach().double().cpu().numpy()
    values = np.where(np.isfinite(values), values, np.inf)
    positive = noisy.bool().cpu().numpy()
    n_positive, n_negative = int(positive.sum()), int((~positive).sum())
    if not n_positive or not n_negative:
        return None
    _, group, count = np.unique(values, return_inverse=True, return_counts=True)
    last_rank = np.cumsum(count)
    mean_rank = last_rank - (count - 1) / 2
    rank_sum = float(mean_rank[group][positive].sum())
    return (rank_sum - n_positive * (n_positive + 1) / 2) / (n_positive * n_negative)


def accuracy(predictions: Tensor, labels: Tensor) -> float:
    """Share of predictions that equal the labels."""
    return float((predictions.cpu() == labels.cpu()).double().mean())
