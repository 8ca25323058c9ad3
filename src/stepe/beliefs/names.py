"""What people call the samples and the classes."""

from dataclasses import dataclass
from typing import Self


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
    """The name of a predicted class; nothing for -1, no prediction."""
    if number < 0:
        return ""
    # A model may have more outputs than the labels have classes.
    return class_names[number] if number < len(class_names) else str(number)
