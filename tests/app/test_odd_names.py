"""Odd characters wherever data may hold them: a run says so before it trains, or all of its files hold them."""

import io
import os
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from torch import nn

import stepe
from stepe.files import name_of_text
from stepe.review.cleaned import write_cleaned
from stepe.review.edits import MODES
from stepe.review.export import export
from stepe.review.reviewed import apply_reviewed, write_reviewed
from stepe.run.decisions import Action, Decision
from stepe.tables.cells import unescape

N = 24
QUICK = {"epochs": 2, "rho_max": 0.3, "probe": "in-sample", "device": "cpu"}
UNWRITABLE = {
    "half": "x\udce9y",
    "other half": "\ud800",
    "nul": "a\0b",
    "control": "\x1b[31mred",
    "no character": "\uffff",
}
ODD = {
    "cr": "a\rb",
    "crlf": "a\r\nb",
    "tab": "a\tb",
    "line": "a\u2028b",
    "formula": "=1+1",
    "quotes": "a\"b',;|",
    "markup": "]]></script><b>&amp;",
    "long": "l" * 5000,
    "right to left": "\u202eabc",
    "combining": "e\u0301",
    "backslash": r"a\xe9\u0041",
}


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)


def table(**columns: Any) -> pd.DataFrame:
    """Two classes of texts and numbers; cells are objects, which hold whatever they are given."""
    rows = range(N)
    own = {
        "key": [f"k{i}" for i in rows],
        "text": [f"{'good' if i % 2 else 'bad'} film {i}" for i in rows],
        "size": [(i % 2) * 5 + i / 10 for i in rows],
        "colour": ["blue" if i % 2 and i > 4 else "red" for i in rows],
        "label": ["b" if i % 2 and i > 3 else "a" for i in rows],
    }
    return pd.DataFrame({name: pd.Series(cells, dtype=object) for name, cells in (own | columns).items()})


def with_cell(column: str, value: Any) -> pd.DataFrame:
    """The table with a value in some rows of a column, of an id in one."""
    rows = [3] if column == "key" else [3, 5, 7]
    return table(**{column: [value if row in rows else cell for row, cell in enumerate(table()[column])]})


def with_column(column: str, name: str) -> pd.DataFrame:
    frame = table()
    frame.columns = pd.Index([name if found == column else found for found in frame], dtype=object)
    return frame


def pair(odd: str) -> tuple[Any, Any]:
    return np.random.default_rng(0).normal(size=(N, 3)), np.array(["a", odd] * (N // 2))


def photos(folder: Path, names: list[str], classes: tuple[str, str] = ("red", "blue")) -> Path:
    """Pictures of two classes, under names that may be no text."""
    draw = np.random.default_rng(0)
    for label, channel in zip(classes, (0, 2), strict=True):
        (folder / label).mkdir(parents=True)
        for name in names:
            picture = draw.integers(0, 80, (12, 14, 3), dtype=np.uint8)
            picture[..., channel] += 150
            content = io.BytesIO()
            Image.fromarray(picture).save(content, "PNG")
            (folder / label / name).write_bytes(content.getvalue())
    return folder


def read(path: Path) -> pd.DataFrame:
    return pd.read_csv(path, dtype=str, keep_default_na=False)


def check_files(run: stepe.Run, data: Any) -> None:
    """All that can be written of a run is written, and what readers of other programs find in it is what was there."""
    issues, shown = read(run.path / "issues.csv"), run.issues
    for column in ("id", "given_label", "suggested_label"):
        assert [unescape(cell) for cell in issues[column]] == shown[column].tolist()
    for mode in MODES:
        written = read(write_cleaned(run, mode, force=True))
        assert mode == "drop" or len(written) == len(run.samples)
    export(run, "label-studio", everything=True)
    offered = [choice.get("value") for choice in ElementTree.parse(run.path / "label-studio.xml").iter("Choice")]
    assert [name.split() for name in offered if name] == [name.split() for name in run.class_names]
    chosen = run.samples[run.samples["split"] == "train"].iloc[0]
    decision = Decision("train", int(chosen["row"]), "kept", chosen["given_label"])
    run.decisions.record(Action("one", (decision,)))
    assert apply_reviewed(run, write_reviewed(run)).total() == 1
    assert (run.path / "report.html").read_text(encoding="utf-8").endswith("</html>")
    assert set(run.predict(data)["predicted_label"]) <= set(run.class_names)


def refuse(data: Any, **options: Any) -> str:
    """The one line that refuses data, before anything is written."""
    with pytest.raises(stepe.InputError) as error:
        stepe.clean(data, **QUICK, **options)
    assert not Path("runs").exists()
    assert "\n" not in str(error.value)
    str(error.value).encode()
    return str(error.value)


@pytest.mark.parametrize("odd", UNWRITABLE.values(), ids=UNWRITABLE)
def test_what_files_cannot_hold_is_refused_by_row_and_value(odd):
    for column, told in {"key": "id", "label": "label"}.items():
        said = refuse(with_cell(column, odd), label="label", id="key")
        assert f"the {told} of row 3 (counted from 0) of table is {odd!r}" in said
    assert f"the label of row 1 (counted from 0) of arrays is {odd!r}" in refuse(pair(odd))
    for option in ("group", "split_by"):
        said = refuse(with_cell("colour", odd), label="label", **{option: "colour"})
        assert f"the --{option.replace('_', '-')} of row 3 (counted from 0) of table is {odd!r}" in said
    frame = table()
    frame.index = pd.Index([*range(N - 1), odd], dtype=object)
    assert f"the id of row {N - 1} (counted from 0) of table is {odd!r}" in refuse(frame, label="label")


@pytest.mark.parametrize("odd", UNWRITABLE.values(), ids=UNWRITABLE)
@pytest.mark.parametrize("column", ["key", "size", "colour"])
def test_columns_that_files_cannot_name_are_refused(odd, column):
    assert f"a column of table is {odd!r}" in refuse(with_column(column, odd), label="label")


@pytest.mark.parametrize("odd", UNWRITABLE.values(), ids=UNWRITABLE)
def test_folders_of_runs_and_data_that_files_cannot_name_are_refused(odd):
    table().to_csv("films.csv", index=False)
    assert f"out is {odd!r}" in refuse("films.csv", label="label", out=odd)
    with pytest.raises(stepe.InputError, match="the run folder is"):
        stepe.fit(nn.Linear(3, 2), np.zeros((8, 3), "f"), np.arange(8) % 2, epochs=1, rho_max=0.1, run=odd)
    if "\0" in odd or "\ud800" in odd:  # a name that no file has
        return
    Path("films.csv").rename(f"{odd}.csv")
    assert f"the path of the data is {str(Path(f'{odd}.csv').absolute())!r}" in refuse(f"{odd}.csv", label="label")


TEXTS = (
    "label",
    "text",
    "id",
    "test",
    "encoding",
    "model",
    "noise",
    "probe",
    "data_dir",
    "decisions",
    "device",
    "track",
)


@pytest.mark.parametrize("option", TEXTS)
def test_options_that_files_cannot_hold_are_refused(option):
    for value in ("a\0b", "\udce9", ["tensorboard:\udce9"]):
        if option == "track" or isinstance(value, str):
            with pytest.raises(stepe.InputError, match=f"^{option} is .* cannot be written into every file of a run"):
                stepe.clean(table(), **{"label": "label", "epochs": 2, option: value})


def test_texts_and_cells_that_are_only_shown_may_hold_anything():
    for column, layout in {"text": {"text": "text"}, "colour": {}}.items():
        cells = [*UNWRITABLE.values(), *UNWRITABLE.values(), *table()[column][2 * len(UNWRITABLE) :]]
        data = table(**{column: cells})
        check_files(stepe.clean(data, label="label", id="key", **layout, **QUICK), data)


def test_odd_ids_and_labels_are_the_same_in_all_files():
    odd = [*ODD.values(), *(f"{name}2" for name in ODD)]
    for column in ("key", "label"):
        cells = [*odd, "k22", "k23"] if column == "key" else [*ODD.values(), *ODD.values(), "a", "a"]
        data = table(**{column: cells})
        run = stepe.clean(data, label="label", id="key", **QUICK)
        assert set(run.samples["id" if column == "key" else "given_label"]) == set(cells)
        check_files(run, data)
        assert set(read(run.path / "cleaned.csv")["id" if column == "key" else "label"]) == set(cells)


def test_columns_may_have_odd_names():
    numbers = np.random.default_rng(0).normal(size=(N, len(ODD)))
    data = pd.concat([table(), pd.DataFrame(numbers, columns=list(ODD.values()))], axis=1)
    check_files(stepe.clean(data, label="label", id="key", **QUICK), data)
    for odd in (ODD["markup"], ODD["cr"]):
        data = with_column("label", odd)
        check_files(stepe.clean(data, label=odd, id="key", **QUICK), data)


def test_names_of_pictures_that_are_no_text_are_written_byte_by_byte():
    plain = [f"{i}.png" for i in range(6)]
    odd = [os.fsdecode(name) for name in (b"caf\xe9.png", b"\xff\xfe.png", b"\x01.png", b"a\\xe9.png", b"=1\n,'.png")]
    data = photos(Path("photos"), plain + odd, ("red", os.fsdecode(b"bl\xe9")))
    run = stepe.clean("photos", **QUICK)
    assert run.class_names == [r"bl\xe9", "red"]
    assert {r"red/caf\xe9.png", r"bl\xe9/\xff\xfe.png", r"red/\x01.png", r"red/a\x5cxe9.png"} <= set(run.samples["id"])
    assert all((data / name_of_text(name)).is_file() for name in run.samples["id"])
    check_files(run, "photos")
    export(run, "fiftyone", everything=True)
    (data / "red" / odd[0]).unlink()
    with pytest.raises(stepe.RunError, match=r"there is no red/caf\\xe9.png any more"):
        write_cleaned(run)


@pytest.mark.parametrize(
    ("columns", "told"),
    [
        (["a", "a", "label"], "table has more than one column 'a'; give each a name of its own"),
        (["a", "label", "label"], "table has more than one column 'label'; give each a name of its own"),
        ([1, "1", "label"], "table has more than one column '1'; give each a name of its own"),
        ([("a", 1), ("a", 2), ("label", "")], "the columns of table have 2 names each; give each one, as text"),
    ],
)
def test_names_that_say_nothing_of_one_column_alone_are_refused(columns, told):
    frame = pd.DataFrame([[i, i % 3, "ab"[i % 2]] for i in range(N)])
    frame.columns = pd.Index(columns)
    assert refuse(frame, label="label") == told


def test_numbers_may_name_columns():
    data = table().set_axis(range(5), axis=1)
    assert refuse(data, label=4) == "label is 4; it must be a text"
    check_files(stepe.clean(data, label="4", **QUICK), data)


def test_bytes_that_are_no_text_stay_two_classes():
    labels = np.array([b"a", b"\xff", b"\xfe"] * 8)
    run = stepe.clean((np.random.default_rng(0).normal(size=(N, 3)), labels), **QUICK)
    assert run.class_names == [r"\xfe", r"\xff", "a"]


def test_half_a_character_in_a_text_reaches_other_tools_as_it_was():
    Path("films.jsonl").write_text(
        "".join(f'{{"text": "{"ab"[i % 2]} \\ud800 {i}", "label": "{"xy"[i % 2]}"}}\n' for i in range(N))
    )
    run = stepe.clean("films.jsonl", label="label", text="text", **QUICK)
    assert r"a \ud800 0" in export(run, "label-studio", everything=True).read_text(encoding="utf-8")
    assert r"a \ud800 0" in write_cleaned(run).read_text(encoding="utf-8")
