"""Tables: cells as they were written, whatever the format, and errors that say what to repair."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from stepe import InputError
from stepe.data.table import (
    expand_features,
    feature_matrix,
    is_hf_folder,
    read_hf_folder,
    read_hf_hub,
    read_table,
    without_ids_and_leaks,
)

ROWS = [{"id": "007", "label": "NA", "n": "1"}, {"id": "008", "label": "None", "n": ""}]


@pytest.fixture
def write(tmp_path):
    def write(name: str, content: str | bytes) -> Path:
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return write


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", "id,label,n\n007,NA,1\n008,None,\n"),
        ("bom.csv", "\ufeffid,label,n\r\n007,NA,1\r\n008,None,\r\n"),
        ("semicolons.csv", "id;label;n\n007;NA;1\n008;None;\n"),
        ("a.TSV", "id\tlabel\tn\n007\tNA\t1\n008\tNone\t\n"),
        ("quoted.csv", 'id,label,n\n"007","NA",1\n\n008,None,""\n'),
        ("a.jsonl", "".join(json.dumps(row) + "\n" for row in ROWS)),
        ("a.ndjson", "\n".join(json.dumps(row) for row in ROWS)),
    ],
)
def test_cells_are_read_as_they_were_written(write, name, content):
    assert read_table(write(name, content)).to_dict("records") == ROWS


def test_parquet_keeps_whole_numbers_whole_where_some_are_missing(tmp_path):
    table = pa.table({"id": ["007", "008"], "n": pa.array([1, None], pa.int64())})
    pq.write_table(table, tmp_path / "a.parquet")
    found = read_table(tmp_path / "a.parquet")
    assert found["id"].tolist() == ["007", "008"]
    assert found["n"].tolist() == [1, None]


BROKEN = {
    "an unclosed quote": ("a.csv", 'a,b\n1,"x\n2,y\n', "cannot be read as a table: EOF inside string .*quote"),
    "a stray separator": ("a.csv", "a,b\n1,2\n1,2,3\n", "Expected 2 fields in line 3, saw 3; look there"),
    "unnamed columns": ("a.csv", "a,b\n1,2,3\n4,5,6\n", "more fields than its first line names columns"),
    "an empty file": ("a.csv", "", "is empty; its first line must name the columns"),
    "a header alone": ("a.csv", "a,b\n", "has no rows"),
    "latin1": ("a.csv", "a,b\nNiña,2\n".encode("latin1"), "is not utf-8 .*--encoding latin1"),
    "utf-16": ("a.csv", "a,b\n1,2\n".encode("utf-16"), "is not utf-8 .*--encoding utf-16"),
    "latin1 lines": ("a.jsonl", '{"a": "ñ"}'.encode("latin1"), "is not utf-8 .*--encoding latin1"),
    "no json": ("a.jsonl", '{"a": 1}\n{"a": \n', "line 2 of .* is no JSON"),
    "no object": ("a.jsonl", "[1, 2]\n", "line 1 of .* is a list; write one object a line"),
    "corrupt parquet": ("a.parquet", b"PAR1 something PAR1", "cannot be read as Parquet"),
    "no parquet": ("a.parquet", b"", "cannot be read as Parquet"),
}


@pytest.mark.parametrize(("name", "content", "told"), BROKEN.values(), ids=BROKEN.keys())
def test_a_broken_file_says_what_to_repair(write, name, content, told):
    with pytest.raises(InputError, match=told) as error:
        read_table(write(name, content))
    assert "\n" not in str(error.value)


def test_another_encoding_can_be_named(write):
    path = write("a.csv", "a,b\nNiña,2\n".encode("latin1"))
    assert read_table(path, "latin1")["a"].tolist() == ["Niña"]
    with pytest.raises(InputError, match="there is no encoding 'klingon'"):
        read_table(path, "klingon")


# ---------------------------------------------------------------------------------------------------------------
# Hugging Face


def save_to_disk(path: Path, **columns: Any) -> None:
    """As ``datasets`` does it."""
    path.mkdir()
    table = pa.table({name: pa.array(values) for name, values in columns.items()})
    with pa.OSFile(str(path / "data-00000-of-00001.arrow"), "wb") as file, pa.ipc.new_stream(file, table.schema) as out:
        out.write_table(table)
    features = {name: {"dtype": "string", "_type": "Value"} for name in columns}
    features["label"] = {"names": ["bad", "good"], "_type": "ClassLabel"}
    (path / "dataset_info.json").write_text(json.dumps({"features": features}))
    (path / "state.json").write_text(json.dumps({"_data_files": [{"filename": "data-00000-of-00001.arrow"}]}))


def test_a_saved_data_set_is_read_with_the_names_of_its_classes(tmp_path):
    save_to_disk(tmp_path / "mine", text=["a", "b", "c"], label=[1, 0, -1])
    assert is_hf_folder(tmp_path / "mine")
    assert not is_hf_folder(tmp_path)
    assert read_hf_folder(tmp_path / "mine").to_dict("list") == {"text": ["a", "b", "c"], "label": ["good", "bad", ""]}


def test_a_data_set_saved_by_the_package_itself_is_read_too(tmp_path):
    datasets = pytest.importorskip("datasets")
    features = datasets.Features({"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["x", "y"])})
    made = datasets.Dataset.from_dict({"text": ["a", "b", "c"], "label": [1, 0, 1]}, features=features)
    made.save_to_disk(tmp_path / "mine")
    assert read_hf_folder(tmp_path / "mine")["label"].tolist() == ["y", "x", "y"]
    datasets.DatasetDict({"train": made, "test": made}).save_to_disk(tmp_path / "both")
    with pytest.raises(InputError, match=r"holds several splits \(test, train\); name one"):
        read_hf_folder(tmp_path / "both")


def test_a_damaged_data_set_says_so(tmp_path):
    save_to_disk(tmp_path / "mine", label=[1, 0])
    (tmp_path / "mine" / "data-00000-of-00001.arrow").write_bytes(b"gone")
    with pytest.raises(InputError, match="is no data set that `datasets` saved"):
        read_hf_folder(tmp_path / "mine")


def test_a_name_on_the_hub_needs_the_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(
        InputError, match=r"hf:imdb needs the package datasets; install it with: pip install 'stepe\[hf\]'"
    ):
        read_hf_hub("hf:imdb")


class Sliced:
    """An Arrow table that gives itself for any slice."""

    def __init__(self, table: pa.Table):
        self.table = table

    def __getitem__(self, rows: slice) -> pa.Table:
        return self.table


def test_a_name_on_the_hub_is_loaded_by_split(monkeypatch):
    asked = []

    def load_dataset(name: str, split: str, *, trust_remote_code: bool) -> Any:
        assert not trust_remote_code
        asked.append((name, split))
        if name == "missing":
            raise ValueError("no such data set\nand more")
        table = pa.table({"text": ["a", "b"], "label": [1, 0]})
        features = {"text": SimpleNamespace(), "label": SimpleNamespace(names=["bad", "good"])}
        return SimpleNamespace(features=features, with_format=lambda kind: Sliced(table))

    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=load_dataset))
    assert read_hf_hub("hf:stanford/imdb:test")["label"].tolist() == ["good", "bad"]
    read_hf_hub("hf:imdb")
    assert asked == [("stanford/imdb", "test"), ("imdb", "train")]
    with pytest.raises(InputError, match="hf:missing cannot be loaded: no such data set; check the name"):
        read_hf_hub("hf:missing")


# ---------------------------------------------------------------------------------------------------------------
# Columns


def test_ids_texts_and_leaks_are_left_out_by_name():
    n = 40
    draw = np.random.default_rng(0)
    labels = [["cat", "dog"][i % 2] for i in range(n)]
    table = pd.DataFrame(
        {
            "row": [str(i) for i in range(n)],
            "code": [f"X{i}" for i in range(n)],
            "user_id": [str(i * i) for i in range(n)],
            "class_number": [str(i % 2) for i in range(n)],
            "note": [f"seen it {i} times" for i in range(n)],
            "size": [str(value) for value in draw.normal(size=n)],
            "bytes": [str(7 * i * i + 3) for i in range(n)],
            "colour": [["red", "blue", "green"][i % 3] for i in range(n)],
        }
    )
    found, told = without_ids_and_leaks(table, labels)
    assert list(found.columns) == ["size", "bytes", "colour"]
    assert told == [
        "column 'row' looks like an id (hardly two values are alike) and is left out",
        "column 'code' looks like an id (hardly two values are alike) and is left out",
        "column 'user_id' looks like an id (hardly two values are alike) and is left out",
        "column 'class_number' says the same as the labels in other words and is left out",
        "column 'note' looks like text and is left out; to learn from it, say --text note",
    ]


def test_features_are_named_one_by_one_or_by_pattern():
    table = pd.DataFrame({"e_0": ["1", "2"], "e_1": ["3", "4"], "word": ["x", "y"], "v": [[1, 2], [3, 4]]})
    assert expand_features(table, ["e_1", "e_*"], "t") == ["e_1", "e_0"]
    assert feature_matrix(table, ["e_0", "e_1"], "t").tolist() == [[1, 3], [2, 4]]
    assert feature_matrix(table, ["v"], "t").tolist() == [[1, 2], [3, 4]]
    with pytest.raises(InputError, match=r"t has no column 'f_\*' for --features; it has e_0, e_1, word, v"):
        expand_features(table, ["f_*"], "t")
    with pytest.raises(InputError, match=r"column 'word' of t is not numeric \(it holds 'x'\)"):
        feature_matrix(table, ["e_0", "word"], "t")
    with pytest.raises(InputError, match="the vectors in column 'v' of t differ in length"):
        feature_matrix(pd.DataFrame({"v": [[1, 2], [3]]}), ["v"], "t")
