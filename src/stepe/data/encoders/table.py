"""Encodes the rows of tables."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from stepe.data.columns import cells, column_type, date_parts, numbers_of
from stepe.data.encoders.base import Array
from stepe.errors import InputError
from stepe.options.layout import DataKind

if TYPE_CHECKING:
    import pandas as pd

Floats = npt.NDArray[np.float64]

CATEGORIES = 1000
QUANTILES = 101


@dataclass(frozen=True)
class ColumnCode:
    """The encoding of one column of a table."""

    name: str
    type: str
    """number, date or category"""
    quantiles: list[list[float]]
    """those of a number, or of each part of a date, among the training values"""
    gaps: bool
    """whether training values were missing: if so, a number beside each value says whether it is missing"""
    categories: list[str]
    """category i has the code i + 1; 0 is anything else"""

    @property
    def width(self) -> int:
        """How many numbers the column becomes, besides a code."""
        return len(self.quantiles) + self.gaps


@dataclass(frozen=True)
class TableEncoder:
    """Turns a row into the places of its numbers and dates among the training values, then the codes of its categories.

    A place among others is in [-1, 1] whatever the unit, and no outlier can blow it up.
    """

    kind: ClassVar[DataKind] = "table"
    columns: list[ColumnCode]

    @classmethod
    def fit(cls, table: "pd.DataFrame") -> "TableEncoder":
        """Find out what each column holds; columns with nothing to tell are left out."""
        columns = [_fit_column(str(name), table[name]) for name in table.columns]
        return cls([column for column in columns if column is not None])

    @property
    def numbers(self) -> int:
        """How many numbers stand in a row before the codes."""
        return sum(column.width for column in self.columns)

    @property
    def codes(self) -> list[int]:
        """How many codes each categorical column has."""
        return [len(column.categories) + 1 for column in self.columns if column.type == "category"]

    def encode(self, inputs: "pd.DataFrame") -> Array:
        """Encode each row as a row of floats; codes are whole numbers, exact in a float."""
        if missing := [column.name for column in self.columns if column.name not in inputs.columns]:
            raise InputError(f"the table has no column {', '.join(map(repr, missing))}, which the model was trained on")
        numbers: list[npt.NDArray[np.float32]] = []
        codes: list[npt.NDArray[np.float32]] = []
        for column in self.columns:
            values = inputs[column.name]
            if column.type == "category":
                code = {category: i + 1 for i, category in enumerate(column.categories)}
                codes.append(np.array([code.get(text, 0) for text in cells(values)], dtype=np.float32))
                continue
            parts = date_parts(values) if column.type == "date" else [numbers_of(values)]
            for part, quantiles in zip(parts, column.quantiles, strict=True):
                place = np.interp(part, quantiles, np.linspace(-1, 1, len(quantiles)))
                numbers.append(np.where(np.isnan(part), 0, place).astype(np.float32))
            if column.gaps:
                numbers.append(np.isnan(parts[0]).astype(np.float32))
        if not numbers and not codes:
            return np.zeros((len(inputs), 0), dtype=np.float32)
        return np.stack([*numbers, *codes], axis=1)

    def spread(self, encoded: Array) -> Floats:
        """Turn encoded rows into numbers alone: numbers in their own units, a column for each category.

        A missing number is the median. Values beyond those that the encoder was fitted on are the nearest of them.
        """
        parts: list[Floats] = []
        place, code = 0, self.numbers
        for column in self.columns:
            for quantiles in column.quantiles:
                steps = np.linspace(-1, 1, len(quantiles))
                parts.append(np.interp(encoded[:, place], steps, quantiles)[:, None])
                place += 1
            if column.gaps:
                parts.append(encoded[:, place, None].astype(np.float64))
                place += 1
            if column.type == "category":
                parts.append((encoded[:, code, None] == 1 + np.arange(len(column.categories))).astype(np.float64))
                code += 1
        return np.hstack(parts) if parts else np.zeros((len(encoded), 0))


def _fit_column(name: str, values: "pd.Series[Any]") -> ColumnCode | None:
    type_ = column_type(values)
    if type_ == "category":
        texts = np.array([text for text in cells(values) if text], dtype=object)
        found, counts = np.unique(texts, return_counts=True) if len(texts) else (texts, np.zeros(0, np.int64))
        if len(found) < 2 and len(texts) == len(values):
            return None
        order = np.argsort(-counts, kind="stable")[:CATEGORIES]
        return ColumnCode(name, type_, [], False, [str(found[i]) for i in order]) if len(found) else None
    parts = date_parts(values) if type_ == "date" else [numbers_of(values)]
    gaps = bool(np.isnan(parts[0]).any())
    steps = np.linspace(0, 1, QUANTILES)
    quantiles = [np.quantile(part[~np.isnan(part)], steps).tolist() for part in parts if not np.isnan(part).all()]
    if len(quantiles) < len(parts) or (not gaps and all(q[0] == q[-1] for q in quantiles)):
        return None
    return ColumnCode(name, type_, quantiles, gaps, [])
