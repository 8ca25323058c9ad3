"""Accuracy, and how well the dropped set and the scores find the noise.

The truth, where a benchmark has it, lives in :class:`Truth`, and only the functions of this file receive it: no
method, probe, plan or engine ever sees it. Plain numpy.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from stepe.errors import InputError


class Truth:
    """What only a benchmark knows: which samples are corrupted, and perhaps their clean labels.

    Args:
        noisy: for each training sample, whether it is corrupted.
        labels: the clean labels, which say whether a suggestion is right.
    """

    def __init__(self, noisy: npt.ArrayLike, labels: npt.ArrayLike | None = None):
        self.noisy = np.asarray(noisy, dtype=bool)
        self.labels = None if labels is None else np.asarray(labels)

    @classmethod
    def from_labels(cls, given: npt.ArrayLike, clean: npt.ArrayLike) -> "Truth":
        """Make the truth about labels that somebody gave: those that differ from the clean ones are wrong."""
        given, clean = np.asarray(given), np.asarray(clean)
        if given.shape != clean.shape:
            raise InputError(f"there are {len(clean)} clean labels for {len(given)} given ones")
        return cls(given != clean, clean)

    @property
    def rate(self) -> float:
        """The share of the samples that are corrupted."""
        return float(self.noisy.mean())


@dataclass(frozen=True)
class Detection:
    """Quality of a set of suspects; noisy is the positive class."""

    precision: float
    recall: float
    f1: float


def detection(suspected: npt.ArrayLike, noisy: npt.ArrayLike) -> Detection:
    """Measure precision, recall and F1 of a suspected set; a ratio with nothing below it counts as 0.

    >>> detection([True, True, False], [True, False, False])
    Detection(precision=0.5, recall=1.0, f1=0.6666666666666666)
    """
    suspected, noisy = np.asarray(suspected, dtype=bool), np.asarray(noisy, dtype=bool)
    hits = int((suspected & noisy).sum())
    n_suspected, n_noisy = int(suspected.sum()), int(noisy.sum())
    return Detection(
        precision=hits / n_suspected if n_suspected else 0.0,
        recall=hits / n_noisy if n_noisy else 0.0,
        f1=2 * hits / (n_suspected + n_noisy) if n_suspected + n_noisy else 0.0,
    )


def auroc(scores: npt.ArrayLike, noisy: npt.ArrayLike) -> float | None:
    """Measure the chance that a noisy sample scores above a clean one, ties counting half; ``None`` without both kinds.

    Scores that are not finite rank highest, as the selection treats them.

    >>> auroc([0.1, 0.9, 0.5], [False, True, False])
    1.0
    """
    values = np.asarray(scores, dtype=np.float64)
    values = np.where(np.isfinite(values), values, np.inf)
    positive = np.asarray(noisy, dtype=bool)
    n_positive, n_negative = int(positive.sum()), int((~positive).sum())
    if not n_positive or not n_negative:
        return None
    _, group, count = np.unique(values, return_inverse=True, return_counts=True)
    last_rank = np.cumsum(count)
    mean_rank = last_rank - (count - 1) / 2
    rank_sum = float(mean_rank[group][positive].sum())
    return (rank_sum - n_positive * (n_positive + 1) / 2) / (n_positive * n_negative)


def accuracy(predictions: npt.ArrayLike, labels: npt.ArrayLike) -> float:
    """Measure the share of predictions that equal the labels."""
    return float(np.mean(np.asarray(predictions) == np.asarray(labels)))
