"""A run folder belongs to one process while a run is written into it.

The operating system holds the lock and lets go of it when the process ends, however it ends: a file that a killed
process left behind keeps nobody out. Reading is always allowed, and so is what writes one whole file beside a finished
run (a report, cleaned data) or a log that keeps its writers apart (decisions).
"""

import errno
import fcntl
import json
import os
import socket
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from itertools import count
from pathlib import Path

from stepe.errors import InputError, RunError
from stepe.files import inside, reporting
from stepe.run.folder import RUNS

LOCK = "in-use.json"
"""in the run folder: who writes there"""
PATIENCE = 1.0
"""seconds in which somebody who has just taken the lock says who they are"""

_held: set[int] = set()


def _leave_to_parent() -> None:
    """A forked process (a loader's worker) that outlives its parent would keep the folder locked."""
    for handle in _held:
        os.close(handle)
    _held.clear()


os.register_at_fork(after_in_child=_leave_to_parent)


@contextmanager
def locked(folder: Path) -> Iterator[Path]:
    """Keep every other process and thread from writing a run in a folder; a missing folder is made.

    One that had to be made and stayed empty is removed in the end.
    """
    with reporting(folder):
        made = not folder.exists()
        if not (made or folder.is_dir()):
            raise InputError(f"{folder} is a file; choose another folder for the run")
        handle = _take(folder)
    _held.add(handle)
    try:
        yield folder
    finally:
        _held.discard(handle)
        with suppress(OSError):  # a folder that was moved away or made read-only is free, too
            (folder / LOCK).unlink()
        os.close(handle)
        if made:
            _remove_if_empty(folder)


@contextmanager
def locked_new(data: str, runs: Path = RUNS) -> Iterator[Path]:
    """The same for a new folder ``runs/<data>-<n>``, which no other process takes, even if both start at once."""
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


def _take(folder: Path) -> int:
    while True:
        folder.mkdir(parents=True, exist_ok=True)
        try:
            handle = os.open(inside(folder, LOCK), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        except FileNotFoundError:  # another process has just removed the folder, which was empty
            continue
        try:
            _lock(handle, folder)
            # Whoever had it may have removed the file after it was opened here: the lock is on nothing then.
            if os.path.samestat(os.fstat(handle), (folder / LOCK).stat()):
                owner = {"pid": os.getpid(), "host": socket.gethostname(), "since": _now()}
                os.ftruncate(handle, 0)
                os.pwrite(handle, json.dumps(owner).encode(), 0)
                return handle
        except FileNotFoundError:
            pass
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)


def _lock(handle: int, folder: Path) -> None:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise RunError(
            f"{folder} is in use by {_owner(handle)}; wait for it to end, stop it, or choose another folder"
        ) from None
    except OSError as error:
        if error.errno not in (errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK):
            raise
        warnings.warn(
            f"{folder} lies where files cannot be locked ({error.strerror}): see to it that no other process writes "
            "there",
            stacklevel=2,
        )


def _owner(handle: int) -> str:
    """The process that has the lock, as it says itself."""
    for _ in range(20):
        try:
            owner = json.loads(os.pread(handle, 4096, 0))
            same_host = owner["host"] == socket.gethostname()
            name = "this very process" if same_host and owner["pid"] == os.getpid() else f"process {owner['pid']}"
            where = "" if same_host else f" on {owner['host']}"
            return f"{name}{where} since {owner['since']}"
        except (OSError, ValueError, TypeError, KeyError):
            time.sleep(PATIENCE / 20)
    return "another process, which does not say its name"


def _now() -> str:
    return datetime.now().astimezone().isoformat(" ", "seconds")


def _remove_if_empty(folder: Path) -> None:
    with suppress(OSError):
        folder.rmdir()
