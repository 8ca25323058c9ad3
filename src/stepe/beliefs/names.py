"""What people call the samples, the classes and the labels."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from stepe.loop.kinds import LabelKind

Array = npt.NDArray[Any]
NONE = "(none)"
"""a sample without any mark"""


@dataclass(frozen=True)
class Names:
    """What people call the samples of one split."""

    ids: list[str]
    rows: list[int]
    """position in the source the samples were read from"""
    split: str = "train"
    groups: list[str] | None = None
    """what each belongs to, where that was said"""
    given: list[str] | None = None
    """the labels as the data has them, where people decided otherwise and training follows them"""
    status: list[str] | None = None
    """what they decided"""

    @classmethod
    def numbered(cls, n: int, split: str = "train") -> Self:
        """Row numbers, for data that brings no names."""
        return cls([str(row) for row in range(n)], list(range(n)), split)


def class_name(number: int, class_names: list[str]) -> str:
    """Return the name of a predicted class; nothing for -1, no prediction."""
    if number < 0:
        return ""
    # A model may have more outputs than the labels have classes.
    return class_names[number] if number < len(class_names) else str(number)


def given_names(kind: LabelKind, labels: Array, class_names: list[str]) -> list[str]:
    """Put the given labels into words."""
    if kind == "classes":
        return [class_names[label] for label in labels.tolist()]
    return number_names(labels) if kind == "numbers" else [_mark_names(row, class_names) for row in labels]


def turned_names(marks: Array, suggestion: Array, disagrees: Array, class_names: list[str]) -> list[str]:
    """Put rows of marks into words, the suggested one turned over where it disagrees; nothing for no suggestion."""
    turned = marks.astype(bool)
    turned[disagrees, suggestion[disagrees]] ^= True
    return [
        _mark_names(row, class_names) if known else ""
        for row, known in zip(turned, (suggestion >= 0).tolist(), strict=True)
    ]


def number_names(numbers: Array) -> list[str]:
    """Put numbers, or rows of them, into words; nothing where one is missing."""
    rows: Iterable[list[float]] = numbers.reshape(len(numbers), -1).tolist()
    return ["" if any(value != value for value in row) else " ".join(f"{value:.6g}" for value in row) for row in rows]


def _mark_names(marks: Array, class_names: list[str]) -> str:
    return ", ".join(class_name(number, class_names) for number in np.flatnonzero(marks).tolist()) or NONE
