"""Tables of every format, read and written again: what is edited changes, and nothing else does."""

import codecs
import io
import json
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepe.errors import RunError
from stepe.tables.batches import distinct
from stepe.tables.edit import Cell, Edit
from stepe.tables.formats import FORMATS, read_rows

MARKS = {"flagged": bool, "what": str, "how": float}


@dataclass
class Given:
    """Edits as they are given, by row."""

    column: str
    edits: dict[int, Edit] = field(default_factory=dict)
    added: dict[str, type] = field(default_factory=dict)
    seen: list[object] = field(default_factory=list)

    def of(self, row: int, found: object) -> Edit:
        assert row == len(self.seen)
        self.seen.append(found)
        empty: tuple[Cell, ...] = (False, "", None)
        return self.edits.get(row, Edit(added=empty if self.added else ()))

    def changed(self, what: str) -> Exception:
        return RunError(what)


def rewritten(content: bytes, suffix: str, edits: Given, encoding: str = "utf-8") -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / f"in{suffix}", Path(folder) / f"out{suffix}"
        source.write_bytes(content)
        FORMATS[suffix].rewrite(source, target, edits, encoding)
        return target.read_bytes()


def rows_of(content: bytes, suffix: str, encoding: str = "utf-8") -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"in{suffix}"
        path.write_bytes(content)
        return list(read_rows(path, encoding))


# ---------------------------------------------------------------------------------------------------------------
# CSV and TSV

CELLS = (
    st.text(st.characters(codec="latin-1")) | st.text(alphabet="ab\"',;|\t\r\n =0") | st.sampled_from(["", "007", "NA"])
)
NAMES = st.lists(st.sampled_from(["a", "b", "label", "a.1", "label.1", "x y", "é", ""]), min_size=2, max_size=5)
ENCODINGS = ("utf-8", "utf-8-sig", "latin-1", "cp1252", "utf-16", "utf-16-le")


@dataclass(frozen=True)
class Written:
    """A table of text and the pieces of the file that it is: the cells between delimiters, and the line ends."""

    suffix: str
    delimiter: str
    encoding: str
    names: list[str]
    rows: list[list[str]]
    pieces: list[list[str]]
    """the header and the rows, each cell as it stands in the file"""
    ends: list[str]

    @property
    def lines(self) -> list[str]:
        return [self.delimiter.join(cells) + end for cells, end in zip(self.pieces, self.ends, strict=True)]

    @property
    def content(self) -> bytes:
        return "".join(self.lines).encode(self.encoding)


@st.composite
def tables(draw: st.DrawFn) -> Written:
    """Tables with any quoting, line ends and encoding."""
    suffix, delimiter = draw(st.sampled_from([*((".csv", mark) for mark in ",;\t|"), (".tsv", "\t"), (".tab", "\t")]))
    encoding = draw(st.sampled_from(ENCODINGS))
    cells = CELLS.filter(lambda text: text.encode(encoding, "ignore").decode(encoding) == text)
    names = draw(NAMES)
    rows = draw(st.lists(st.lists(cells, min_size=len(names), max_size=len(names)), min_size=1, max_size=6))

    def quoted(cell: str) -> str:
        needs = any(mark in cell for mark in f'"\r\n{delimiter}')
        return '"' + cell.replace('"', '""') + '"' if needs or draw(st.booleans()) else cell

    pieces = [[quoted(cell) for cell in row] for row in [names, *rows]]
    # A line of white space alone would be a blank one, which readers skip.
    pieces = [[f'"{row[0]}"', *row[1:]] if not "".join(row).strip() else row for row in pieces]
    ends = [draw(st.sampled_from(["\n", "\r\n"])) for _ in pieces]
    ends[-1] = draw(st.sampled_from(["", "\n", "\r\n"]))
    return Written(suffix, delimiter, encoding, names, rows, pieces, ends)


@given(tables())
def test_every_cell_is_read_as_it_was_written(table):
    found = rows_of(table.content, table.suffix, table.encoding)
    names = distinct(table.names)
    assert found == [dict(zip(names, row, strict=True)) for row in table.rows]


@given(tables(), st.data())
def test_a_table_in_which_nothing_is_edited_stays_byte_for_byte(table, data):
    edits = Given(data.draw(st.sampled_from(distinct(table.names))))
    assert rewritten(table.content, table.suffix, edits, table.encoding) == table.content
    position = distinct(table.names).index(edits.column)
    assert edits.seen == [row[position] for row in table.rows]


@given(tables(), st.data())
def test_one_cell_changes_and_no_other_byte(table, data):
    row, position = data.draw(st.integers(0, len(table.rows) - 1)), data.draw(st.integers(0, len(table.names) - 1))
    label = data.draw(st.sampled_from(["new", "a;b,c|d\te", 'quo"te', "two\r\nlines", "", " "]))
    names = distinct(table.names)
    edits = Given(names[position], {row: Edit(label=label)})
    after = rewritten(table.content, table.suffix, edits, table.encoding)
    expected = [dict(zip(names, cells, strict=True)) for cells in table.rows]
    expected[row][names[position]] = label
    assert rows_of(after, table.suffix, table.encoding) == expected
    before = table.delimiter.join(table.pieces[row + 1][:position])
    behind = table.delimiter.join(table.pieces[row + 1][position + 1 :])
    text, lines = after.decode(table.encoding), table.lines
    assert text.startswith("".join(lines[: row + 1]) + before)
    assert text.endswith(behind + table.ends[row + 1] + "".join(lines[row + 2 :]))


@given(tables(), st.data())
def test_dropped_rows_are_gone_and_the_others_stay_byte_for_byte(table, data):
    gone = data.draw(st.sets(st.integers(0, len(table.rows) - 1)))
    edits = Given(distinct(table.names)[0], {row: Edit(dropped=True) for row in gone})
    after = rewritten(table.content, table.suffix, edits, table.encoding)
    kept = [0, *(row + 1 for row in range(len(table.rows)) if row not in gone)]
    ends = [table.ends[row] for row in kept]
    if not table.ends[-1]:
        ends[-1] = ""  # whatever row is the last one then
    lines = [table.delimiter.join(table.pieces[row]) + end for row, end in zip(kept, ends, strict=True)]
    assert after == "".join(lines).encode(table.encoding)
    assert [row for number, row in enumerate(table.rows) if number not in gone] == [
        list(row.values()) for row in rows_of(after, table.suffix, table.encoding)
    ]


@given(tables())
def test_marks_come_behind_all_other_cells(table):
    edits = Given(distinct(table.names)[0], {0: Edit(added=(True, "b,;|\t", 0.25))}, MARKS)
    found = rows_of(rewritten(table.content, table.suffix, edits, table.encoding), table.suffix, table.encoding)
    assert [list(row.values())[: len(table.names)] for row in found] == table.rows
    assert list(found[0].values())[len(table.names) :] == ["True", "b,;|\t", "0.250000"]
    assert all(list(row.values())[len(table.names) :] == ["False", "", ""] for row in found[1:])


@pytest.mark.parametrize(
    ("encoding", "mark"), [("utf-8", codecs.BOM_UTF8), ("utf-16", codecs.BOM_UTF16_LE), ("utf-16", codecs.BOM_UTF16_BE)]
)
def test_a_byte_order_mark_is_no_part_of_a_name_and_stays(encoding, mark):
    own = {codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}.get(mark, "utf-8")
    content = mark + "a,label\r\n1,x\r\n".encode(own)
    assert rows_of(content, ".csv", encoding) == [{"a": "1", "label": "x"}]
    after = rewritten(content, ".csv", Given("a", {0: Edit(label="2")}), encoding)
    assert after == mark + "a,label\r\n2,x\r\n".encode(own)


def test_the_same_delimiter_is_found_by_whoever_reads_or_writes():
    """The header decides, whatever stands more often in the rows."""
    content = b"a;label\n1,1,1,1,1;x\n2,2,2,2,2;y\n"
    assert [row["label"] for row in rows_of(content, ".csv")] == ["x", "y"]
    assert rewritten(content, ".csv", Given("label", {0: Edit(label="z")})) == content.replace(b";x", b";z")


# ---------------------------------------------------------------------------------------------------------------
# JSON lines

KEYS = st.sampled_from(["label", "a", "b c", "é", ""])
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


@st.composite
def json_lines(draw: st.DrawFn) -> tuple[list[dict[str, Any]], list[str]]:
    """Objects, and the lines that hold them, spaced and escaped in any way."""
    objects = draw(st.lists(st.dictionaries(KEYS, VALUES, max_size=4), min_size=1, max_size=5))
    lines = []
    for each in objects:
        spaced = draw(st.sampled_from([(",", ":"), (", ", ": "), (" ,\t", " : ")]))
        text = json.dumps(each, separators=spaced, ensure_ascii=draw(st.booleans()))
        lines.append(draw(st.sampled_from(["", "  "])) + text + draw(st.sampled_from(["\n", "\r\n", " \n", "\n\n"])))
    if draw(st.booleans()):
        lines[-1] = lines[-1].rstrip()
    return objects, lines


@given(json_lines())
def test_json_values_are_read_as_they_are(made):
    objects, lines = made
    if not any(objects):
        return
    keys = dict.fromkeys(key for each in objects for key in each)
    found = rows_of("".join(lines).encode("utf-8", "surrogatepass"), ".jsonl")
    assert found == [{key: each.get(key) for key in keys} for each in objects]


@given(json_lines(), st.data())
def test_json_lines_change_in_one_value(made, data):
    objects, lines = made
    row = data.draw(st.integers(0, len(objects) - 1))
    content = "".join(lines).encode()
    assert rewritten(content, ".jsonl", Given("label")) == content
    after = rewritten(content, ".jsonl", Given("label", {row: Edit(label="naïve\n")})).decode()
    before, behind = "".join(lines[:row]), "".join(lines[row + 1 :])
    assert after.startswith(before)
    assert after.endswith(behind)
    changed = json.loads(after[len(before) : len(after) - len(behind)])
    assert changed == objects[row] | {"label": "naïve\n"}
    assert list(changed) == list(objects[row] | {"label": ""})


@given(json_lines(), st.data())
def test_json_lines_are_dropped_and_marked(made, data):
    objects, lines = made
    gone = data.draw(st.sets(st.integers(0, len(objects) - 1)))
    added = (True, "é", 0.25)
    edits = Given("label", {i: Edit(dropped=i in gone, added=added) for i in range(len(objects))}, MARKS)
    after = rewritten("".join(lines).encode(), ".jsonl", edits).decode()
    found = [json.loads(line) for line in after.split("\n") if line.strip()]
    marks = dict(zip(MARKS, added, strict=True))
    assert found == [each | marks for i, each in enumerate(objects) if i not in gone]


# ---------------------------------------------------------------------------------------------------------------
# Parquet

COLUMNS: dict[str, pa.Array] = {
    "text": pa.array(["a", None, "", "ü"]),
    "long": pa.array(["a", None, "", "ü"], pa.large_string()),
    "code": pa.array(["x", "y", None, "x"]).dictionary_encode(),
    "whole": pa.array([1, 2**62, None, -1]),
    "small": pa.array([1, 2, 3, None], pa.uint8()),
    "part": pa.array([0.5, None, float("inf"), -0.0]),
    "sure": pa.array([True, None, False, True]),
    "day": pa.array([date(2020, 2, 29), None, date(1, 1, 1), date(9999, 12, 31)]),
    "time": pa.array([datetime(2020, 1, 1, tzinfo=UTC), None, None, None], pa.timestamp("us", "UTC")),
    "money": pa.array([Decimal("1.10"), None, Decimal("-2.00"), None]),
    "bytes": pa.array([b"\xff", None, b"", b"\0"]),
    "list": pa.array([[1, None], None, [], [3]]),
    "fixed": pa.FixedSizeListArray.from_arrays(pa.array(range(8)), 2),
    "struct": pa.array([{"a": 1, "b": "x"}, None, {"a": None, "b": ""}, {"a": 2, "b": "y"}]),
    "nothing": pa.nulls(4),
}


def parquet(labels: pa.Array, **options: Any) -> bytes:
    table = pa.table({**COLUMNS, "label": labels}).replace_schema_metadata({"whose": "mine"})
    out = io.BytesIO()
    pq.write_table(table, out, **options)
    return out.getvalue()


LABELS: dict[str, tuple[pa.Array, str, Any]] = {
    "text": (pa.array(["a", "b", None, "a"]), "b", "b"),
    "long text": (pa.array(["a", "b", None, "a"], pa.large_string()), "new", "new"),
    "whole": (pa.array([1, 2, None, 1]), "2", 2),
    "small": (pa.array([1, 2, None, 1], pa.int8()), "2", 2),
    "float": (pa.array([1.0, 2.0, None, 1.0]), "2", 2.0),
    "bool": (pa.array([True, False, None, True]), "False", False),
    "dictionary": (pa.array(["a", "b", None, "a"]).dictionary_encode(), "b", "b"),
    "new in a dictionary": (pa.array(["a", "b", None, "a"]).dictionary_encode(), "c", "c"),
    "bytes": (pa.array([b"a", b"\xff", None, b"a"]), r"\xff", b"\xff"),
}


@pytest.mark.parametrize("label", LABELS)
@pytest.mark.parametrize("options", [{}, {"compression": "none", "row_group_size": 2}, {"compression": "zstd"}])
def test_parquet_keeps_types_and_all_other_columns(label, options):
    labels, name, value = LABELS[label]
    content = parquet(labels, **options)
    before = pq.read_table(io.BytesIO(content))
    after_content = rewritten(content, ".parquet", Given("label", {0: Edit(label=name)}))
    after = pq.read_table(io.BytesIO(after_content))
    assert after.schema.equals(before.schema, check_metadata=True)
    assert after.drop_columns("label").equals(before.drop_columns("label"))
    assert after["label"].to_pylist() == [value, *before["label"].to_pylist()[1:]]
    kept, old = (pq.ParquetFile(io.BytesIO(each)).metadata for each in (after_content, content))
    assert kept.num_row_groups == old.num_row_groups
    assert kept.row_group(0).column(0).compression == old.row_group(0).column(0).compression


def test_parquet_is_read_value_by_value():
    content = parquet(LABELS["text"][0])
    assert rows_of(content, ".parquet") == pq.read_table(io.BytesIO(content)).to_pylist()


def test_parquet_rows_are_dropped_and_marked():
    content = parquet(LABELS["text"][0])
    edits = Given("label", {1: Edit(dropped=True, added=(True, "", None)), 3: Edit(added=(True, "b", 0.5))}, MARKS)
    after = pq.read_table(io.BytesIO(rewritten(content, ".parquet", edits)))
    assert after.select(["flagged", "what", "how"]).to_pydict() == {
        "flagged": [False, False, True],
        "what": [None, None, "b"],
        "how": [None, None, 0.5],
    }
    assert after.select([*COLUMNS, "label"]).equals(pq.read_table(io.BytesIO(content)).take([0, 2, 3]))


def test_columns_of_one_name_in_parquet_are_told_apart():
    out = io.BytesIO()
    pq.write_table(pa.Table.from_arrays([pa.array(["a"]), pa.array(["b"])], names=["label", "label"]), out)
    after = rewritten(out.getvalue(), ".parquet", Given("label.1", {0: Edit(label="c")}))
    assert [column.to_pylist() for column in pq.ParquetFile(io.BytesIO(after)).read().columns] == [["a"], ["c"]]
    assert rows_of(out.getvalue(), ".parquet") == [{"label": "a", "label.1": "b"}]


# ---------------------------------------------------------------------------------------------------------------
# npz


def npz(save: Callable[..., None] = np.savez, **arrays: Any) -> bytes:
    out = io.BytesIO()
    save(out, **arrays)
    return out.getvalue()


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
@pytest.mark.parametrize(
    ("labels", "name", "value"),
    [
        (np.array(["a", "b", "a"]), "a longer name", "a longer name"),
        (np.array([b"a", b"\xff", b"a"]), r"\xff", b"\xff"),
        (np.array([1, 2, 1], np.int8), "2", 2),
        (np.array([True, False, True]), "False", False),
    ],
)
def test_npz_arrays_keep_their_types_and_all_else(save, labels, name, value):
    others = {"features": np.eye(3, dtype=np.float16), "names": np.array(["x", "yy", "z"]), "seed": np.int64(3)}
    content = npz(save, labels=labels, **others)
    with np.load(io.BytesIO(rewritten(content, ".npz", Given("labels", {0: Edit(label=name)})))) as after:
        assert after.files == ["labels", *others]
        assert after["labels"].tolist() == [value, *labels.tolist()[1:]]
        assert after["labels"].dtype.kind == labels.dtype.kind
        for other, array in others.items():
            assert after[other].dtype == array.dtype
            assert np.array_equal(after[other], array)
    with np.load(io.BytesIO(rewritten(content, ".npz", Given("labels", {1: Edit(dropped=True)})))) as after:
        assert [after[each].shape for each in after.files] == [(2,), (2, 3), (2,), ()]
