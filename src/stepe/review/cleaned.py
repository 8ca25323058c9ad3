"""The input again, with the suspicious rows marked, removed or relabelled, and all else as it was.

A table read and written turns the id ``007`` into 7, the class ``NA`` into nothing and CRLF into LF. So text is copied
record by record: only a label that changes, and the marks at the end of a record, are written anew.
"""

import csv
import json
import math
import re
import sys
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TextIO

import numpy as np

from stepe.data.table import is_hf_folder
from stepe.errors import InputError, RunError
from stepe.files import replacing
from stepe.run.folder import RunFolder
from stepe.tables.cells import same_label

if TYPE_CHECKING:
    import pandas as pd

Mode = Literal["mark", "drop", "relabel"]
MODES: tuple[Mode, ...] = ("mark", "drop", "relabel")
MARKS = ("stepe_flagged", "stepe_suggested", "stepe_suspicion")
DELIMITERS = {".csv": (",", ";", "\t", "|"), ".tsv": ("\t",), ".tab": ("\t",)}
"""by how a file's name ends; the first that finds the label's column in the header"""
JSON_LINES = (".jsonl", ".ndjson")
PARQUET = (".parquet", ".pq")
TABLES = (*DELIMITERS, *JSON_LINES, *PARQUET)
BOM = "\ufeff"


def write_cleaned(run: RunFolder | str | Path, mode: Mode = "mark", *, out: str | Path | None = None) -> Path:
    """Write the input of a finished run again; returns the path, by default ``cleaned.<ext>`` in the run folder.

    Args:
        run: a finished run, or its folder.
        mode: ``"mark"`` adds columns that say which labels look wrong and what they might be, ``"drop"`` leaves those
            rows out, ``"relabel"`` gives them the suggested label. What people have decided in a review is carried
            out in all three: such a row has the label they chose, and is no suspect any more.
        out: another file to write.
    """
    run = run if isinstance(run, RunFolder) else RunFolder(run)
    if mode not in MODES:
        raise InputError(f"mode is {mode!r}; choose {', '.join(MODES)}")
    source = find_source(run)
    write, suffix = _writer(source)
    target = run.file(f"cleaned{suffix}") if out is None else Path(out)
    if target.suffix != suffix:
        raise InputError(f"{target} does not end in {suffix}, and the cleaned data of {run.path} is written as that")
    if source is not None and target.exists() and source.path.samefile(target):
        raise InputError(f"{target} is the input itself; choose another file")
    if not target.parent.is_dir():
        raise InputError(f"there is no folder {target.parent}; make it first, or choose another file")
    edits = Edits(run, mode, None if source is None else source.path)
    with replacing(target) as temporary:
        write(source, temporary, edits)
    return target


def verdicts(samples: "pd.DataFrame") -> "pd.DataFrame":
    """What becomes of each sample: ``row``, ``action`` and ``label``.

    ``keep`` leaves the row alone; ``suspect`` is advice, which a mode marks, drops or relabels; ``relabel`` was decided
    by a person in a review, and is carried out in every mode. A review also clears a suspect (``kept``); one that
    people are not sure about stays one.
    """
    import pandas as pd

    given, suggested = _text(samples["given_label"]), _text(samples["suggested_label"])
    reviewed = _text(samples["reviewed_label"]) if "reviewed_label" in samples else pd.Series("", samples.index)
    status = samples["status"]
    settled = status.isin(["accepted", "relabelled"])
    suspect = samples["flagged"].astype(bool) & ~settled & (status != "kept")
    action = pd.Series("keep", samples.index).mask(suspect, "suspect").mask(settled, "relabel")
    better = suggested.mask(settled & (reviewed != ""), reviewed)
    # Without a prediction there is nothing to suggest: the label stays.
    label = given.mask((suspect | settled) & (better != ""), better)
    return pd.DataFrame({"row": samples["row"], "action": action, "label": label})


def _text(column: "pd.Series[Any]") -> "pd.Series[str]":
    return column.astype(object).where(column.notna(), "").astype(str)


# ---------------------------------------------------------------------------------------------------------------
# Where the labels came from


@dataclass(frozen=True)
class Source:
    """The file or folder that a run was made from."""

    path: Path
    label: str
    """the column of the labels"""
    encoding: str = "utf-8"


def find_source(run: RunFolder) -> Source | None:
    """The input of a run; ``None`` if its labels are in no file: arrays, data sets by name, planted noise."""
    request = run.config["request"]
    if not request.get("data") or request.get("noise"):
        return None
    path = Path(request["data"])
    if path.is_dir() and (request.get("kind") != "images" or is_hf_folder(path)):
        return None
    if not path.exists():
        if path.suffix.lower() in (*TABLES, ".npz") or request.get("kind") == "images":
            raise RunError(f"{path}, from which {run.path} was made, is gone; put it back")
        return None
    encoding = str(request.get("encoding") or "utf-8")
    return Source(
        path,
        label=request.get("label") or ("labels" if path.suffix == ".npz" else "label"),
        encoding="utf-8" if encoding.lower() in ("utf8", "utf-8-sig", "utf_8_sig") else encoding,
    )


# ---------------------------------------------------------------------------------------------------------------
# What happens to each row


@dataclass(frozen=True)
class Edit:
    """What happens to one row."""

    dropped: bool = False
    label: str | None = None
    """the new label, if it gets another one"""
    marks: tuple[bool | None, str, float | None] = (None, "", None)
    """flagged, suggested label, suspicion: the values of :data:`MARKS`"""

    @property
    def cells(self) -> tuple[str, str, str]:
        """The marks as text."""
        flagged, suggested, suspicion = self.marks
        return "" if flagged is None else str(flagged), suggested, "" if suspicion is None else f"{suspicion:.6f}"


UNTOUCHED = Edit()


class _Row(NamedTuple):
    given: str
    action: str
    label: str
    suggested: str
    suspicion: float


class Edits:
    """What happens to the rows of the input; refuses an input that is not the one of the run."""

    def __init__(self, run: RunFolder, mode: Mode, path: Path | None):
        self.mode, self.path = mode, path
        samples = own_samples(run)
        self.samples = samples
        found = verdicts(samples)
        suspicion = samples["suspicion"].astype(float).round(6)
        # A row without a label is no suspect, but what it might be is worth saying.
        given = _text(samples["given_label"])
        suggested = _text(samples["suggested_label"])
        suggested = suggested.where((found["action"] == "suspect") | (given == ""), "")
        self._rows = {
            row: _Row(*values)
            for row, *values in zip(
                found["row"].tolist(), given, found["action"], found["label"], suggested, suspicion, strict=True
            )
        }

    def of(self, row: int, found: object) -> Edit:
        """What happens to a row in which that label was found."""
        if row not in self._rows:
            return UNTOUCHED
        known = self._rows[row]
        if known.given and not same_label(found, known.given):
            raise self.changed(f"row {row} (counted from 0) has the label {str(found)!r} and had {known.given!r}")
        if known.action == "suspect" and self.mode == "drop":
            return Edit(dropped=True)
        suspicion = None if math.isnan(known.suspicion) else float(known.suspicion)
        marks = (known.action == "suspect", known.suggested, suspicion)
        advice = known.action == "suspect" and self.mode == "mark"
        return Edit(label=None if advice or known.label == known.given else known.label, marks=marks)

    def check_length(self, rows: int) -> None:
        """All samples of the run must have been met."""
        if self._rows and rows <= (last := max(self._rows)):
            raise self.changed(f"it has {rows} rows and had at least {last + 1}")

    def changed(self, what: str) -> RunError:
        """The input is another one by now."""
        return RunError(f"{self.path} has changed since the run: {what}. Put the old file back, or clean the new one")


def own_samples(run: RunFolder) -> "pd.DataFrame":
    """The samples of the input itself: held-out ones may come from another file, with row numbers of its own."""
    samples = run.samples
    if run.config["request"].get("test") or samples["row"].duplicated().any():
        samples = samples[samples["split"] != "test"]
    return samples.sort_values("row", kind="stable").reset_index(drop=True)


# ---------------------------------------------------------------------------------------------------------------
# One writer per format

Writer = Callable[[Source, Path, Edits], None]


def _writer(source: Source | None) -> tuple[Callable[[Any, Path, Edits], None], str]:
    if source is None:
        return _write_ids, ".csv"
    if source.path.is_dir():
        return _write_images, ".csv"
    suffix = source.path.suffix
    kinds: dict[str, Writer] = {
        **dict.fromkeys(DELIMITERS, _write_delimited),
        **dict.fromkeys(JSON_LINES, _write_json_lines),
        **dict.fromkeys(PARQUET, _write_parquet),
        ".npz": _write_npz,
    }
    return (kinds[suffix.lower()], suffix) if suffix.lower() in kinds else (_write_ids, ".csv")


def free_names(names: tuple[str, ...], taken: "set[str]") -> tuple[str, ...]:
    """The names, numbered where the input has one of them already.

    >>> free_names(("stepe_flagged", "stepe_suggested"), {"id", "stepe_flagged"})
    ('stepe_flagged_2', 'stepe_suggested_2')
    """
    number, found = 1, names
    while taken & set(found):
        number += 1
        found = tuple(f"{name}_{number}" for name in names)
    return found


@contextmanager
def opened_text(source: Source) -> Iterator[tuple[TextIO, str]]:
    """A file without its byte-order mark, and the mark; what is no text survives being copied."""
    with source.path.open(encoding=source.encoding, errors="surrogateescape", newline="") as file:
        mark = file.read(1)
        if mark != BOM:
            file.seek(0)
        yield file, mark if mark == BOM else ""


class Copy:
    """A copy in the making: a file that ends without a line end still does, whatever row was its last."""

    def __init__(self, file: TextIO):
        self._file, self._end, self._last = file, "", ""

    def keep(self, body: str, end: str) -> None:
        """A record, and how its line ends."""
        self._file.write(self._end + body)
        self._end = self._last = end

    def skip(self, end: str) -> None:
        """A record that is left out."""
        self._last = end

    def close(self) -> None:
        """The end of the last line."""
        if self._last:
            self._file.write(self._end)


@contextmanager
def _copying(source: Source, target: Path) -> Iterator[tuple[TextIO, Copy]]:
    with (
        opened_text(source) as (file, mark),
        target.open("w", encoding=source.encoding, errors="surrogateescape", newline="") as written,
    ):
        written.write(mark)
        copy = Copy(written)
        yield file, copy
        copy.close()


def _split_end(raw: str) -> tuple[str, str]:
    body = raw.rstrip("\r\n")
    return body, raw[len(body) :]


# CSV and TSV


@dataclass(frozen=True)
class Record:
    """A record of a delimited file: its text as it stands there, and its cells."""

    raw: str
    cells: list[str]
    blank: bool
    """readers of tables skip such a line, and don't count it"""


def records(file: TextIO, delimiter: str) -> Iterator[Record]:
    """The records of a delimited file; one may span several lines."""
    taken: list[str] = []

    def lines() -> Iterator[str]:
        for line in file:
            taken.append(line)
            yield line

    white = " \t\r\n".replace(delimiter, "")
    with any_length():
        for cells in csv.reader(lines(), delimiter=delimiter):
            raw = "".join(taken)
            taken.clear()
            yield Record(raw, cells, blank=not raw.strip(white))


@contextmanager
def any_length() -> Iterator[None]:
    """The csv module refuses a cell of more than 128 kB, unless told; texts may be longer."""
    before = csv.field_size_limit(sys.maxsize)
    try:
        yield
    finally:
        csv.field_size_limit(before)


def find_delimiter(source: Source) -> str:
    """The delimiter whose header has the label's column."""
    candidates = DELIMITERS[source.path.suffix.lower()]
    for delimiter in candidates:
        with opened_text(source) as (file, _):
            header = next((record.cells for record in records(file, delimiter) if not record.blank), [])
        if source.label in header:
            return delimiter
    raise RunError(f"{source.path} has changed since the run: it has no column {source.label!r} any more; put it back")


def _write_delimited(source: Source, target: Path, edits: Edits) -> None:
    delimiter = find_delimiter(source)
    with _copying(source, target) as (file, copy):
        header: list[str] | None = None
        row = position = 0
        for record in records(file, delimiter):
            body, end = _split_end(record.raw)
            if record.blank:
                copy.keep(body, end)
                continue
            if header is None:
                header, position = record.cells, record.cells.index(source.label)
                marks: tuple[str, ...] = free_names(MARKS, set(header))
            else:
                edit = edits.of(row, record.cells[position] if position < len(record.cells) else "")
                row += 1
                if edit.dropped:
                    copy.skip(end)
                    continue
                if edit.label is not None:
                    body = _with_cell(body, position, edit.label, delimiter)
                marks = edit.cells
            if edits.mode == "mark":
                missing = [""] * (len(header) - len(record.cells))
                body = delimiter.join([body, *missing, *(_quoted(mark, delimiter) for mark in marks)])
            copy.keep(body, end)
        edits.check_length(row)


def _with_cell(body: str, position: int, value: str, delimiter: str) -> str:
    """The record with another value in one cell; quoted if it has to be, or if the file quotes without need."""
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
    return body[:start] + _quoted(value, delimiter, always=by_habit) + body[found.end() :]


def _needs_quotes(value: str, delimiter: str) -> bool:
    return any(character in value for character in (delimiter, '"', "\r", "\n"))


def _quoted(value: str, delimiter: str, *, always: bool = False) -> str:
    if not always and not _needs_quotes(value, delimiter):
        return value
    return '"' + value.replace('"', '""') + '"'


# JSON lines


def _write_json_lines(source: Source, target: Path, edits: Edits) -> None:
    marks = _free_keys(source) if edits.mode == "mark" else MARKS
    with _copying(source, target) as (file, copy):
        row = 0
        for raw in whole_lines(file):
            body, end = _split_end(raw)
            if not body.strip():
                copy.keep(body, end)
                continue
            values = _json_object(body, row, edits)
            edit = edits.of(row, values.get(source.label))
            row += 1
            if edit.dropped:
                copy.skip(end)
                continue
            if edit.label is not None:
                body = _with_value(body, source.label, _as_json(edit.label, like=values.get(source.label)))
            if edits.mode == "mark":
                body = _with_keys(body, dict(zip(marks, edit.marks, strict=True)), first=not values)
            copy.keep(body, end)
        edits.check_length(row)


def whole_lines(file: TextIO) -> Iterator[str]:
    """Lines that end at LF, with or without CR; a CR alone ends none."""
    held = ""
    for line in file:
        held += line
        if held.endswith("\n"):
            yield held
            held = ""
    if held:
        yield held


def _free_keys(source: Source) -> tuple[str, ...]:
    with opened_text(source) as (file, _):
        return free_names(MARKS, {key for line in whole_lines(file) if line.strip() for key in json.loads(line)})


def _json_object(line: str, row: int, edits: Edits) -> dict[str, Any]:
    try:
        values = json.loads(line)
    except ValueError as error:
        raise edits.changed(f"row {row} (counted from 0) is no JSON: {error}") from error
    if not isinstance(values, dict):
        raise edits.changed(f"row {row} (counted from 0) is no JSON object")
    return values


def _with_value(body: str, key: str, token: str) -> str:
    """The object with another value for one key (the last of that name, as readers take it)."""
    decode = json.JSONDecoder().raw_decode
    white = re.compile(r"[\s,:]*")
    span: tuple[int, int] | None = None
    at = _after(white, body, body.index("{") + 1)
    while body[at] != "}":
        name, at = decode(body, at)
        start = _after(white, body, at)
        _, end = decode(body, start)
        if name == key:
            span = start, end
        at = _after(white, body, end)
    if span is None:
        before = body[: body.rindex("}")].rstrip()
        return _with_keys(body, {key: json.loads(token)}, first=before.endswith("{"))
    return body[: span[0]] + token + body[span[1] :]


def _after(pattern: "re.Pattern[str]", text: str, start: int) -> int:
    found = pattern.match(text, start)
    return start if found is None else found.end()


def _as_json(label: str, like: object) -> str:
    """A class by its name, as the value that the file would hold for it."""
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
    """The object with further keys, spaced as it is."""
    spaced = re.search(r'":\s', body) is not None
    separators = (", ", ": ") if spaced or first else (",", ":")
    inner, brace, rest = body.rpartition("}")
    added = json.dumps(more, ensure_ascii=False, separators=separators)[1:-1]
    kept = inner.rstrip()
    return f"{kept}{'' if first else separators[0]}{added}{inner[len(kept) :]}{brace}{rest}"


# Parquet


def _write_parquet(source: Source, target: Path, edits: Edits) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    with pq.ParquetFile(source.path) as file:
        table = file.read()
        groups = file.metadata.num_row_groups
        compression = file.metadata.row_group(0).column(0).compression if groups else "SNAPPY"
        group_size = max((file.metadata.row_group(i).num_rows for i in range(groups)), default=None)
    if source.label not in table.column_names:
        raise edits.changed(f"it has no column {source.label!r} any more")
    position = table.column_names.index(source.label)
    labels = table.column(position).to_pylist()
    found = [edits.of(row, label) for row, label in enumerate(labels)]
    edits.check_length(len(found))
    if edits.mode == "mark":
        types = (pa.bool_(), pa.string(), pa.float64())
        values = zip(*(edit.marks for edit in found), strict=True) if found else ((), (), ())
        for name, column, kind in zip(free_names(MARKS, set(table.column_names)), values, types, strict=True):
            empty_is_null = [None if value == "" else value for value in column]
            table = table.append_column(name, pa.array(empty_is_null, kind))
    if any(edit.label is not None for edit in found):
        field = table.schema.field(position)
        names = _spellings(labels)
        wanted = [
            label if edit.label is None else _spelling(names, edit.label, edits)
            for edit, label in zip(found, labels, strict=True)
        ]
        table = table.set_column(position, field, _column_like(table.column(position), wanted))
    table = table.filter(pa.array([not edit.dropped for edit in found], pa.bool_()))
    pq.write_table(
        table, target, compression="NONE" if compression == "UNCOMPRESSED" else compression, row_group_size=group_size
    )


def _spellings(labels: list[Any]) -> list[Any]:
    """The classes as the file holds them."""
    return [label for label in dict.fromkeys(labels) if label is not None]


def _spelling(values: list[Any], name: str, edits: Edits) -> Any:
    exact = [value for value in values if str(value) == name]
    found = exact or [value for value in values if same_label(value, name)]
    if found:
        return found[0]
    if all(isinstance(value, str) for value in values):
        return name
    raise RunError(f"{edits.path} has no label {name!r}, and its labels are no text; relabel with one that is there")


def _column_like(column: Any, values: list[Any]) -> Any:
    """The values as a column of the same type; a dictionary keeps its order, whether all of it is used or not."""
    import pyarrow as pa

    if not pa.types.is_dictionary(column.type):
        return pa.chunked_array([pa.array(values, column.type)])
    chunks = column.unify_dictionaries().chunks
    known = chunks[0].dictionary if chunks else pa.array([], column.type.value_type)
    new = [value for value in dict.fromkeys(values) if value is not None and value not in set(known.to_pylist())]
    dictionary = pa.concat_arrays([known, pa.array(new, column.type.value_type)])
    index = {value: i for i, value in enumerate(dictionary.to_pylist())}
    indices = pa.array([None if value is None else index[value] for value in values], column.type.index_type)
    return pa.chunked_array([pa.DictionaryArray.from_arrays(indices, dictionary, ordered=column.type.ordered)])


# npz


def _write_npz(source: Source, target: Path, edits: Edits) -> None:
    with np.load(source.path, allow_pickle=False) as stored:
        arrays = {name: stored[name] for name in stored.files}
    if source.label not in arrays:
        raise edits.changed(f"it has no array {source.label!r} any more")
    labels = arrays[source.label]
    found = [edits.of(row, label) for row, label in enumerate(labels.tolist())]
    edits.check_length(len(found))
    if edits.mode == "mark":
        flagged, suggested, suspicion = zip(*(edit.marks for edit in found), strict=True)
        columns = (
            np.array([bool(flag) for flag in flagged]),
            np.array(suggested, dtype=str),
            np.array([np.nan if value is None else value for value in suspicion]),
        )
        names = free_names(tuple(mark.removeprefix("stepe_") for mark in MARKS), set(arrays))
        arrays |= dict(zip(names, columns, strict=True))
    values = labels.tolist()
    names_of = _spellings(values)
    changed = [
        label if edit.label is None else _spelling(names_of, edit.label, edits)
        for edit, label in zip(found, values, strict=True)
    ]
    if changed != values:
        # A new label may be longer than all the old ones.
        wide = np.array(changed)
        arrays[source.label] = wide if labels.dtype.kind in "SU" else wide.astype(labels.dtype)
    kept = np.array([not edit.dropped for edit in found])
    if not kept.all():
        n = len(labels)
        arrays = {name: array[kept] if array.shape[:1] == (n,) else array for name, array in arrays.items()}
    with zipfile.ZipFile(source.path) as archive:
        compressed = any(member.compress_type != zipfile.ZIP_STORED for member in archive.infolist())
    save = np.savez_compressed if compressed else np.savez
    save(target, **arrays)


# Without a file that holds the labels


def _write_images(source: Source, target: Path, edits: Edits) -> None:
    """A line per image: its path in the folder and its label, which the folder's name was."""
    samples = edits.samples
    for path, given in zip(samples["id"], samples["given_label"], strict=True):
        if not (source.path / path).is_file():
            raise edits.changed(f"there is no {path} any more, which was labelled {given!r}")
    _write_list("path", target, edits)


def _write_ids(source: None, target: Path, edits: Edits) -> None:
    _write_list("id", target, edits)


def _write_list(name: str, target: Path, edits: Edits) -> None:
    samples = edits.samples
    with target.open("w", encoding="utf-8", newline="") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow([name, "label", *(MARKS if edits.mode == "mark" else ())])
        for row, key, given in zip(samples["row"].tolist(), samples["id"], _text(samples["given_label"]), strict=True):
            edit = edits.of(row, given)
            if not edit.dropped:
                marks = edit.cells if edits.mode == "mark" else ()
                out.writerow([key, given if edit.label is None else edit.label, *marks])
