"""A run folder belongs to one process while a run is written into it.

The operating system holds the lock and lets go of it when the process ends, however it ends: a file that a killed
process left behind keeps nobody out. Reading is always allowed, and so is what writes one whole file beside a finished
run (a report, cleaned data) or a log that keeps its writers apart (decisions).
"""

import json
import os
import socket
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from errno import ENOLCK, ENOTSUP, EOPNOTSUPP
from itertools import count
from pathlib import Path

from filelock import FileLock, Timeout

from stepe.errors import InputError, RunError
from stepe.files import check_writable, inside, reporting
from stepe.run.folder import RUNS

LOCK, OWNER = "in-use.lock", "in-use.json"
"""files in the run folder: the one that is locked, and one that says which process did it"""


@contextmanager
def locked(folder: Path) -> Iterator[Path]:
    """Keep every other process and thread from writing a run in a folder; a missing folder is made.

    One that had to be made and stayed empty is removed in the end.
    """
    check_writable("the run folder", str(folder.absolute()))
    made = not folder.exists()
    if not (made or folder.is_dir()):
        raise InputError(f"{folder} is a file; choose another folder for the run")
    with reporting(folder):
        lock = _take(folder)
    try:
        yield folder
    finally:
        with suppress(OSError):  # a folder that was moved away or made read-only is free, too
            for name in (OWNER, LOCK):
                (folder / name).unlink()
        lock.release()
        if made:
            _remove_if_empty(folder)


@contextmanager
def locked_new(data: str, runs: Path = RUNS) -> Iterator[Path]:
    """Make and lock a new folder ``runs/<data>-<n>``, which no other process takes, even if both start at once."""
    made = not runs.is_dir()
    folder = _take_name(data, runs)
    try:
        with locked(folder):
            yield folder
    finally:
        _remove_if_empty(folder)
        if made:
            _remove_if_empty(runs)


def check_free(folder: Path) -> None:
    """Refuse a folder that another process or thread writes a run into."""
    check_writable("the run folder", str(folder.absolute()))
    with reporting(folder):
        if folder.exists() and (not folder.is_dir() or (folder / LOCK).exists()):
            with locked(folder):
                pass


def _take_name(data: str, runs: Path) -> Path:
    with reporting(runs):
        runs.mkdir(parents=True, exist_ok=True)
        names = [path.name for path in runs.iterdir()]
        tails = [name.removeprefix(f"{data}-") for name in names if name.startswith(f"{data}-")]
        for number in count(max((int(tail) for tail in tails if tail.isdecimal()), default=0) + 1):
            with suppress(FileExistsError):
                (folder := runs / f"{data}-{number}").mkdir()
                return folder
    raise AssertionError("numbers do not end")


def _take(folder: Path) -> FileLock:
    folder.mkdir(parents=True, exist_ok=True)
    lock, owner = FileLock(inside(folder, LOCK), timeout=0, thread_local=False), inside(folder, OWNER)
    try:
        lock.acquire()
    except Timeout:
        raise RunError(
            f"{folder} is in use by {_owner(folder)}; wait for it to end, stop it, or choose another folder"
        ) from None
    except FileNotFoundError:  # another process has just removed the folder, which was empty
        return _take(folder)
    except OSError as error:
        if error.errno not in (ENOTSUP, EOPNOTSUPP, ENOLCK):
            raise
        warnings.warn(
            f"{folder} lies where files cannot be locked ({error.strerror}): see to it that no other process writes "
            "there",
            stacklevel=2,
        )
    since = datetime.now().astimezone().isoformat(" ", "seconds")
    with suppress(OSError):  # the lock holds without a name, too
        owner.write_text(json.dumps({"pid": os.getpid(), "host": socket.gethostname(), "since": since}))
    return lock


def _owner(folder: Path) -> str:
    """Name the process that has the lock, as it says itself."""
    try:
        owner = json.loads(inside(folder, OWNER).read_text(encoding="utf-8"))
        same_host = owner["host"] == socket.gethostname()
        name = "this very process" if same_host and owner["pid"] == os.getpid() else f"process {owner['pid']}"
        where = "" if same_host else f" on {owner['host']}"
        return f"{name}{where} since {owner['since']}"
    except (OSError, ValueError, TypeError, KeyError):
        return "another process, which does not say its name"


def _remove_if_empty(folder: Path) -> None:
    with suppress(OSError):
        folder.rmdir()
