"""Workbooks: what is read of them, and the CSV file that they become."""

import importlib
import sys
from collections.abc import Callable
from datetime import date, datetime, time
from pathlib import Path
from typing import Any

import pytest

import stepe
from stepe import InputError
from stepe.review.cleaned import write_cleaned
from stepe.tables.formats import read_rows
from stepe.tables.spreadsheet import sheets

openpyxl = pytest.importorskip("openpyxl")


@pytest.fixture
def workbook(tmp_path) -> Callable[..., Path]:
    def workbook(*rows: tuple[Any, ...], more: str | None = None) -> Path:
        made = openpyxl.Workbook()
        for row in rows:
            made.active.append(row)
        if more is not None:
            made.create_sheet(more).append(["other"])
        path: Path = tmp_path / "films.xlsx"
        made.save(path)
        return path

    return workbook


def test_cells_are_read_as_people_see_them(workbook):
    path = workbook(
        (),
        ("id", "when", "n", "", "id"),
        ("007", datetime(2020, 2, 29), 1.0, "x", True),
        (),
        (7, datetime(2020, 2, 29, 12, 30), 0.5, None, False),
        ("a\nb", date(2020, 1, 1), None, " ", time(8, 15)),
    )
    assert [list(row.values()) for row in read_rows(path)] == [
        ["007", "2020-02-29", "1", "x", "True"],
        ["7", "2020-02-29 12:30:00", "0.5", None, "False"],
        ["a\nb", "2020-01-01", None, " ", "08:15:00"],
    ]
    assert list(next(read_rows(path))) == ["id", "when", "n", "Unnamed: 3", "id.1"]


def test_the_first_sheet_is_read(workbook):
    path = workbook(("a", "b"), (1, 2), more="notes")
    assert sheets(path) == ["Sheet", "notes"]
    assert list(read_rows(path)) == [{"a": "1", "b": "2"}]


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ((1, 2, 3), r"cell C2 of .*films\.xlsx is in a column that has no name; name it, or empty the cell"),
        ((1, "=A2+1"), r"cell B2 of .*films\.xlsx holds a formula that was never computed; open the file in"),
    ],
)
def test_what_cannot_be_read_is_named_by_its_cell(workbook, row, told):
    with pytest.raises(InputError, match=told):
        list(read_rows(workbook(("a", "b"), row)))


def test_a_damaged_workbook_says_so(tmp_path):
    (tmp_path / "films.xlsx").write_bytes(b"PK\3\4 no workbook")
    with pytest.raises(InputError, match=r"films\.xlsx cannot be read as a workbook .*; save it again, or as \.csv"):
        list(read_rows(tmp_path / "films.xlsx"))


def test_without_the_package_the_way_to_it_is_told(workbook, monkeypatch):
    path = workbook(("a", "b"), (1, 2))
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    with pytest.raises(ImportError):
        importlib.import_module("openpyxl")
    told = r"films\.xlsx needs the package openpyxl; install it with: pip install 'stepe\[spreadsheet\]', or save it as"
    with pytest.raises(InputError, match=told):
        stepe.clean(path, label="b")


@pytest.mark.parametrize("mode", ["mark", "drop", "relabel"])
def test_a_workbook_is_written_again_as_csv_and_stays_as_it_was(workbook, tmp_path, mode):
    rows = [(f"{i:03}", f"{'good' if i % 2 else 'bad'} {i}", ["a", "b"][i % 2 and i != 5]) for i in range(40)]
    path = workbook(("id", "text", "label"), *rows, more="notes")
    before = path.read_bytes()
    said: list[str] = []
    options = {"text": "text", "id": "id", "rho_max": 0.3, "epochs": 2, "probe": "in-sample", "device": "cpu"}
    run = stepe.clean(path, label="label", out=tmp_path / "run", say=said.append, **options)
    assert any(f"{path} has 2 sheets; the first, 'Sheet', is read" in line for line in said)
    said.clear()
    written = write_cleaned(run, mode, say=said.append)
    assert path.read_bytes() == before
    assert written == run.path / "cleaned.csv"
    assert written.read_bytes().startswith("\ufeffid,text,label".encode())  # a spreadsheet knows UTF-8 by its mark
    assert said[-1:] == [f"{written} has the rows of {path} as CSV: what else is in a workbook would be lost"]
    found = list(read_rows(written))
    suspects = set(run.issues["id"])
    assert [row["id"] for row in found] == [key for key, *_ in rows if mode != "drop" or key not in suspects]
    if mode == "mark":
        assert {row["id"] for row in found if row["stepe_flagged"] == "True"} == suspects
    with pytest.raises(InputError, match=r"does not end in \.csv, and the cleaned data of .* is written as that"):
        write_cleaned(run, mode, out=tmp_path / "cleaned.xlsx")
