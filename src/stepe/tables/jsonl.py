"""JSON lines: an object a line. A copy changes in the values that are edited, and in no other character."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from stepe.errors import InputError
from stepe.tables.batches import of_values
from stepe.tables.edit import Edits, free_names
from stepe.tables.text import copy, opened, split_end

if TYPE_CHECKING:
    import pyarrow as pa

SUFFIXES: tuple[str, ...] = (".jsonl", ".ndjson")


def read(path: Path, encoding: str) -> "Iterator[pa.RecordBatch]":
    """Read the rows; a key that an object lacks is missing, as one whose value is null."""

    def rows() -> Iterator[dict[str, Any]]:
        with opened(path, encoding) as (file, _):
            for _, values in _objects(file, path):
                if values is not None:
                    yield values

    return of_values(rows)


def _objects(file: TextIO, path: Path) -> Iterator[tuple[str, dict[str, Any] | None]]:
    """Read the lines of a file as they stand there, and the objects in them; a blank line has none."""
    for number, line in enumerate(_whole_lines(file), start=1):
        if not line.strip():
            yield line, None
            continue
        try:
            values = json.loads(line)
        except ValueError as error:
            raise InputError(f"line {number} of {path} is no JSON ({error}); write one object a line") from error
        if not isinstance(values, dict):
            raise InputError(f"line {number} of {path} is a {type(values).__name__}; write one object a line")
        yield line, values


def _whole_lines(file: TextIO) -> Iterator[str]:
    """Split text into lines that end at LF, with or without CR; a CR alone ends none."""
    held = ""
    for line in file:
        held += line
        if held.endswith("\n"):
            yield held
            held = ""
    if held:
        yield held


def rewrite(source: Path, target: Path, edits: Edits, encoding: str) -> None:
    """Copy line by line; what is added becomes further keys of each object."""
    keys: set[str] = set()
    if edits.added:
        with opened(source, encoding, errors="surrogateescape") as (file, _):
            keys.update(*(values or () for _, values in _objects(file, source)))
    added = free_names(edits.added, keys)

    def edited(file: TextIO) -> Iterator[tuple[str | None, str]]:
        row = 0
        for raw, values in _objects(file, source):
            body, end = split_end(raw)
            if values is None:
                yield body, end
                continue
            old = values.get(edits.column)
            edit = edits.of(row, old)
            row += 1
            if edit.label is not None:
                body = _with_value(body, edits.column, _as_json(edit.label, like=old))
            if added and edit.added:
                body = _with_keys(body, dict(zip(added, edit.added, strict=True)), first=not values)
            yield None if edit.dropped else body, end

    copy(source, target, encoding, edited)


def _with_value(body: str, key: str, token: str) -> str:
    """Give one key of an object another value (the last of that name, as readers take it)."""
    decode = json.JSONDecoder().raw_decode
    white = re.compile(r"[\s,:]*")

    def after(at: int) -> int:
        found = white.match(body, at)
        assert found is not None  # the pattern matches the empty text
        return found.end()

    span: tuple[int, int] | None = None
    at = after(body.index("{") + 1)
    while body[at] != "}":
        name, at = decode(body, at)
        start = after(at)
        _, at = decode(body, start)
        if name == key:
            span = start, at
        at = after(at)
    if span is None:
        before = body[: body.rindex("}")].rstrip()
        return _with_keys(body, {key: json.loads(token)}, first=before.endswith("{"))
    return body[: span[0]] + token + body[span[1] :]


def _as_json(label: str, like: object) -> str:
    """Write the name of a class as the value that the file would hold for it."""
    if isinstance(like, bool) and label.casefold() in ("true", "false"):
        return label.casefold()
    if isinstance(like, int | float):
        try:
            if isinstance(json.loads(label), int | float):
                return label
        except ValueError:
            pass
    return json.dumps(label, ensure_ascii=False)


def _with_keys(body: str, more: dict[str, Any], *, first: bool) -> str:
    """Add keys to an object, spaced as it is."""
    spaced = re.search(r'":\s', body) is not None
    separators = (", ", ": ") if spaced or first else (",", ":")
    inner, brace, rest = body.rpartition("}")
    added = json.dumps(more, ensure_ascii=False, separators=separators)[1:-1]
    kept = inner.rstrip()
    return f"{kept}{'' if first else separators[0]}{added}{inner[len(kept) :]}{brace}{rest}"
