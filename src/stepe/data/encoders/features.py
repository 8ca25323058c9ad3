"""Encodes rows of numbers."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from stepe.data.encoders.base import Array
from stepe.errors import InputError
from stepe.options.layout import DataKind


@dataclass(frozen=True)
class FeatureEncoder:
    """Shifts and scales numbers column by column."""

    kind: ClassVar[DataKind] = "features"
    center: list[float]
    scale: list[float]

    @classmethod
    def fit(cls, features: npt.NDArray[np.float64]) -> "FeatureEncoder":
        """Give every column the mean 0 and the deviation 1; a constant column becomes zero."""
        scale = features.std(0)
        return cls(features.mean(0).tolist(), np.where(scale > 0, scale, 1).tolist())

    @classmethod
    def identity(cls, width: int) -> "FeatureEncoder":
        """Leave numbers as they are."""
        return cls([0.0] * width, [1.0] * width)

    def encode(self, inputs: npt.NDArray[np.float64]) -> Array:
        """Standardise the rows."""
        if inputs.ndim != 2 or inputs.shape[1] != len(self.center):
            raise InputError(
                f"the features have shape {inputs.shape}; the model was trained on {len(self.center)} columns"
            )
        encoded: Array = (inputs - np.asarray(self.center)) / np.asarray(self.scale)
        return encoded.astype(np.float32)
