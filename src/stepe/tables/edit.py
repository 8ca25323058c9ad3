"""What becomes of the rows of a table that is written again, and what formats of values share in doing so."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from stepe.errors import RunError
from stepe.tables.cells import same_label

Cell = bool | str | float | None


@dataclass(frozen=True)
class Edit:
    """The edit of one row."""

    dropped: bool = False
    label: str | None = None
    """what the cell in the edited column becomes; ``None``: it stays"""
    added: tuple[Cell, ...] = ()
    """its cells in the columns that are added"""


class Edits(Protocol):
    """The edits of all rows of a table."""

    column: str
    """the one column in which cells are edited"""
    added: dict[str, type]
    """further columns, and what is in them: ``bool``, ``str`` or ``float``"""

    def of(self, row: int, found: object) -> Edit:
        """Say what happens to a row in whose column that cell was found; rows are asked for in turn, from 0 on."""
        ...

    def changed(self, what: str) -> Exception:
        """Make the error that says that the table is not the one that the edits are for."""
        ...


def free_names(names: Iterable[str], taken: Iterable[str]) -> list[str]:
    """Return the names, numbered where the table has one of them already.

    >>> free_names(["stepe_flagged", "stepe_suggested"], {"id", "stepe_flagged"})
    ['stepe_flagged_2', 'stepe_suggested_2']
    """
    wanted, used = list(names), set(taken)
    number, found = 1, wanted
    while used & set(found):
        number += 1
        found = [f"{name}_{number}" for name in wanted]
    return found


def edit_values(values: list[Any], edits: Edits, path: Path) -> tuple[list[Edit], list[Any]]:
    """Say what happens to each row, and its value then: a class is spelled as the column spells it, 7 or "7"."""
    known = [value for value in dict.fromkeys(values) if value is not None]
    found = [edits.of(row, value) for row, value in enumerate(values)]
    return found, [
        value if edit.label is None else _spelling(known, edit.label, path)
        for edit, value in zip(found, values, strict=True)
    ]


def _spelling(known: list[Any], name: str, path: Path) -> Any:
    spelled = [value for value in known if str(value) == name] or [value for value in known if same_label(value, name)]
    if spelled or all(isinstance(value, str) for value in known):
        return spelled[0] if spelled else name
    raise RunError(f"{path} has no label {name!r}, and its labels are no text; relabel with one that is there")


def added_columns(found: list[Edit], edits: Edits, taken: Iterable[str]) -> Iterator[tuple[str, type, list[Cell]]]:
    """Give the columns that are added: their names, what is in them, and their cells."""
    for i, (name, kind) in enumerate(zip(free_names(edits.added, taken), edits.added.values(), strict=True)):
        yield name, kind, [edit.added[i] for edit in found]
