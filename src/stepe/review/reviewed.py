"""``reviewed.csv``: decisions as a table that people can read, change and send.

A reviewer needs no Python: a spreadsheet will do, or ``report.html``, which writes the same columns.
"""

import csv
import io
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

from stepe.errors import InputError
from stepe.files import write_text
from stepe.run.decisions import VERDICTS, Action, Decision, Key, Verdict, verdict_on
from stepe.run.folder import RunFolder
from stepe.tables.cells import escape, unescape
from stepe.tables.delimited import find_delimiter, records
from stepe.tables.text import opened

COLUMNS = ("row", "id", "split", "given_label", "suggested_label", "verdict", "label")
UNDECIDED = ("", "open")
MOST_DIGITS = 18
"""digits of a row's number, at most"""


class KnownSample(NamedTuple):
    """A sample as a run knows it."""

    id: str
    given: str
    suggested: str


def known_samples(run: RunFolder) -> dict[Key, KnownSample]:
    """Find the samples that can be decided on: those with a label."""
    samples = run.samples[run.samples["split"] != "unlabelled"]
    keys = zip(samples["split"], samples["row"].tolist(), strict=True)
    columns = zip(samples["id"], samples["given_label"], samples["suggested_label"], strict=True)
    return {Key(*key): KnownSample(*values) for key, values in zip(keys, columns, strict=True)}


def reviewed_text(run: RunFolder) -> str:
    """Write the decisions on a run as the text of a CSV file, by row; a spreadsheet runs nothing in it."""
    out = io.StringIO()
    known = known_samples(run)
    # Ended by CRLF: a cell that holds one of the two is then quoted.
    table = csv.writer(out, lineterminator="\r\n")
    table.writerow(COLUMNS)
    for key, decision in sorted(run.decisions.current().items(), key=lambda item: item[0][::-1]):
        if key in known:
            sample = known[key]
            cells = (sample.id, key.split, sample.given, sample.suggested, decision.verdict, decision.label or "")
            table.writerow([key.row, *map(escape, cells)])
    return out.getvalue()


def write_reviewed(run: RunFolder) -> Path:
    """Write ``reviewed.csv`` in the run folder; returns its path."""
    path = run.file("reviewed.csv")
    write_text(path, reviewed_text(run))
    return path


def apply_reviewed(run: RunFolder, path: Path) -> Counter[Verdict]:
    """Take over the decisions of a file, all of them or, if a line makes no sense, none; returns how many of each.

    What it says about a sample replaces what was decided before; of other samples it says nothing.
    """
    decisions = read_reviewed(run, path)
    now = run.decisions.current()
    new = [made for made in decisions if (old := now.get(made.key)) is None or old.label != made.label]
    if new:
        run.decisions.record(Action(f"file-{uuid4()}", tuple(new)))
    return Counter(decision.verdict for decision in decisions)


def read_reviewed(run: RunFolder, path: Path) -> list[Decision]:
    """Read the decisions of a file; refuse one that does not fit the run, naming the line."""
    known, classes = known_samples(run), set(run.class_names)
    found: dict[Key, tuple[Line, Decision]] = {}
    problems = []
    for line in _lines(path):
        try:
            decision = line.decide(run, known, classes)
            if decision is None:
                continue
            earlier, before = found.setdefault(decision.key, (line, decision))
            if before.label != decision.label:
                raise InputError(
                    f"row {decision.row} was decided on in line {earlier.number} already, otherwise; remove one of them"
                )
        except InputError as error:
            problems.append(f"line {line.number} of {path}: {error}")
    if problems:
        more = f" ({len(problems) - 1} further lines cannot be used either)" if len(problems) > 1 else ""
        raise InputError(f"{problems[0]}{more}. Nothing was applied")
    return [decision for _, decision in found.values()]


@dataclass(frozen=True)
class Line:
    """A line of the file, as it was before it was escaped."""

    number: int
    cells: dict[str, str]

    def decide(self, run: RunFolder, known: dict[Key, KnownSample], classes: set[str]) -> Decision | None:
        """Return the decision in the line; ``None`` where it has no verdict."""
        said = self.cells["verdict"].strip().lower()
        if said in UNDECIDED:
            return None
        if said not in VERDICTS:
            raise InputError(f"the verdict is {said!r}; write one of {', '.join(VERDICTS)}, or nothing")
        key = self._key()
        if key not in known:
            raise InputError(
                f"{run.path} has no labelled sample in row {key.row} of its {key.split} data; "
                "apply the file to the run that it is from"
            )
        sample = known[key]
        for column, there in (("id", sample.id), ("given_label", sample.given)):
            if self.cells[column] != there:
                raise InputError(
                    f"its {column} is {self.cells[column]!r}, and row {key.row} of {run.path} has {there!r}; apply the "
                    "file to the run that it is from, and have a spreadsheet treat the column as text"
                )
        label = self._label(said, sample)
        if label is not None and label not in classes:
            raise InputError(f"there is no class {label!r}; write one of {', '.join(sorted(classes)[:10])}")
        return Decision(*key, verdict_on(label, given=sample.given, suggested=sample.suggested), label, "file")

    def _key(self) -> Key:
        text = self.cells["row"].strip()
        if not (text.isascii() and text.isdecimal() and len(text) <= MOST_DIGITS):
            raise InputError(f"the row is {text!r}; write a whole number, as issues.csv has it")
        return Key(self.cells["split"].strip() or "train", int(text))

    def _label(self, verdict: str, sample: KnownSample) -> str | None:
        """Return the label that a verdict means; beside it, the column may be empty, but not say otherwise."""
        label = self.cells["label"]
        if verdict == "unsure":
            return None
        if verdict == "relabelled":
            if not label:
                raise InputError("it is relabelled, but has no label; write the right one, or unsure")
            return label
        meant = sample.given if verdict == "kept" else sample.suggested
        if not meant:
            raise InputError("there was no suggestion to accept; write relabelled, and the label")
        if label not in ("", meant):
            raise InputError(f"it is {verdict}, which means {meant!r}, but has the label {label!r}; write relabelled")
        return meant


def _lines(path: Path) -> Iterator[Line]:
    try:
        delimiter = find_delimiter(path)
        with opened(path) as (file, _):
            rows = records(file, delimiter, path)
            header = next(rows, None)
            columns = [] if header is None else header.cells
            if missing := [name for name in COLUMNS if name not in columns]:
                raise InputError(
                    f"{path} has no column {missing[0]!r}; its first line must be {','.join(COLUMNS)}, "
                    "as reviews write it"
                )
            for row in rows:
                filled = [*row.cells, *[""] * (len(columns) - len(row.cells))]
                if any(row.cells):
                    yield Line(row.line, {name: unescape(cell) for name, cell in zip(columns, filled, strict=False)})
    except UnicodeError as error:
        raise InputError(f"{path} is not UTF-8 ({error}); save it as CSV UTF-8") from error
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from error
