"""cleanlab: our probabilities in, their findings out."""

import json
import sys

import numpy as np
import pandas as pd
import pytest

from stepe import InputError, Run, RunError
from stepe.beliefs.issues import COLUMNS
from stepe.integrations.cleanlab import datalab, from_datalab, probabilities

CLASSES = ["9", "10", "ü"]
"""not in the order in which cleanlab sorts them"""
N = 60
WRONG = [4, 17, 32]


@pytest.fixture
def run(tmp_path) -> Run:
    """A run in which three labels contradict confident probabilities; the rows start at 100."""
    clean = np.arange(N) % 3
    given = clean.copy()
    given[WRONG] = (clean[WRONG] + 1) % 3
    probability = np.full((N, 3), 0.04)
    probability[np.arange(N), clean] = 0.92
    frame = pd.DataFrame(
        {
            "id": [f"{i:03}" for i in range(N)],
            "row": np.arange(100, 100 + N),
            "split": "train",
            "given_label": [CLASSES[i] for i in given],
        }
    )
    held_out = frame[:5].assign(split="test", id="other")  # of another file, with the same row numbers
    pd.concat([held_out, frame]).to_parquet(tmp_path / "samples.parquet", index=False)
    config = {"format": 1, "request": {}, "fit": {"method": "step-e"}, "class_names": CLASSES}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "summary.json").write_text("{}")
    np.savez(tmp_path / "probabilities.npz", row=frame["row"], probability=probability.astype(np.float16))
    return Run(tmp_path)


def test_probabilities_are_read_by_row_and_class(run):
    found = probabilities(run)
    assert found.index.tolist() == list(range(100, 100 + N))
    assert found.columns.tolist() == CLASSES
    assert found.loc[101, "10"] == pytest.approx(0.92, abs=1e-3)


def test_a_run_without_probabilities_says_so(run):
    (run.path / "probabilities.npz").unlink()
    with pytest.raises(RunError, match=r"holds no probabilities\.npz"):
        probabilities(run)


def test_a_missing_cleanlab_is_named_with_its_extra(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "cleanlab", None)
    with pytest.raises(InputError, match=r'pip install "stepe\[cleanlab\]"'):
        datalab(run)


def test_datalab_finds_the_wrong_labels_by_our_probabilities(run):
    pytest.importorskip("cleanlab")
    pytest.importorskip("datasets")
    lab = datalab(run, issue_types={"label": {}})
    issues = lab.get_issues("label")
    assert np.flatnonzero(issues["is_label_issue"]).tolist() == WRONG
    assert issues["predicted_label"][WRONG[0]] == CLASSES[WRONG[0] % 3]


def test_findings_come_back_in_our_columns(run):
    pytest.importorskip("cleanlab")
    pytest.importorskip("datasets")
    found = from_datalab(datalab(run, issue_types={"label": {}}))
    assert tuple(found.columns) == COLUMNS
    flagged = found[found["flagged"]].sort_values("rank")
    assert sorted(flagged["row"]) == [100 + i for i in WRONG]
    assert flagged["rank"].tolist() == [1, 2, 3]
    assert sorted(flagged["id"]) == [f"{i:03}" for i in WRONG]
    assert flagged["suggested_label"].tolist() == [CLASSES[(row - 100) % 3] for row in flagged["row"]]
    assert flagged["suspicion"].min() > found.loc[~found["flagged"], "suspicion"].max()


def test_a_datalab_of_other_data_is_numbered():
    cleanlab = pytest.importorskip("cleanlab")
    pytest.importorskip("datasets")
    labels = [0, 1] * 10
    lab = cleanlab.Datalab({"y": labels}, label_name="y", verbosity=0)
    lab.find_issues(pred_probs=np.eye(2)[labels] * 0.8 + 0.1, issue_types={"label": {}})
    found = from_datalab(lab)
    assert found["id"].tolist() == [str(i) for i in range(20)]
    assert not found["flagged"].any()


def test_a_datalab_that_has_not_looked_is_refused():
    cleanlab = pytest.importorskip("cleanlab")
    pytest.importorskip("datasets")
    with pytest.raises(InputError, match=r"call its find_issues\(pred_probs=\.\.\.\) first"):
        from_datalab(cleanlab.Datalab({"y": [0, 1]}, label_name="y", verbosity=0))
