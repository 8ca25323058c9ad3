"""Which classes a reviewer is offered first."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from stepe import Run
from stepe.review.choices import likely_classes


@pytest.fixture
def make_run(tmp_path):
    def make(classes: list[str], given: list[str], suggested: list[str]) -> Run:
        config = {"format": 1, "request": {}, "fit": {"method": "step-e"}, "class_names": classes}
        (tmp_path / "config.json").write_text(json.dumps(config))
        (tmp_path / "summary.json").write_text("{}")
        n = len(given)
        table = {"rank": range(1, n + 1), "row": range(n), "split": "train", "given_label": given}
        pd.DataFrame(table | {"suggested_label": suggested, "flagged": True}).to_parquet(tmp_path / "samples.parquet")
        return Run(tmp_path)

    return make


def store(folder: Path, probability: list[list[float]]) -> None:
    values = np.array(probability, dtype=np.float16)
    np.savez(folder / "probabilities.npz", row=np.arange(len(values)), probability=values)


def test_the_likeliest_by_the_running_guess_come_first_and_the_label_is_no_choice(make_run):
    run = make_run(["a", "b", "c", "d"], ["a", "d"], ["b", "c"])
    store(run.path, [[0.4, 0.3, 0.1, 0.2], [0.1, 0.2, 0.6, 0.1]])
    assert likely_classes(run, [1, 0]) == [["c", "b", "a"], ["b", "d", "c"]]


def test_without_a_guess_frequent_confusions_follow_the_suggestion(make_run):
    classes = [f"c{i}" for i in range(20)]
    run = make_run(classes, ["c0", "c0", "c0", "c1"], ["c2", "c3", "c3", "c9"])
    assert likely_classes(run, [0]) == [["c2", "c3", "c9"]]


def test_few_classes_are_all_offered_and_never_more_than_there_are_keys(make_run):
    run = make_run([str(i) for i in range(10)], ["3"], ["7"])
    assert likely_classes(run, [0]) == [["7", "0", "1", "2", "4", "5", "6", "8", "9"]]


def test_an_output_that_is_no_class_is_not_offered(make_run):
    run = make_run(["a", "b"], ["a", "b"], ["17", ""])
    store(run.path, [[0.1, 0.2, 0.7], [0.1, 0.2, 0.7]])
    assert likely_classes(run, [0, 1]) == [["b"], ["a"]]
