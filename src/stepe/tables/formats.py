"""Which format a path has: the one door to all tables."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from stepe.errors import InputError
from stepe.tables import delimited, jsonl, npz, parquet, spreadsheet
from stepe.tables.batches import to_rows
from stepe.tables.edit import Edits

if TYPE_CHECKING:
    import pyarrow as pa


class Format(Protocol):
    """The functions that the module of a format has."""

    SUFFIXES: tuple[str, ...]
    """how the names of such files end"""

    def read(self, path: Path, encoding: str) -> "Iterator[pa.RecordBatch]":
        """Read the rows in batches of one schema; no rows give no batch. ``encoding`` is that of text."""
        ...

    def rewrite(self, source: Path, target: Path, edits: Edits, encoding: str) -> None:
        """Write a file again with some of it edited and all else as it was."""
        ...


_ALL: tuple[Format, ...] = (delimited, jsonl, parquet, npz, spreadsheet)
FORMATS = {suffix: module for module in _ALL for suffix in module.SUFFIXES}
"""the formats by how a file's name ends, in small letters"""


def format_of(path: Path) -> Format | None:
    """Return the format of a file by its name; ``None`` where it is no table."""
    return FORMATS.get(path.suffix.lower())


def rewritten_suffix(path: Path) -> str:
    """Return how the name of a file ends when it is written again."""
    return spreadsheet.REWRITTEN if path.suffix.lower() in spreadsheet.SUFFIXES else path.suffix


def read(path: Path, encoding: str = "utf-8") -> "Iterator[pa.RecordBatch]":
    """Read the rows of a table, in batches of one schema.

    Cells of text stay text: ``007`` is no number here, and ``NA`` a class like any other.
    """
    try:
        yield from FORMATS[path.suffix.lower()].read(path, encoding)
    except UnicodeEncodeError as error:  # JSON can name half of a character
        raise InputError(f"{path} holds {error.object!r}, which is no text ({error.reason}); remove it") from error
    except UnicodeError as error:
        with path.open("rb") as file:
            other = "utf-16" if file.read(2) in (b"\xff\xfe", b"\xfe\xff") else "latin1"
        raise InputError(
            f"{path} is not {encoding} ({error}); name its encoding, for example --encoding {other}"
        ) from error
    except (OSError, MemoryError) as error:
        raise InputError(f"{path} cannot be read: {error}") from error


def read_rows(path: Path, encoding: str = "utf-8") -> Iterator[dict[str, Any]]:
    """Read the rows of a table one by one, as dictionaries."""
    for batch in read(path, encoding):
        yield from to_rows(batch)
