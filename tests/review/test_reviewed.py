import csv
import io
import json
from pathlib import Path

import pandas as pd
import pytest

from stepe import InputError, Run
from stepe.review.cleaned import write_cleaned
from stepe.review.reviewed import COLUMNS, apply_reviewed, read_reviewed, reviewed_text, write_reviewed
from stepe.run.decisions import Action, Decision
from stepe.run.paths import remember

NASTY = ("=1+1", "'=1+1", "a,b\r\nc", "\rd", "שלום")
HEADER = ",".join(COLUMNS)


@pytest.fixture
def run(tmp_path) -> Run:
    """Six samples of a table, the first five flagged; the last is held out."""
    classes = ["cat", "dog", "cow", *NASTY]
    data = pd.DataFrame({"text": list("uvwxyz"), "label": ["cat", "cat", "dog", "=1+1", "cat", "dog"]})
    data.to_csv(tmp_path / "data.csv", index=False)
    samples = pd.DataFrame(
        {
            "rank": range(1, 7),
            "id": ["007", "-1", "@x", "d", "e", "f"],
            "row": range(6),
            "split": ["train"] * 5 + ["test"],
            "given_label": data["label"],
            "suggested_label": ["dog", "dog", "cat", "'=1+1", "", "dog"],
            "suspicion": 0.9,
            "flagged": [True] * 5 + [False],
            "dropped": True,
            "status": "open",
        }
    )
    folder = tmp_path / "run"
    folder.mkdir()
    request = {"data": str(tmp_path / "data.csv"), "label": "label"}
    config = {"format": 1, "request": request, "fit": {"method": "step-e"}, "class_names": classes}
    (folder / "config.json").write_text(json.dumps(config))
    samples.to_parquet(folder / "samples.parquet", index=False)
    (folder / "summary.json").write_text("{}")
    return Run(folder)


@pytest.fixture
def sure(run) -> Run:
    """The same, finished, with suggestions that are surely right."""
    run.samples.assign(suggestion_confidence=0.95).to_parquet(run.path / "samples.parquet", index=False)
    (run.path / "summary.json").write_text(json.dumps({"flagged": 5, "samples": 5}))
    return Run(run.path)


@pytest.fixture
def write(tmp_path):
    def write(*lines: str, header: str = HEADER) -> Path:
        path = tmp_path / "reviewed.csv"
        path.write_text("\n".join([header, *lines]) + "\n", encoding="utf-8")
        return path

    return write


def decide(run: Run, *decisions: tuple[int, str, str | None], split: str = "train") -> Run:
    for row, verdict, label in decisions:
        run.decisions.record(Action(f"{split}{row}{verdict}", (Decision(split, row, verdict, label),)))
    return Run(run.path)


def test_the_samples_of_a_run_know_what_was_decided(run):
    assert "reviewed_label" not in run.samples
    run = decide(run, (0, "accepted", "dog"), (1, "kept", "cat"), (2, "relabelled", "cow"), (3, "unsure", None))
    assert run.samples["status"].tolist() == ["accepted", "kept", "relabelled", "unsure", "open", "open"]
    assert run.samples["reviewed_label"].tolist() == ["dog", "cat", "cow", "", "", ""]


def test_decisions_survive_their_way_through_a_file(run, tmp_path):
    before = decide(
        run, (0, "relabelled", "a,b\r\nc"), (1, "kept", "cat"), (2, "unsure", None), (3, "accepted", "'=1+1")
    ).decisions.current()
    decide(run, (4, "relabelled", "\rd"))
    path = write_reviewed(run)
    (tmp_path / "other").mkdir()
    for name in ("config.json", "samples.parquet", "summary.json"):
        (tmp_path / "other" / name).write_bytes((run.path / name).read_bytes())
    other = Run(tmp_path / "other")
    count = apply_reviewed(other, path)
    assert count == {"relabelled": 2, "kept": 1, "unsure": 1, "accepted": 1}
    assert reviewed_text(other) == reviewed_text(run)
    assert {key: made.label for key, made in other.decisions.current().items()}.items() >= {
        key: made.label for key, made in before.items()
    }.items()


def test_a_spreadsheet_runs_nothing_of_it(run):
    decide(run, (1, "accepted", "dog"), (2, "relabelled", "=1+1"), (3, "kept", "=1+1"))
    rows = list(csv.reader(io.StringIO(reviewed_text(run), newline="")))
    assert rows[1] == ["1", "'-1", "train", "cat", "dog", "accepted", "dog"]
    assert rows[2][1] == "'@x"
    assert not any(cell.startswith(("=", "+", "-", "@", "\t", "\r", "\n")) for row in rows for cell in row)


def test_a_hand_written_file_needs_no_more_than_verdicts(run, write):
    path = write(
        "0,007,,cat,,accepted,", "1,'-1,train,cat,dog, Kept ,", "", "2,'@x,train,dog,,open,", "5,f,test,dog,,,"
    )
    assert [(made.row, made.verdict, made.label) for made in read_reviewed(run, path)] == [
        (0, "accepted", "dog"),
        (1, "kept", "cat"),
    ]


@pytest.mark.parametrize("delimiter", [";", "\t"])
def test_spreadsheets_may_choose_the_delimiter_and_add_a_mark(run, write, delimiter):
    path = write("0,007,train,cat,dog,kept,cat".replace(",", delimiter), header=HEADER.replace(",", delimiter))
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n"))
    assert [made.verdict for made in read_reviewed(run, path)] == ["kept"]


def test_choosing_what_was_given_or_suggested_is_no_relabelling(run, write):
    path = write("0,007,train,cat,dog,relabelled,dog", "1,'-1,train,cat,dog,relabelled,cat")
    assert [made.verdict for made in read_reviewed(run, path)] == ["accepted", "kept"]


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("9,x,train,cat,dog,kept,", "no labelled sample in row 9"),
        ("0,007,test,cat,dog,kept,", "no labelled sample in row 0 of its test data"),
        ("0.5,007,train,cat,dog,kept,", "whole number"),
        (f"{'9' * 5_000},007,train,cat,dog,kept,", "whole number"),
        (f"0,{'x' * 200_000},train,cat,dog,kept,", "row 0 .* has '007'"),
        ("0,7,train,cat,dog,kept,", "id is '7', and row 0 .* has '007'"),
        ("0,007,train,dog,dog,kept,", "given_label is 'dog', and row 0 .* has 'cat'"),
        ("0,007,train,cat,dog,maybe,", "verdict is 'maybe'; write one of accepted"),
        ("0,007,train,cat,dog,relabelled,", "no label; write the right one"),
        ("0,007,train,cat,dog,relabelled,pig", "no class 'pig'"),
        ("0,007,train,cat,dog,accepted,cow", "accepted, which means 'dog', but has the label 'cow'"),
        ("4,e,train,cat,,accepted,", "no suggestion to accept"),
    ],
)
def test_a_line_that_makes_no_sense_is_named_and_nothing_applied(run, write, line, complaint):
    path = write("1,'-1,train,cat,dog,kept,cat", '2,"\'@x",train,dog,"c\nat",kept,dog', line)
    with pytest.raises(InputError, match=rf"line 5 of .*{complaint}"):
        apply_reviewed(run, path)
    assert run.decisions.current() == {}


def test_two_verdicts_on_a_row_must_agree(run, write):
    same = ("0,007,train,cat,dog,accepted,dog", "0,007,train,cat,dog,accepted,")
    assert len(read_reviewed(run, write(*same))) == 1
    with pytest.raises(InputError, match=r"line 3 of .* line 2 already, otherwise"):
        read_reviewed(run, write(same[0], "0,007,train,cat,dog,unsure,"))


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"row,verdict\n", "no column 'id'; its first line must be row,id"),
        (b"", "no column 'row'"),
        (b"row\xff", "not UTF-8"),
        (None, "cannot be read"),
    ],
)
def test_what_is_no_table_of_decisions_is_refused(run, tmp_path, content, complaint):
    path = tmp_path / "reviewed.csv"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError, match=complaint):
        read_reviewed(run, path)


def test_a_file_replaces_what_it_speaks_of_and_leaves_the_rest(run, write):
    decide(run, (0, "accepted", "dog"), (1, "accepted", "dog"))
    path = write("0,007,train,cat,dog,unsure,")
    apply_reviewed(run, path)
    entries = run.decisions.last
    apply_reviewed(run, path)
    assert run.decisions.last == entries
    assert {key.row: made.verdict for key, made in run.decisions.current().items()} == {0: "unsure", 1: "accepted"}


@pytest.mark.parametrize(
    ("mode", "labels"),
    [
        ("mark", ["dog", "cat", "cow", "=1+1", "cat", "dog"]),
        ("drop", ["dog", "cat", "cow", "dog"]),
        ("relabel", ["dog", "cat", "cow", "'=1+1", "cat", "dog"]),
    ],
)
def test_the_cleaned_data_has_what_people_chose(sure, mode, labels):
    run = decide(sure, (0, "accepted", "dog"), (1, "kept", "cat"), (2, "relabelled", "cow"), (3, "unsure", None))
    remember(run.path)
    cleaned = pd.read_csv(write_cleaned(run, mode), dtype=str, keep_default_na=False)
    assert cleaned["label"].tolist() == labels
    if mode == "mark":
        assert cleaned["stepe_flagged"].tolist() == ["False", "False", "False", "True", "True", "False"]
        assert cleaned["stepe_suggested"].tolist() == ["", "", "", "'=1+1", "", ""]
