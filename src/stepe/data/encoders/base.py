"""What every encoder is."""

from typing import Any, ClassVar, Literal, Protocol

import numpy.typing as npt

Array = npt.NDArray[Any]
DataKind = Literal["images", "text", "table", "features"]
"""what a sample is: a picture, a text, a row of a table with columns of any type, or a row of numbers"""


class Encoder(Protocol):
    """Turns raw inputs of one kind into an array with a row for each sample. It is a dataclass of plain JSON."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def kind(self) -> DataKind:
        """What kind of data it encodes."""
        ...

    def encode(self, inputs: Any) -> Array:
        """The inputs as a network takes them."""
        ...
