"""Files of text that are copied byte for byte: encodings, byte order marks, line ends."""

import codecs
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from stepe.errors import InputError

BOM = "\ufeff"


@contextmanager
def opened(path: Path, encoding: str = "utf-8", *, errors: str = "strict") -> Iterator[tuple[TextIO, str]]:
    """Open a file with its line ends as they are, after its byte order mark; and give the mark, if it has one."""
    try:
        file = path.open(encoding=_codec(path, encoding), errors=errors, newline="")
    except LookupError as error:
        raise InputError(f"there is no encoding {encoding!r}; utf-8, latin1, cp1252 and utf-16 are some") from error
    with file:
        mark = file.read(1)
        if mark != BOM:
            file.seek(0)
        yield file, mark if mark == BOM else ""


def _codec(path: Path, encoding: str) -> str:
    """Find the encoding whose mark is a character like any other, so that a copy has it where the file has it."""
    name = codecs.lookup(encoding).name
    if name in ("utf-16", "utf-32"):
        with path.open("rb") as file:
            big = file.read(4).startswith((codecs.BOM_UTF16_BE, codecs.BOM_UTF32_BE))
        return f"{name}-{'be' if big else 'le'}"
    return name.removesuffix("-sig")


def copy(
    source: Path, target: Path, encoding: str, records: Callable[[TextIO], Iterator[tuple[str | None, str]]]
) -> None:
    """Write a file again as ``records`` of it: their text (``None``: it is left out), and their line ends.

    Bytes that are no text survive; a file that ends without a line end still does, whatever record was its last.
    """
    with (
        opened(source, encoding, errors="surrogateescape") as (file, mark),
        target.open("w", encoding=_codec(source, encoding), errors="surrogateescape", newline="") as written,
    ):
        written.write(mark)
        pending = end = ""
        for body, end in records(file):
            if body is not None:
                written.write(pending + body)
                pending = end
        written.write(pending if end else "")


def split_end(raw: str) -> tuple[str, str]:
    """Split a record from its line end."""
    body = raw.rstrip("\r\n")
    return body, raw[len(body) :]
