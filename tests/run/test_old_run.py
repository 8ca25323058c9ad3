"""A run folder of the version before this one, as it was left: reading it goes on to work.

It was made with ``stepe clean mine.csv --label label --id id --group shop --method step-e-plus,plain --epochs 12``, and
a network of 16 units a layer; its checkpoints and what is made of other files are left out.
"""

import shutil
from pathlib import Path

import numpy as np
import pytest

from stepe import Run, RunError
from stepe.app.resume import resume
from stepe.beliefs.rate import Rate
from stepe.report.html import render
from stepe.review.suspects import Suspects
from stepe.run.explanation import explain_sample

OLD = Path(__file__).parent / "old_run"
FLAGGED = {"n03", "n23", "n33", "n43", "n53"}


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(shutil.copytree(OLD, tmp_path / "run"))


def test_its_record_is_read(run):
    assert (run.config.format, run.method, run.class_names) == (1, "step-e-plus", ["food", "pet"])
    assert (run.request.name, run.request.label, run.request.kind) == ("mine", "label", "table")
    assert run.request.methods == ("step-e-plus", "plain")
    assert not run.request.is_experiment
    assert (run.summary.samples, run.summary.flagged, run.summary.warmup) == (48, 5, 2)
    assert run.summary.probe.reach == "cross:2x2"
    assert [other.summary.method for other in run.others] == ["plain"]
    assert set(run.issues["id"]) == FLAGGED
    assert len(run.history) == 12


def test_its_belief_is_what_its_tables_say(run):
    belief, training = run.belief, run.samples[run.samples["split"] == "train"]
    assert belief.found_rate == run.summary.noise_rate == Rate(0.11188272386789322, 0.0, 0.23360258005907125)
    assert set(training["id"][belief.flagged]) == FLAGGED
    assert np.isnan(belief.noise).all()


def test_a_report_is_made_of_it(run):
    page = render(run)
    assert "It may be that nothing is wrong: 0–23% of 48 labels; 5 are worth a look." in page
    assert "plain" in page
    assert run.report().exists()


def test_it_can_be_reviewed(run):
    suspects = Suspects(run)
    found = suspects.describe()
    assert len(found["row"]) == 5
    shown = suspects.details(found["row"])
    assert {each["id"] for each in shown["details"].values()} == FLAGGED
    assert all(shown["previews"][row]["cells"] for row in found["row"])


def test_its_model_predicts(run):
    found = run.predict(run.path / "mine.csv").set_index("id")
    assert len(found) == 60
    assert found["predicted_label"]["n43"] == "pet"


def test_its_samples_are_explained(run):
    found = explain_sample(run, "n43")
    assert found.sample["flagged"]
    assert len(found.entries) == 13
    assert any(dropped for dropped, _, _ in found.spans)


def test_it_cannot_go_on_and_says_what_to_do(run):
    with pytest.raises(RunError, match=r"by an older version of stepe: .* but not resumed; start it anew"):
        resume(run.path, trust_paths=True)
