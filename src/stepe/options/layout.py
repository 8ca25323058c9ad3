"""The layout of people's data: where labels and inputs lie in it, and how it is read and split."""

from dataclasses import dataclass
from typing import Literal

from stepe.errors import InputError

DataKind = Literal["images", "text", "table", "features"]
"""what a sample is: a picture, a text, a row of a table with columns of any type, or a row of numbers"""
HOLD_OUT = 0.2
"""the share of each class that is held out by default"""
MOST_HELD_OUT = 0.9
"""a larger share would leave too little to train on"""


@dataclass(frozen=True)
class Layout:
    """Where things lie in people's data, and how it is to be read and split."""

    label: str | None = None
    text: str | None = None
    image: str | None = None
    features: tuple[str, ...] | None = None
    id: str | None = None
    trusted: str | None = None
    group: str | None = None
    split_by: str | None = None
    holdout: float | None = None
    """share of each class that is held out; ``None``: as much as whoever learns needs"""
    test: str | None = None
    encoding: str = "utf-8"
    image_size: int | None = None
    model: str | None = None

    @property
    def columns(self) -> dict[str, str]:
        """The columns that were named, by option."""
        named = {name: getattr(self, name) for name in ("label", "text", "image", "id", "trusted", "group", "split_by")}
        return {f"--{name.replace('_', '-')}": column for name, column in named.items() if column is not None}

    def check_no_columns(self, name: str) -> None:
        """Refuse names of columns where there are none."""
        if given := [*self.columns, *(["--features"] if self.features else [])]:
            raise InputError(f"{name} has no columns; leave {' and '.join(given)} out")

    @property
    def inputs_kind(self) -> DataKind:
        """Of a table's inputs, by the columns that were named."""
        given: dict[DataKind, object] = {"text": self.text, "images": self.image, "features": self.features}
        named = [kind for kind, column in given.items() if column]
        if len(named) > 1:
            raise InputError("give one of --text, --image and --features, or none of them to learn from all columns")
        return named[0] if named else "table"
