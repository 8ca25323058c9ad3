"""The model that a ridge judge hands over: what it says of new rows."""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from stepe.errors import InputError
from stepe.judges.base import Floats
from stepe.judges.likelihood import softmax
from stepe.judges.row_map import Arrays, RowMap

OWN = ("coefficients", "temperature")


@dataclass(frozen=True)
class RidgeModel:
    """A map of rows, coefficients, and the temperature at which scores become probabilities."""

    map: RowMap
    coefficients: Floats
    """columns x classes"""
    temperature: float

    def predict(self, rows: Any) -> Floats:
        """Return how likely each class is for new rows, which may be sparse: rows x classes."""
        score: Floats = self.map(rows) @ self.coefficients
        return softmax(score, self.temperature, out=score)

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Return all of the model as plain arrays by name, to be stored."""
        own = {"coefficients": self.coefficients, "temperature": np.array([self.temperature])}
        return own | self.map.arrays()

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> Self:
        """Make the model of :meth:`arrays` again; refuse arrays that are no such model."""
        for name, array in arrays.items():
            if array.dtype not in (np.float32, np.float64) or not np.isfinite(array).all():
                raise InputError(f"{name!r} of the model has to hold finite numbers of 32 or 64 bits")
        if missing := [name for name in OWN if name not in arrays]:
            raise InputError(f"the model lacks its {missing[0]}")
        coefficients, temperature = (arrays[name] for name in OWN)
        if temperature.shape != (1,) or temperature[0] <= 0:
            raise InputError(f"the temperature of the model is {temperature.tolist()}; it has to be one number above 0")
        row_map = RowMap.from_arrays({name: array for name, array in arrays.items() if name not in OWN})
        if coefficients.ndim != 2 or len(coefficients) != row_map.gives:
            raise InputError(f"coefficients are of shape {coefficients.shape}; the map makes {row_map.gives} columns")
        return cls(row_map, coefficients.astype(np.float64), float(temperature[0]))
