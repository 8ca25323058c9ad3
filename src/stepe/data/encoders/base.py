"""What every encoder is."""

from typing import Any, ClassVar, Protocol

import numpy.typing as npt

from stepe.options.layout import DataKind

Array = npt.NDArray[Any]


class Encoder(Protocol):
    """Turns raw inputs of one kind into an array with a row for each sample. It is a dataclass of plain JSON."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def kind(self) -> DataKind:
        """The kind of data that it encodes."""
        ...

    def encode(self, inputs: Any) -> Array:
        """Encode inputs as a network takes them."""
        ...
