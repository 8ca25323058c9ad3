"""Getting published files: with progress, retries and a checksum, and unpacked without trusting the archive."""

import gzip
import hashlib
import importlib
import shutil
import tarfile
import tempfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stepe.errors import InputError
from stepe.files import TEMPORARY, reporting

RETRIES = 3
TIMEOUT = 30.0
"""seconds without an answer"""
CHUNK = 2**18


@dataclass(frozen=True)
class Remote:
    """A file as its publisher offers it."""

    url: str
    sha256: str

    @property
    def name(self) -> str:
        """The file's name."""
        return self.url.rsplit("/", 1)[-1]


def fetch(remote: Remote, folder: Path) -> Path:
    """Download a published file into ``folder``, unless it is there already; returns its path."""
    path = folder / remote.name
    by_hand = f"get {remote.url} yourself and put it into {folder}"
    if _is_whole(path, remote):
        return path
    try:
        # By name, as Any: the types of an optional package would depend on whether it is installed.
        pooch: Any = importlib.import_module("pooch")
        failures: Any = importlib.import_module("requests.exceptions")
    except ImportError as error:
        raise InputError(
            f"downloading {remote.name} needs pooch: pip install 'stepe[download]'; or {by_hand}"
        ) from error
    shelf = pooch.create(
        path=folder,
        base_url="",
        registry={remote.name: f"sha256:{remote.sha256}"},
        urls={remote.name: remote.url},
        retry_if_failed=RETRIES,
    )
    with reporting(path), _Bar(remote.name) as bar:
        try:
            shelf.fetch(
                remote.name, downloader=pooch.HTTPDownloader(progressbar=bar, chunk_size=CHUNK, timeout=TIMEOUT)
            )
        except failures.RequestException as error:
            raise InputError(
                f"{remote.url} could not be downloaded ({error}); try again later, or {by_hand}"
            ) from error
        except ValueError as error:  # how pooch reports a wrong checksum
            raise InputError(
                f"what came from {remote.url} is not the published file: its SHA-256 is not {remote.sha256}; "
                f"try again from another network, or {by_hand}"
            ) from error
        # pooch's files are private; in a shared folder, others should be able to read what is there.
        path.chmod(folder.stat().st_mode & 0o666)
    return path


def unpack(archive: Path, members: Sequence[str], destination: Path) -> None:
    """Unpack ``members`` of an archive into the new folder ``destination``, all of them or none.

    Only these members are read, and they are written under their last names: an archive can't reach outside.
    """
    again = "delete it to have it downloaded again"
    with (
        reporting(destination),
        tempfile.TemporaryDirectory(prefix=TEMPORARY, dir=destination.parent, ignore_cleanup_errors=True) as scratch,
    ):
        folder = Path(scratch) / destination.name
        folder.mkdir()
        missing = set(members)
        try:
            with gzip.open(archive) as stream, tarfile.open(fileobj=stream, mode="r:") as opened:
                for member in opened:
                    if member.name not in members:
                        continue
                    content = opened.extractfile(member) if member.isfile() else None
                    if content is None:
                        raise InputError(f"{archive} is damaged: {member.name} in it is not a plain file; {again}")
                    with content, (folder / Path(member.name).name).open("wb") as copy:
                        shutil.copyfileobj(content, copy, CHUNK)
                    missing.discard(member.name)
                while stream.read(CHUNK):  # up to gzip's own checksum, which comes last
                    pass
        except (EOFError, tarfile.TarError, gzip.BadGzipFile, zlib.error) as error:
            raise InputError(f"{archive} is damaged ({error}); {again}") from error
        if missing:
            raise InputError(f"{archive} is damaged (it lacks {', '.join(sorted(missing))}); {again}")
        try:
            folder.replace(destination)
        except OSError:
            # Another process may have been faster, and its folder is as good.
            if not destination.is_dir():
                raise


def _is_whole(path: Path, remote: Remote) -> bool:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest() == remote.sha256
    except OSError:
        return False


class _Bar:
    """A progress bar on the terminal, driven as pooch drives one: total, update, reset, close."""

    def __init__(self, name: str):
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            DownloadColumn(),
            TimeRemainingColumn(),
            console=Console(stderr=True),
        )
        self._task = self._progress.add_task(name, total=None)
        self._total = 0

    def __enter__(self) -> "_Bar":
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    @property
    def total(self) -> int:
        """The number of bytes to come; 0 where the server does not say."""
        return self._total

    @total.setter
    def total(self, total: int) -> None:
        # Each attempt announces its total anew.
        self._total = total
        self._progress.reset(self._task, total=total or None)
        self._progress.start()

    def update(self, size: int) -> None:
        """Count bytes that have come."""
        self._progress.advance(self._task, size)

    def reset(self) -> None:
        """Count from nothing: pooch does so at the end, to add the exact total."""
        self._progress.reset(self._task)

    def close(self) -> None:
        """Do nothing: the bar stops when its context is left, however that comes about."""
