"""What a judge is asked and what it answers."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Settings = Mapping[str, float]
"""numbers that all rows share, such as a penalty or a temperature"""


@dataclass(frozen=True)
class View:
    """What a judge says of every row."""

    probability: Floats
    """rows x classes: how likely each class is, by the other rows alone; of the precision of the targets"""
    settings: Settings
    """what the judge chose for all rows; handed back to ``look``, it is not chosen again"""


class Judge(Protocol):
    """Gives every row a probability of each class, untouched by the row's own label."""

    @property
    def name(self) -> str:
        """What reports call it."""

    def look(self, weights: Floats, targets: Floats, settings: Settings | None = None) -> View:
        """Learn from some rows and judge all of them.

        Args:
            weights: how much each row counts; 0 means that nothing is learned from it. It is judged all the same.
            targets: rows x classes, each row a distribution: the given label, or what is believed in its place. Where
                double precision would not fit, they may be of single precision; the answer is, too.
            settings: what all rows share. By default the judge chooses it, by the likelihood of the rows that count.
        """


def one_hot(labels: npt.NDArray[np.int64], classes: int, dtype: npt.DTypeLike = np.float64) -> Floats:
    """Make targets that are certain.

    >>> one_hot(np.array([1, 0]), 3).tolist()
    [[0.0, 1.0, 0.0], [1.0, 0.0, 0.0]]
    """
    targets: Floats = np.zeros((len(labels), classes), dtype=dtype)
    targets[np.arange(len(labels)), labels] = 1
    return targets
