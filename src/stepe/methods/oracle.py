"""The upper bound: plain training on the clean labels, which only a benchmark has."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from stepe.methods.plain import Plain


@dataclass
class Oracle(Plain):
    """Train plainly on clean labels, which come in place of the given ones."""

    name: ClassVar[str] = "oracle"
    summary: ClassVar[str] = "plain training on the clean labels: the upper bound"
    trains_on: ClassVar[Literal["given", "clean"]] = "clean"
