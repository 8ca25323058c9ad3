"""CSV and TSV: records of text between delimiters.

A table read and written turns the id ``007`` into 7, the class ``NA`` into nothing and CRLF into LF. So a copy is made
record by record: only a cell that changes, and those that are added at the end, are written anew.
"""

import csv
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TextIO

from stepe.errors import InputError
from stepe.tables.batches import distinct, of_text
from stepe.tables.edit import Cell, Edits, free_names
from stepe.tables.text import copy, opened, split_end

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

DELIMITERS = {".csv": ",;\t|", ".tsv": "\t", ".tab": "\t"}
"""the delimiters that there may be, by how a file's name ends"""
SUFFIXES: tuple[str, ...] = tuple(DELIMITERS)


class Record(NamedTuple):
    """A record of a file, which may span several lines."""

    raw: str
    """the record as it stands in the file"""
    cells: list[str]
    line: int
    """the line that it begins in, counted from 1"""
    blank: bool
    """readers of tables skip such a line, and don't count it"""


def records(file: TextIO, delimiter: str, path: Path) -> Iterator[Record]:
    """Read the records of a file, the header and blank lines among them."""
    taken: list[str] = []
    line = 1

    def lines() -> Iterator[str]:
        for text in file:
            taken.append(text)
            yield text
        if taken:
            raise _broken(path, f"EOF inside string starting in line {line}")

    white = " \t\r\n".replace(delimiter, "")
    with any_length():
        for cells in csv.reader(lines(), delimiter=delimiter):
            raw = "".join(taken)
            yield Record(raw, cells, line, blank=not raw.strip(white))
            line += len(taken)
            taken.clear()


@contextmanager
def any_length() -> Iterator[None]:
    """Let the csv module read cells of more than 128 kB, which it refuses unless told: texts may be longer."""
    before = csv.field_size_limit(sys.maxsize)
    try:
        yield
    finally:
        csv.field_size_limit(before)


def _broken(path: Path, why: str) -> InputError:
    return InputError(
        f"{path} cannot be read as a table: {why}; look there for a quote that is not closed, or a field with an "
        "unquoted separator"
    )


def find_delimiter(path: Path, encoding: str = "utf-8") -> str:
    """Find the delimiter by which the header falls into the most columns; of several such, the most common."""

    def columns(delimiter: str) -> int:
        with opened(path, encoding, errors="surrogateescape") as (file, _):
            try:
                return next((len(record.cells) for record in records(file, delimiter, path) if not record.blank), 0)
            except InputError:
                return 0

    return max(DELIMITERS.get(path.suffix.lower(), DELIMITERS[".csv"]), key=columns)


def read(path: Path, encoding: str) -> "Iterator[pa.RecordBatch]":
    """Read the rows, all cells text; those that a short record lacks are missing."""
    delimiter = find_delimiter(path, encoding)
    with opened(path, encoding) as (file, _):
        rows = (record for record in records(file, delimiter, path) if not record.blank)
        header = next(rows, None)
        if header is None:
            raise InputError(f"{path} is empty; its first line must name the columns")
        yield from of_text(distinct(header.cells), _filled(rows, len(header.cells), path))


def _filled(rows: Iterator[Record], width: int, path: Path) -> Iterator[Sequence[str | None]]:
    for number, record in enumerate(rows):
        if len(record.cells) > width and not number:
            raise InputError(
                f"the rows of {path} have more fields than its first line names columns; name them all, or quote "
                "fields that hold a separator"
            )
        if len(record.cells) > width:
            raise _broken(path, f"Expected {width} fields in line {record.line}, saw {len(record.cells)}")
        yield [*record.cells, *[None] * (width - len(record.cells))]


def rewrite(source: Path, target: Path, edits: Edits, encoding: str) -> None:
    """Copy record by record: quotes, line ends, blank lines and bytes that are no text are as they were."""
    delimiter = find_delimiter(source, encoding)

    def edited(file: TextIO) -> Iterator[tuple[str | None, str]]:
        found = records(file, delimiter, source)
        header: list[str] = []
        row = 0
        for record in found:
            body, end = split_end(record.raw)
            if record.blank:
                yield body, end
                continue
            if not header:
                header = distinct(record.cells)
                if edits.column not in header:
                    break
                added: Sequence[Cell] = free_names(edits.added, header)
            else:
                cell = dict(zip(header, record.cells, strict=False)).get(edits.column, "")
                edit = edits.of(row, cell)
                row += 1
                if edit.dropped:
                    yield None, end
                    continue
                added = edit.added
                if added or edit.label is not None:  # a record may be shorter than the header
                    body += delimiter * (len(header) - len(record.cells))
                if edit.label is not None:
                    body = _with_cell(body, header.index(edits.column), edit.label, delimiter)
            if added:
                body = delimiter.join([body, *(_quoted(as_cell(value), delimiter) for value in added)])
            yield body, end
        if edits.column not in header:
            raise edits.changed(f"it has no column {edits.column!r} any more")

    copy(source, target, encoding, edited)


def write(target: Path, rows: Iterable[Sequence[Cell]], *, mark: str = "") -> None:
    """Write a new file, its cells quoted where they have to be; ``mark`` is the byte order mark that it begins with."""
    with target.open("w", encoding="utf-8", newline="") as file:
        file.write(mark)
        file.writelines(lines(rows))


def lines(rows: Iterable[Sequence[Cell]]) -> Iterator[str]:
    """Write rows as lines of a CSV file; the csv module would not quote a CR, at which readers end the row."""
    for row in rows:
        # A record of one empty cell would be a blank line.
        yield ",".join(_quoted(as_cell(cell), ",", always=len(row) == 1) for cell in row) + "\n"


def of_frame(frame: "pd.DataFrame") -> str:
    """Write a table as the text of a CSV file, its numbers with as many digits as they have."""
    columns = [["" if cell is None or cell != cell else str(cell) for cell in frame[name]] for name in frame]
    return "".join(lines([[*map(str, frame)], *zip(*columns, strict=True)]))


def as_cell(value: Cell) -> str:
    """Write a value as text.

    >>> [as_cell(value) for value in ("cat", True, 0.25, None)]
    ['cat', 'True', '0.250000', '']
    """
    return "" if value is None else f"{value:.6f}" if isinstance(value, float) else str(value)


def _with_cell(body: str, position: int, value: str, delimiter: str) -> str:
    """Put another value into one cell of a record; quoted if it has to be, or if the file quotes without need."""
    cell = re.compile(rf'(?:"[^"]*(?:""[^"]*)*")?[^{re.escape(delimiter)}\r\n]*')
    start = 0
    for _ in range(position):
        found = cell.match(body, start)
        assert found is not None  # the pattern matches the empty text
        start = found.end() + len(delimiter)
    found = cell.match(body, start)
    assert found is not None
    old = found[0]
    by_habit = len(old) > 1 and old[0] == old[-1] == '"' and not _needs_quotes(old[1:-1], delimiter)
    # A record of nothing but white space would be a blank line.
    return body[:start] + _quoted(value, delimiter, always=by_habit or not value.strip()) + body[found.end() :]


def _needs_quotes(value: str, delimiter: str) -> bool:
    return any(character in value for character in (delimiter, '"', "\r", "\n"))


def _quoted(value: str, delimiter: str, *, always: bool = False) -> str:
    if not always and not _needs_quotes(value, delimiter):
        return value
    return '"' + value.replace('"', '""') + '"'
