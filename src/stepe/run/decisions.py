"""What people decided about the labels of a run: a log in the run folder that is only ever added to.

An action (one decision, or several at once) has an id, made up by its sender. So an action that is sent again, because
nobody knew whether it had arrived, counts once. Taking one back is an action too; what holds now is a view of
the log. Every action is on the disk before it is confirmed, and SQLite keeps several processes apart.
"""

import os
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from stepe.errors import RunError
from stepe.files import inside

Verdict = Literal["accepted", "kept", "relabelled", "unsure"]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
Origin = Literal["ranked", "sample", "file"]
"""how somebody came to decide on a sample: down the list, in a random sample, or elsewhere, in a file"""
DATABASE = "decisions.sqlite"
PATIENCE = 30.0
"""seconds to wait for another process that is writing"""

FORMAT = 1

_NAMES_A_FILE = bytes.fromhex("d9d505f920a163d7")
"""the end of a journal that names another file, which SQLite would read and delete; stepe writes none"""
_SCHEMA = """
CREATE TABLE IF NOT EXISTS actions (
    entry INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    undoes TEXT
);
CREATE TABLE IF NOT EXISTS choices (
    entry INTEGER NOT NULL REFERENCES actions,
    split TEXT NOT NULL,
    row INTEGER NOT NULL,
    verdict TEXT NOT NULL,
    label TEXT,
    origin TEXT NOT NULL,
    at TEXT NOT NULL,
    PRIMARY KEY (entry, split, row)
);
CREATE INDEX IF NOT EXISTS choices_by_sample ON choices (split, row);
"""

# Of the columns beside a max(), SQLite takes those of the row that has it: the last word on each sample.
_CURRENT = """
SELECT split, row, verdict, label, origin, at, max(entry)
FROM choices JOIN actions USING (entry)
WHERE entry <= :until
  AND id NOT IN (SELECT undoes FROM actions WHERE undoes IS NOT NULL AND entry <= :until)
GROUP BY split, row
ORDER BY entry, split, row
"""

_OF_SAMPLE = """
SELECT split, row, verdict, label, origin, at
FROM choices JOIN actions USING (entry)
WHERE split = :split AND row = :row AND id NOT IN (SELECT undoes FROM actions WHERE undoes IS NOT NULL)
ORDER BY entry DESC LIMIT 1
"""

_LAST = "SELECT coalesce(max(entry), 0) FROM actions"

_CHANGED = """
SELECT DISTINCT split, row FROM choices JOIN actions USING (entry)
WHERE entry > :since OR id IN (SELECT undoes FROM actions WHERE entry > :since)
"""


class Key(NamedTuple):
    """A sample's name within its run; held-out samples may have row numbers of their own."""

    split: str
    row: int


@dataclass(frozen=True)
class Decision:
    """A person's word on one label."""

    split: str
    row: int
    verdict: Verdict
    label: str | None
    """the right label; ``None``: nobody is sure"""
    origin: Origin = "ranked"
    at: str = ""
    """the time in UTC; filled in when it is recorded"""

    @property
    def key(self) -> Key:
        """The name of the sample whose label this is about."""
        return Key(self.split, self.row)

    @property
    def wrong(self) -> bool | None:
        """Whether the given label was wrong; ``None``: nobody knows."""
        return None if self.verdict == "unsure" else self.verdict != "kept"


def verdict_on(label: str | None, *, given: str, suggested: str) -> Verdict:
    """Say what choosing a label means for the one that was given, and for the suggestion.

    >>> [verdict_on(label, given="cat", suggested="dog") for label in ("dog", "cat", "cow", None)]
    ['accepted', 'kept', 'relabelled', 'unsure']
    """
    if label is None:
        return "unsure"
    return "kept" if label == given else "accepted" if label == suggested else "relabelled"


@dataclass(frozen=True)
class Action:
    """Something that was done at once, and can be undone at once."""

    id: str
    """unique, and the same whenever the action is sent again"""
    decisions: tuple[Decision, ...] = ()
    undoes: str | None = None
    """the id of an action that this one takes back"""


class Decisions:
    """The decisions on a run; reading them makes no file."""

    def __init__(self, folder: Path):
        # SQLite keeps more files beside it, whose names it makes itself.
        files = (inside(folder, f"{DATABASE}{ending}") for ending in ("", "-journal", "-wal", "-shm"))
        self.path, self._journal, *_ = files

    def record(self, *actions: Action) -> int:
        """Write actions down, all or none; those that are there already are left as they are.

        Returns the number of the last entry. When this returns, they are on the disk.
        """
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        with self._opened(writing=True) as database:
            for action in actions:
                added = database.execute(
                    "INSERT OR IGNORE INTO actions (id, undoes) VALUES (?, ?)", (action.id, action.undoes)
                )
                if added.rowcount:
                    database.executemany(
                        "INSERT INTO choices VALUES (?, ?, ?, ?, ?, ?, ?)",
                        [
                            (
                                added.lastrowid,
                                each.split,
                                each.row,
                                each.verdict,
                                each.label,
                                each.origin,
                                each.at or now,
                            )
                            for each in action.decisions
                        ],
                    )
            return int(database.execute(_LAST).fetchone()[0])

    def current(self, until: int | None = None) -> dict[Key, Decision]:
        """Return the decisions that hold now, or held after an earlier entry, in the order in which they were made."""
        found = self._read(_CURRENT, until=sys.maxsize if until is None else until)
        decisions = [Decision(*values) for *values, _ in found]
        return {decision.key: decision for decision in decisions}

    def of(self, key: Key) -> Decision | None:
        """Return the decision that holds now on one sample."""
        found = self._read(_OF_SAMPLE, split=key.split, row=key.row)
        return Decision(*found[0]) if found else None

    def changed_since(self, entry: int) -> set[Key]:
        """Find the samples on which something was decided, or taken back, after an entry."""
        return {Key(*key) for key in self._read(_CHANGED, since=entry)}

    @property
    def last(self) -> int:
        """The number of the last entry; 0 where there is none."""
        return int(next(iter(self._read(_LAST)), (0,))[0])

    def _read(self, query: str, **values: int | str) -> list[tuple[Any, ...]]:
        if not self.path.exists():
            return []
        with self._opened() as database:
            # A process that was killed while making it left an empty file.
            return database.execute(query, values).fetchall() if _format(database) else []

    @contextmanager
    def _opened(self, *, writing: bool = False) -> Iterator[sqlite3.Connection]:
        # Opened for writing even to read: what a killed process left half-done is put right first.
        mode = "rwc" if writing else "rw"
        self._check_journal()
        try:
            address = f"{self.path.absolute().as_uri()}?mode={mode}"
            with closing(sqlite3.connect(address, uri=True, timeout=PATIENCE, isolation_level=None)) as database:
                database.execute("PRAGMA synchronous = FULL")
                if writing:
                    database.execute("BEGIN IMMEDIATE")
                if _format(database) not in (0, FORMAT):
                    raise RunError(f"{self.path} was made by another version of stepe; use that one")
                if writing:
                    _make_tables(database)
                yield database
                if writing:
                    database.execute("COMMIT")
        except sqlite3.Error as error:
            doing = "written" if writing else "read"
            raise RunError(f"{self.path} cannot be {doing}: {error}; {_way_out(error)}") from error

    def _check_journal(self) -> None:
        """Refuse a journal that leads SQLite out of the folder."""
        with suppress(FileNotFoundError, IsADirectoryError), self._journal.open("rb") as file:
            file.seek(-min(len(_NAMES_A_FILE), self._journal.stat().st_size), os.SEEK_END)
            if file.read() == _NAMES_A_FILE:
                raise RunError(f"{self._journal} names another file, and was not left by stepe; remove it")


def _way_out(error: sqlite3.Error) -> str:
    if isinstance(error, sqlite3.OperationalError):
        return "check its permissions and the space left, and that no other program holds it"
    return "it is damaged: put back a copy, or move it away and `stepe apply` the last reviewed.csv"


def _make_tables(database: sqlite3.Connection) -> None:
    for statement in filter(str.strip, _SCHEMA.split(";")):  # executescript() would commit
        database.execute(statement)
    database.execute(f"PRAGMA user_version = {FORMAT}")


def _format(database: sqlite3.Connection) -> int:
    return int(database.execute("PRAGMA user_version").fetchone()[0])
