"""``stepe cleaned`` and ``stepe export``: where they write and what they print."""

import json
import re

import pandas as pd
import pytest

import stepe
import stepe.cli


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> stepe.Run:
    """Digits with planted noise, which leaves suspects to be had."""
    out = tmp_path_factory.mktemp("runs") / "digits"
    return stepe.clean("digits", compare=False, epochs=3, out=out, device="cpu")


@pytest.mark.parametrize("option", [(), ("--drop",), ("--relabel",)])
def test_the_cleaned_data_is_written_and_named(call, run, option):
    code, out, err = call("cleaned", str(run.path), *option)
    assert (code, out) == (0, f"{run.path / 'cleaned.csv'}\n")
    assert bool(err) == (option == ("--relabel",))
    lines = (run.path / "cleaned.csv").read_text().splitlines()[1:]
    assert len(lines) == len(run.samples) - (len(run.issues) if option == ("--drop",) else 0)


def test_what_was_corrected_is_said_in_numbers_that_add_up(call, run):
    for least in ("0", "0.8", "1"):
        code, _, err = call("cleaned", str(run.path), "--relabel", "--min-confidence", least)
        corrected, left = map(int, re.fullmatch(r"(\d+) corrected, (\d+) left as (?:it is|they are)\n", err).groups())
        assert code == 0
        assert corrected + left == len(run.issues)
        assert corrected == (run.issues["suggestion_confidence"] >= float(least)).sum()


def test_a_person_decides_how_many_are_marked(call, run):
    def marked(*option: str) -> int:
        code, out, _ = call("cleaned", str(run.path), *option)
        assert code == 0
        return out and int(pd.read_csv(out.strip())["stepe_flagged"].sum())

    assert marked("--top", "7") == 7
    assert marked("--min-suspicion", "0.9") == (run.samples["suspicion"][run.samples["split"] == "train"] >= 0.9).sum()


def test_how_sure_one_must_be_is_a_probability(call, run):
    code, _, err = call("cleaned", str(run.path), "--relabel", "--min-confidence", "90")
    assert code == 2
    assert "min_confidence is 90.0; it must be a share in [0, 1]" in err


def test_dropping_and_relabelling_exclude_each_other(call, run):
    code, _, err = call("cleaned", str(run.path), "--drop", "--relabel")
    assert code == 2
    assert "--drop and --relabel are two ways to treat the same rows" in err


def test_a_cleaned_file_goes_where_it_is_told(call, run, tmp_path):
    code, out, _ = call("cleaned", str(run.path), "--out", str(tmp_path / "mine.csv"))
    assert (code, out) == (0, f"{tmp_path / 'mine.csv'}\n")
    assert (tmp_path / "mine.csv").exists()


def test_suspects_are_exported_and_the_next_step_said(call, run):
    code, out, err = call("export", str(run.path), "--to", "label-studio")
    assert (code, out) == (0, f"{run.path / 'label-studio.json'}\n")
    assert "paste" in err
    assert "label-studio.xml" in err
    assert len(json.loads((run.path / "label-studio.json").read_text())) == len(run.issues)


def test_pictures_go_to_fiftyone(call, run, tmp_path):
    code, _, err = call("export", str(run.path), "--to", "fiftyone", "--out", str(tmp_path / "fo"))
    assert code == 0
    assert "fiftyone.Dataset.from_dir" in err
    samples = json.loads((tmp_path / "fo" / "samples.json").read_text())["samples"]
    assert len(samples) == len(run.issues)


def test_an_unknown_tool_is_refused(call, run):
    code, _, err = call("export", str(run.path), "--to", "paper")
    assert code == 2
    assert "choose label-studio or fiftyone" in err
