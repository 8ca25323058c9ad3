"""The cleaned file: what was found is in it, and nothing else is touched."""

import csv
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import stepe
from stepe import InputError, Run, RunError
from stepe.review.cleaned import write_cleaned
from stepe.review.edits import verdicts
from stepe.run.paths import remember

MARKED = ("stepe_flagged", "stepe_suggested", "stepe_suspicion")


def make_samples(given: list[str], suspects: dict[int, str], skipped: tuple[int, ...] = ()) -> pd.DataFrame:
    """Samples of a run; ``suspects`` are flagged rows and what they might be."""
    rows = [row for row in range(len(given)) if row not in skipped]
    return pd.DataFrame(
        {
            "rank": range(1, len(rows) + 1),
            "id": [f"{row:03}" for row in rows],
            "row": rows,
            "split": ["test" if row % 4 == 3 else "train" for row in rows],
            "given_label": [given[row] for row in rows],
            "suggested_label": [suspects.get(row, given[row]) for row in rows],
            "suspicion": [0.9375 if row in suspects else 0.25 for row in rows],
            "suggestion_confidence": 0.95,
            "flagged": [row in suspects for row in rows],
            "status": "open",
        }
    )


@pytest.fixture
def make_run(tmp_path):
    """The few files of a run that was made from ``data``."""

    def make(data: Path | None, samples: pd.DataFrame, **request) -> Run:
        folder = tmp_path / "run"
        folder.mkdir(exist_ok=True)
        request = {"data": None if data is None else str(data), "label": "label", **request}
        config = {"format": 1, "request": request, "fit": {"method": "step-e"}, "class_names": ["NA", "b"]}
        (folder / "config.json").write_text(json.dumps(config))
        samples.to_parquet(folder / "samples.parquet", index=False)
        (folder / "summary.json").write_text(
            json.dumps({"flagged": int(samples["flagged"].sum()), "samples": len(samples)})
        )
        remember(folder)
        return Run(folder)

    return make


# ---------------------------------------------------------------------------------------------------------------
# CSV and TSV

NASTY = (
    '\ufeff"id",text,label,"n, of\r\nthem"\r\n'
    '007,"say ""hi"", all\r\nof you",NA,1.50\r\n'
    "\r\n"
    "008, spaced ,b,1e3\r\n"
    "009,ünï,NA,\r\n"
    '010,"","b","2"'
)
GIVEN = ["NA", "b", "NA", "b"]


@pytest.fixture
def nasty(tmp_path) -> Path:
    """Ids with zeros, a class NA, CRLF, a BOM, quotes, lines within cells, a blank line, no line end at the end."""
    path = tmp_path / "nasty.csv"
    path.write_bytes(NASTY.encode())
    return path


def test_marks_come_last_and_all_else_stays(nasty, make_run):
    run = make_run(nasty, make_samples(GIVEN, {0: "b"}))
    written = write_cleaned(run)
    assert written == run.path / "cleaned.csv"
    assert written.read_bytes().decode() == (
        '\ufeff"id",text,label,"n, of\r\nthem",stepe_flagged,stepe_suggested,stepe_suspicion\r\n'
        '007,"say ""hi"", all\r\nof you",NA,1.50,True,b,0.937500\r\n'
        "\r\n"
        "008, spaced ,b,1e3,False,,0.250000\r\n"
        "009,ünï,NA,,False,,0.250000\r\n"
        '010,"","b","2",False,,0.250000'
    )


def test_relabelling_changes_the_label_and_nothing_else(nasty, make_run):
    run = make_run(nasty, make_samples(GIVEN, {0: "b", 2: 'c, "quoted"', 3: "NA"}))
    expected = NASTY.replace('of you",NA', 'of you",b').replace("ünï,NA", 'ünï,"c, ""quoted"""')
    expected = expected.replace('"","b"', '"","NA"')  # a file that quotes without need goes on doing so
    assert write_cleaned(run, "relabel").read_bytes().decode() == expected


def test_dropping_leaves_out_the_whole_record(nasty, make_run):
    run = make_run(nasty, make_samples(GIVEN, {0: "b"}))
    expected = NASTY.replace('007,"say ""hi"", all\r\nof you",NA,1.50\r\n', "")
    assert write_cleaned(run, "drop").read_bytes().decode() == expected


def test_a_file_without_a_last_line_end_stays_so_when_its_last_row_is_dropped(nasty, make_run):
    run = make_run(nasty, make_samples(GIVEN, {3: "NA"}))
    assert write_cleaned(run, "drop").read_bytes().decode() == NASTY.removesuffix('\r\n010,"","b","2"')


@pytest.mark.parametrize("mode", ["drop", "relabel"])
def test_without_suspects_the_copy_is_the_file(nasty, make_run, mode):
    assert write_cleaned(make_run(nasty, make_samples(GIVEN, {})), mode).read_bytes() == nasty.read_bytes()


def test_a_skipped_row_stays_unmarked(nasty, make_run):
    run = make_run(nasty, make_samples(GIVEN, {0: "b"}, skipped=(1,)))
    with write_cleaned(run).open(encoding="utf-8-sig", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["label"]]
    assert [tuple(row[mark] for mark in MARKED) for row in rows][:2] == [("True", "b", "0.937500"), ("", "", "")]


def test_a_tsv_stays_one(tmp_path, make_run):
    path = tmp_path / "mine.tsv"
    path.write_bytes(b'label\ttext\nNA\ta,b\nb\t"c\td"\n')
    run = make_run(path, make_samples(["NA", "b"], {1: "NA"}))
    assert write_cleaned(run, "relabel").read_bytes() == b'label\ttext\nNA\ta,b\nNA\t"c\td"\n'
    assert run.path.joinpath("cleaned.tsv").exists()


def test_other_delimiters_and_bytes_that_are_no_text_are_kept(tmp_path, make_run):
    path = tmp_path / "mine.csv"
    path.write_bytes(b"text;label\ncaf\xe9, au lait;b\nx;NA\n")
    run = make_run(path, make_samples(["b", "NA"], {0: "NA"}))
    assert write_cleaned(run, "relabel").read_bytes() == b"text;label\ncaf\xe9, au lait;NA\nx;NA\n"


def test_a_short_record_is_filled_up_before_its_marks(tmp_path, make_run):
    path = tmp_path / "mine.csv"
    path.write_text("label,a,b\nNA,1\nb,1,2\n")
    lines = write_cleaned(make_run(path, make_samples(["NA", "b"], {}))).read_text().splitlines()
    assert lines[1:] == ["NA,1,,False,,0.250000", "b,1,2,False,,0.250000"]


def test_a_cell_may_be_longer_than_the_csv_module_likes(tmp_path, make_run):
    path = tmp_path / "mine.csv"
    path.write_text(f"text,label\n{'x' * 200_000},NA\ny,b\n")
    limit = csv.field_size_limit()
    written = write_cleaned(make_run(path, make_samples(["NA", "b"], {0: "b"})), "relabel")
    assert written.read_text() == f"text,label\n{'x' * 200_000},b\ny,b\n"
    assert csv.field_size_limit() == limit


def test_marks_make_way_for_columns_of_the_same_name(tmp_path, make_run):
    path = tmp_path / "mine.csv"
    path.write_text("label,stepe_flagged\nNA,1\nb,2\n")
    header = write_cleaned(make_run(path, make_samples(["NA", "b"], {}))).read_text().splitlines()[0]
    assert header == "label,stepe_flagged,stepe_flagged_2,stepe_suggested_2,stepe_suspicion_2"


def test_a_row_without_a_label_gets_a_suggestion_and_is_no_suspect(tmp_path, make_run):
    path = tmp_path / "mine.csv"
    path.write_text("text,label\nx,\ny,b\n")
    samples = make_samples(["", "b"], {}).assign(suggested_label=["NA", "b"])
    run = make_run(path, samples)
    assert write_cleaned(run).read_text().splitlines()[1] == "x,,False,NA,0.250000"
    assert write_cleaned(run, "relabel").read_bytes() == path.read_bytes()


# ---------------------------------------------------------------------------------------------------------------
# JSON lines

LINES = '{"label":"NA","n":1.50,"more":{"label":"b"}}\r\n\r\n{ "n": 007e0, "label" : "b" }'.replace("007e0", "7e0")


@pytest.fixture
def lines(tmp_path) -> Path:
    path = tmp_path / "mine.jsonl"
    path.write_bytes(LINES.encode())
    return path


def test_json_lines_change_in_one_value_only(lines, make_run):
    run = make_run(lines, make_samples(["NA", "b"], {0: "ü", 1: "NA"}))
    expected = LINES.replace('"label":"NA"', '"label":"ü"').replace('"label" : "b"', '"label" : "NA"')
    assert write_cleaned(run, "relabel").read_bytes().decode() == expected


def test_json_lines_get_marks_as_further_keys(lines, make_run):
    run = make_run(lines, make_samples(["NA", "b"], {0: "b"}))
    assert write_cleaned(run).read_bytes().decode() == (
        '{"label":"NA","n":1.50,"more":{"label":"b"},'
        '"stepe_flagged":true,"stepe_suggested":"b","stepe_suspicion":0.9375}\r\n\r\n'
        '{ "n": 7e0, "label" : "b", "stepe_flagged": false, "stepe_suggested": "", "stepe_suspicion": 0.25 }'
    )


def test_dropped_json_lines_are_gone(lines, make_run):
    run = make_run(lines, make_samples(["NA", "b"], {1: "NA"}))
    assert write_cleaned(run, "drop").read_bytes().decode() == LINES.partition("\r\n")[0] + "\r\n"


def test_json_labels_that_are_numbers_stay_numbers(tmp_path, make_run):
    path = tmp_path / "mine.jsonl"
    path.write_text('{"label": 3}\n{"label": 12}\n{"label": true}\n')
    run = make_run(path, make_samples(["3", "12", "True"], {0: "12", 2: "False"}))
    assert write_cleaned(run, "relabel").read_text() == '{"label": 12}\n{"label": 12}\n{"label": false}\n'


# ---------------------------------------------------------------------------------------------------------------
# Parquet


@pytest.fixture
def parquet(tmp_path) -> Path:
    table = pa.table(
        {
            "id": pa.array(["007", None, "9"]),
            "n": pa.array([1, 2, 3], pa.int8()),
            "label": pa.DictionaryArray.from_arrays(pa.array([2, 0, 2], pa.int8()), ["b", "unused", "NA"]),
            "when": pa.array([0, 1, 2], pa.timestamp("ms", tz="UTC")),
        }
    ).replace_schema_metadata({"author": "me"})
    path = tmp_path / "mine.parquet"
    pq.write_table(table, path, compression="zstd")
    return path


def test_parquet_keeps_its_types_dictionary_and_metadata(parquet, make_run):
    run = make_run(parquet, make_samples(["NA", "b", "NA"], {0: "b"}))
    before, after = pq.read_table(parquet), pq.read_table(write_cleaned(run, "relabel"))
    assert after.schema.equals(before.schema, check_metadata=True)
    assert after["label"].to_pylist() == ["b", "b", "NA"]
    assert after["label"].chunk(0).dictionary.to_pylist() == ["b", "unused", "NA"]
    assert after.drop_columns("label").equals(before.drop_columns("label"))
    assert pq.ParquetFile(run.path / "cleaned.parquet").metadata.row_group(0).column(0).compression == "ZSTD"


def test_parquet_is_marked_by_typed_columns(parquet, make_run):
    run = make_run(parquet, make_samples(["NA", "b", "NA"], {0: "b"}, skipped=(1,)))
    after = pq.read_table(write_cleaned(run))
    assert after.select(pq.read_table(parquet).column_names).equals(pq.read_table(parquet))
    assert after["stepe_flagged"].to_pylist() == [True, None, False]
    assert after["stepe_suggested"].to_pylist() == ["b", None, None]
    assert after["stepe_suspicion"].to_pylist() == [0.9375, None, 0.25]


def test_parquet_rows_are_dropped(parquet, make_run):
    run = make_run(parquet, make_samples(["NA", "b", "NA"], {0: "b"}))
    assert pq.read_table(write_cleaned(run, "drop")).equals(pq.read_table(parquet).slice(1))


def test_parquet_labels_that_are_numbers_stay_numbers(tmp_path, make_run):
    path = tmp_path / "mine.parquet"
    pq.write_table(pa.table({"label": pa.array([3, None, 12], pa.int16())}), path)
    run = make_run(path, make_samples(["3", "", "12"], {0: "12"}))
    assert pq.read_table(write_cleaned(run, "relabel"))["label"].to_pylist() == [12, None, 12]


def test_a_data_frame_comes_back_from_its_parquet(tmp_path, make_run):
    frame = pd.DataFrame({"label": pd.Categorical(["b", "NA", "b"], categories=["NA", "b", "c"]), "x": [1, 2, 3]})
    frame.to_parquet(tmp_path / "mine.parquet")
    run = make_run(tmp_path / "mine.parquet", make_samples(["b", "NA", "b"], {2: "NA"}))
    after = pd.read_parquet(write_cleaned(run, "drop"))
    pd.testing.assert_frame_equal(after, frame[:2])


# ---------------------------------------------------------------------------------------------------------------
# npz, images, and labels that are in no file


def test_npz_arrays_are_marked_dropped_and_relabelled(tmp_path, make_run):
    x, y = np.arange(6.0, dtype=np.float32).reshape(3, 2), np.array([3, 12, 3], dtype=np.uint8)
    np.savez_compressed(tmp_path / "mine.npz", features=x, labels=y, about=np.array("mine"))
    run = make_run(tmp_path / "mine.npz", make_samples(["3", "12", "3"], {0: "12"}), label=None)
    with np.load(write_cleaned(run)) as marked:
        assert marked.files == ["features", "labels", "about", "flagged", "suggested", "suspicion"]
        assert marked["flagged"].tolist() == [True, False, False]
        np.testing.assert_array_equal(marked["features"], x)
    with np.load(write_cleaned(run, "relabel")) as relabelled:
        assert relabelled["labels"].tolist() == [12, 12, 3]
        assert relabelled["labels"].dtype == np.uint8
    with np.load(write_cleaned(run, "drop")) as dropped:
        np.testing.assert_array_equal(dropped["features"], x[1:])
        assert dropped["labels"].tolist() == [12, 3]
        assert dropped["about"] == "mine"


def test_a_folder_of_images_becomes_a_list(tmp_path, make_run):
    paths = ["b/1.png", "NA/ä, 2.png", "b/3.png"]
    for path in paths:
        (tmp_path / "photos" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "photos" / path).write_bytes(b"")
    run = make_run(tmp_path / "photos", make_samples(["b", "NA", "b"], {0: "NA"}).assign(id=paths), kind="images")
    assert write_cleaned(run, "relabel").read_text() == 'path,label\nb/1.png,NA\n"NA/ä, 2.png",NA\nb/3.png,b\n'
    assert write_cleaned(run, "drop").read_text() == 'path,label\n"NA/ä, 2.png",NA\nb/3.png,b\n'
    (tmp_path / "photos" / paths[2]).unlink()
    with pytest.raises(RunError, match=r"there is no b/3\.png any more"):
        write_cleaned(run)


@pytest.mark.parametrize("data", [None, "bundled:digits", "hf:imdb"])
def test_labels_that_are_in_no_file_become_a_list_of_ids(make_run, data):
    run = make_run(data, make_samples(["b", "NA"], {0: "NA"}))
    assert write_cleaned(run).read_text() == (
        "id,label,stepe_flagged,stepe_suggested,stepe_suspicion\n000,b,True,NA,0.937500\n001,NA,False,,0.250000\n"
    )


def test_pictures_of_a_hugging_face_data_set_are_no_files(tmp_path, make_run):
    (tmp_path / "saved").mkdir()
    (tmp_path / "saved" / "state.json").write_text("{}")
    run = make_run(tmp_path / "saved", make_samples(["b", "NA"], {0: "NA"}), kind="images")
    assert write_cleaned(run, "drop").read_text() == "id,label\n001,NA\n"


def test_planted_labels_are_in_no_file(nasty, make_run):
    run = make_run(nasty, make_samples(["b", "NA", "b", "NA"], {}), noise="symmetric:0.5")
    assert write_cleaned(run).read_text().splitlines()[1] == "000,b,False,,0.250000"


def test_held_out_rows_of_another_file_are_left_out(tmp_path, make_run):
    path = tmp_path / "mine.csv"
    path.write_text("label\nNA\nb\n")
    samples = make_samples(["NA", "b"], {})
    other = samples.assign(split="test", given_label="b", flagged=True, suggested_label="NA")
    run = make_run(path, pd.concat([samples, other]), test="other.csv")
    assert write_cleaned(run, "drop").read_bytes() == path.read_bytes()


def test_a_real_run_is_cleaned(tmp_path):
    draw = np.random.default_rng(0)
    label = np.arange(120) % 3
    x = 4 * draw.normal(size=(3, 5))[label] + draw.normal(size=(120, 5))
    given = np.where(draw.random(120) < 0.15, (label + 1) % 3, label)
    np.savez(tmp_path / "mine.npz", features=x, labels=np.array(["ant", "bee", "cat"])[given])
    run = stepe.clean(tmp_path / "mine.npz", rho_max=0.2, epochs=6, out=tmp_path / "run", device="cpu")
    assert len(run.issues) > 0
    with np.load(write_cleaned(run, "relabel")) as cleaned:
        names = cleaned["labels"]
    sure = run.issues[run.issues["suggestion_confidence"] >= 0.9]
    assert names[sure["row"]].tolist() == sure["suggested_label"].tolist()
    untouched = np.setdiff1d(np.arange(120), sure["row"])
    assert names[untouched].tolist() == np.array(["ant", "bee", "cat"])[given][untouched].tolist()


# ---------------------------------------------------------------------------------------------------------------
# A person decides how many


@pytest.fixture
def graded(tmp_path, make_run) -> Run:
    """Six rows in falling suspicion, two of which the run flags; the last is held out."""
    given = ["NA"] * 6
    path = tmp_path / "mine.csv"
    path.write_text("label\n" + "\n".join(given) + "\n")
    samples = make_samples(given, {0: "b", 1: "b"}).assign(
        suspicion=[0.95, 0.8, 0.5, 0.3, float("nan"), 0.99],
        suggestion_confidence=[0.95, 0.7, 0.5, 0.6, 0.9, 0.95],
        split=["train"] * 5 + ["test"],
    )
    return make_run(path, samples)


@pytest.mark.parametrize(
    ("asked", "flagged"),
    [
        ({}, [0, 1]),
        ({"top": 1}, [0]),
        ({"top": 3}, [0, 1, 2]),
        ({"top": 100}, [0, 1, 2, 3]),
        ({"min_suspicion": 0.9}, [0]),
        ({"min_suspicion": 0.5}, [0, 1, 2]),
        ({"top": 1, "min_suspicion": 0.5}, [0]),
    ],
)
def test_a_person_decides_how_many_are_suspects(graded, asked, flagged):
    marked = pd.read_csv(write_cleaned(graded, **asked), keep_default_na=False)
    assert np.flatnonzero(marked["stepe_flagged"].astype(str) == "True").tolist() == flagged
    assert len(pd.read_csv(write_cleaned(graded, "drop", **asked))) == 6 - len(flagged)
    assert graded.suspects(**asked)["row"].tolist() == flagged


def test_suspects_by_a_persons_cut_are_a_table_like_the_issues(graded):
    found = graded.suspects(top=3)
    assert list(found.columns) == list(graded.issues.columns)
    assert found["rank"].tolist() == [1, 2, 3]
    assert found["flagged"].all()
    assert graded.suspects().equals(graded.issues)


def test_no_suspect_is_said_to_be_what_its_label_says_already(graded):
    marked = pd.read_csv(write_cleaned(graded, top=4), keep_default_na=False)
    assert marked["stepe_suggested"].tolist() == ["b", "b", "", "", "", ""]


def test_of_as_many_suspects_as_one_likes_only_the_sure_are_corrected(graded):
    said: list[str] = []
    after = pd.read_csv(write_cleaned(graded, "relabel", top=4, say=said.append), keep_default_na=False)
    assert after["label"].tolist() == ["b", "NA", "NA", "NA", "NA", "NA"]
    assert said == ["1 corrected, 3 left as they are"]


@pytest.mark.parametrize("asked", [{"top": 0}, {"top": 2.5}, {"min_suspicion": 1.5}, {"min_confidence": -0.1}])
def test_numbers_that_make_no_sense_are_refused(graded, asked):
    with pytest.raises(InputError, match=f"{next(iter(asked))} is .*; it must be"):
        write_cleaned(graded, **asked)


# ---------------------------------------------------------------------------------------------------------------
# What is refused


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (NASTY.replace("008, spaced ,b", "008, spaced ,NA"), "row 1 .* has the label 'NA' and had 'b'"),
        (NASTY[: NASTY.index("009")], "it has 2 rows and had at least 4"),
        (NASTY.replace("label", "Label"), "it has no column 'label' any more"),
    ],
)
def test_a_file_that_changed_since_the_run_is_refused(nasty, make_run, text, complaint):
    run = make_run(nasty, make_samples(GIVEN, {}))
    nasty.write_bytes(text.encode())
    with pytest.raises(RunError, match=f"has changed since the run: {complaint}"):
        write_cleaned(run)
    assert not (run.path / "cleaned.csv").exists()


def test_a_file_that_is_gone_is_missed(nasty, make_run):
    run = make_run(nasty, make_samples(GIVEN, {}))
    nasty.unlink()
    with pytest.raises(RunError, match=r"nasty\.csv, from which .* was made, is gone"):
        write_cleaned(run)


def test_the_input_is_never_overwritten(nasty, make_run):
    with pytest.raises(InputError, match="is the input itself"):
        write_cleaned(make_run(nasty, make_samples(GIVEN, {})), out=nasty)


@pytest.mark.parametrize(("mode", "out"), [("mend", None), ("mark", "cleaned.parquet"), ("mark", "nowhere/a.csv")])
def test_what_cannot_be_written_is_refused(nasty, make_run, tmp_path, mode, out):
    with pytest.raises(InputError, match=r"mend|does not end in \.csv|no folder"):
        write_cleaned(make_run(nasty, make_samples(GIVEN, {})), mode, out=out and tmp_path / out)


# ---------------------------------------------------------------------------------------------------------------
# What people decide in a review


def test_a_review_stands():
    samples = make_samples(["a"] * 6, {0: "b", 1: "b", 2: "b", 3: "b"}).assign(
        status=["open", "kept", "accepted", "relabelled", "unsure", "accepted"],
        reviewed_label=["", "", "", "c", "", ""],
        suggested_label="b",
    )
    found = verdicts(samples)
    assert found["action"].tolist() == ["suspect", "keep", "relabel", "relabel", "keep", "relabel"]
    assert found["label"].tolist() == ["b", "a", "b", "c", "a", "b"]


def test_without_a_suggestion_a_label_stays():
    samples = make_samples(["a", "a"], {0: "", 1: "b"}).assign(status=["open", "relabelled"])
    assert verdicts(samples)["label"].tolist() == ["a", "b"]


def test_what_a_person_has_settled_is_not_dropped(nasty, make_run):
    samples = make_samples(GIVEN, {0: "b", 2: "b"}).assign(status=["accepted", "open", "kept", "open"])
    run = make_run(nasty, samples)
    assert write_cleaned(run, "drop").read_bytes().decode() == NASTY.replace('of you",NA', 'of you",b')


@pytest.mark.parametrize(("mode", "label", "marks"), [("mark", "NA", ("True", "")), ("relabel", "NA", None)])
def test_where_nothing_is_suggested_the_label_stays_and_the_mark_is_empty(make_run, tmp_path, mode, label, marks):
    data = tmp_path / "data.csv"
    data.write_text("id,label\n1,NA\n2,b\n")
    path = write_cleaned(make_run(data, make_samples(["NA", "b"], {0: ""})), mode=mode)
    first = pd.read_csv(path, keep_default_na=False, dtype=str).iloc[0]
    assert first["label"] == label
    assert marks is None or (first["stepe_flagged"], first["stepe_suggested"]) == marks
