"""Encodes pictures."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from stepe.data.encoders.base import Array
from stepe.options.layout import DataKind

AT_ONCE = 1024
"""pictures that are measured at once"""


@dataclass(frozen=True)
class ImageEncoder:
    """Leaves pictures as the bytes they are, and knows the size, means and deviations that a network asks for."""

    kind: ClassVar[DataKind] = "images"
    size: int
    mean: list[float]
    std: list[float]

    @classmethod
    def fit(cls, pictures: Array) -> "ImageEncoder":
        """Measure each channel of the pictures, with their bytes as numbers in [0, 1]."""
        # Sums of whole numbers, exact in any order: a float copy of all pictures would be large.
        count = pictures[:, 0].size
        total, squares = np.zeros(pictures.shape[1], np.int64), np.zeros(pictures.shape[1], np.int64)
        for start in range(0, len(pictures), AT_ONCE):
            part = pictures[start : start + AT_ONCE].astype(np.int64)
            total += part.sum((0, 2, 3))
            squares += np.square(part).sum((0, 2, 3))
        mean = total / count
        std = np.sqrt(np.maximum(1, squares / count - np.square(mean)))
        return cls(pictures.shape[-1], (mean / 255).tolist(), (std / 255).tolist())

    def encode(self, inputs: Array) -> Array:
        """Return the bytes; training and prediction normalise them batch by batch."""
        return inputs
