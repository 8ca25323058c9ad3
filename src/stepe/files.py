"""Files that are either whole or not there, whatever happens while they are written."""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from stepe.errors import RunError

TEMPORARY = ".tmp-"


@contextlib.contextmanager
def reporting(path: Path) -> Iterator[None]:
    """Turn the operating system's refusals (disk full, read-only...) into an error that names the path."""
    try:
        yield
    except OSError as error:
        raise RunError(
            f"cannot write {path}: {error.strerror or error}; free some space, or choose a folder you may write to"
        ) from error


def inside(folder: Path, *names: str) -> Path:
    """The path of something in a folder that may come from somebody else; a link that leads out of it is refused."""
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
    """A temporary file to write, which then takes the place of ``path`` in one step."""
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
    """A temporary folder to fill, which then appears as ``path`` in one step; an older one makes way."""
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


def plain(value: Any) -> Any:
    """Numbers and containers without numpy's scalars, which neither JSON nor a load of plain weights knows.

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
