"""Files that are either whole or not there, whatever happens while they are written, and what can stand in them."""

import contextlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from stepe.errors import InputError, RunError

TEMPORARY = ".tmp-"
UNWRITABLE = re.compile("[\0-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
"""characters that some file of a run cannot hold: halves of characters (UTF-8), and control characters (XML)"""
SHOWN = 200
"""characters of a text that an error quotes"""
_BYTE = re.compile(rb"\\x([0-9a-f]{2})")


@contextlib.contextmanager
def reporting(path: Path) -> Iterator[None]:
    """Turn the operating system's refusals (disk full, read-only...) into an error that names the path."""
    try:
        yield
    except OSError as error:
        raise RunError(
            f"cannot write {path}: {error.strerror or error}; free some space, or choose a folder you may write to"
        ) from error


def exists(path: Path) -> bool:
    """Say whether there is such a file or folder, as far as this user can see."""
    try:
        return path.exists()
    except OSError:  # a name that no file can have, or a folder that is closed to this user
        return False


def inside(folder: Path, *names: str) -> Path:
    """Return the path of something in a folder that others may have made; a link that leads out of it is refused."""
    path = folder.joinpath(*names)
    try:
        where = path.resolve()
        if where.is_relative_to(folder.resolve()):
            return path
    except (OSError, RuntimeError) as error:  # a link to itself
        raise RunError(f"{path} cannot be reached ({error}); remove what is wrong with it") from error
    raise RunError(
        f"{path} leads out of {folder}, to {where}, and no link is followed out of there; remove the link, or put the "
        "file itself in its place"
    )


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give a temporary file to write, which then takes the place of ``path`` in one step."""
    with reporting(path):
        handle, name = tempfile.mkstemp(prefix=TEMPORARY, suffix=path.suffix, dir=path.parent)
        os.close(handle)
        temporary = Path(name)
        try:
            yield temporary
            sync(temporary)
            # mkstemp makes files private; what people share should have the usual permissions.
            temporary.chmod(0o666 & ~_umask())
            temporary.replace(path)
            sync(path.parent)
        finally:
            temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def replacing_folder(path: Path) -> Iterator[Path]:
    """Give a temporary folder to fill, which then appears as ``path`` in one step; an older one makes way."""
    with reporting(path):
        temporary = Path(tempfile.mkdtemp(prefix=TEMPORARY, dir=path.parent))
        try:
            yield temporary
            for file in temporary.iterdir():
                sync(file)
            sync(temporary)
            temporary.chmod(0o777 & ~_umask())
            if path.exists():
                shutil.rmtree(path)
            temporary.replace(path)
            sync(path.parent)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)


def write_text(path: Path, text: str) -> None:
    """Write a whole text file."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: Path, value: Any, **options: Any) -> None:
    """Write a value as JSON that people can read; half of a character is written by its number, and reads back."""
    text = json.dumps(value, ensure_ascii=False, **options) + "\n"
    write_text(path, text.encode("utf-8", "backslashreplace").decode("utf-8"))


def check_writable(what: str, value: str) -> None:
    """Refuse a text that cannot be written into every file that it has to stand in."""
    if odd := UNWRITABLE.search(value):
        shown = value if len(value) <= SHOWN else f"{value[:SHOWN]}..."
        raise InputError(f"{what} is {shown!r}; {odd[0]!r} cannot be written into every file of a run, so take it out")


def text_of_name(name: str) -> str:
    r"""Write a file's name as a text that every file can hold; what is no text becomes ``\xNN``, byte by byte.

    >>> text_of_name("café.png") == "café.png", text_of_name("caf\udce9.png"), text_of_name(r"a\xe9.png")
    (True, 'caf\\xe9.png', 'a\\x5cxe9.png')
    """
    literal = _BYTE.sub(rb"\\x5cx\1", os.fsencode(name))
    return UNWRITABLE.sub(lambda odd: "".join(f"\\x{byte:02x}" for byte in os.fsencode(odd[0])), os.fsdecode(literal))


def name_of_text(text: str) -> str:
    r"""Return the name of the file that :func:`text_of_name` made the text of.

    >>> [name_of_text(text_of_name(name)) == name for name in ("caf\udce9.png", r"a\xe9.png", "a.png")]
    [True, True, True]
    """
    return os.fsdecode(_BYTE.sub(lambda byte: bytes.fromhex(byte[1].decode()), os.fsencode(text)))


def plain(value: Any) -> Any:
    """Free numbers and containers of numpy's scalars, which neither JSON nor a load of plain weights knows.

    >>> plain({"lr": np.float64(0.5), "betas": (np.float32(0.5), 1)})
    {'lr': 0.5, 'betas': (0.5, 1)}
    """
    if isinstance(value, np.generic):
        return value.item()
    if type(value) is dict:
        return {key: plain(inner) for key, inner in value.items()}
    if type(value) in (list, tuple):
        return type(value)(plain(inner) for inner in value)
    return value


def sync(path: Path) -> None:
    """Have the disk hold what was written."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sweep(folder: Path) -> None:
    """Remove what a killed process left half-written."""
    for leftover in folder.glob(f"{TEMPORARY}*"):
        if leftover.is_dir():
            shutil.rmtree(leftover, ignore_errors=True)
        else:
            leftover.unlink(missing_ok=True)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
