"""What the report says of each cut through the suspicion."""

import json

import numpy as np
import pytest

from made_run import make_run
from stepe import Run
from stepe.report.cut import LEAST, STEPS, cuts
from stepe.review.precision import Precision
from stepe.review.sample import sample_order
from stepe.run.decisions import Action, Decision


@pytest.fixture
def run(tmp_path) -> Run:
    """A hundred labels that are more likely wrong than right, as many that are not, and some held out."""
    return graded(make_run(tmp_path / "run", 100), np.linspace(0.999, 0.001, 200))


def graded(run: Run, suspicion: np.ndarray, flagged: np.ndarray | None = None) -> Run:
    samples = run.samples
    suspicion = np.append(suspicion, np.full(10, 0.99))
    flagged = suspicion > 0.5 if flagged is None else np.append(flagged, np.zeros(10, dtype=bool))
    flagged &= samples["split"] == "train"
    samples.assign(suspicion=suspicion, flagged=flagged).to_parquet(run.path / "samples.parquet", index=False)
    summary = {"flagged": int(flagged.sum()), "samples": 200}
    (run.path / "summary.json").write_text(json.dumps(summary))
    return Run(run.path)


def decide(run: Run, verdicts: dict[int, str], origin: str = "sample") -> Run:
    labels = {"kept": "cat", "accepted": "dog", "unsure": None}
    made = tuple(Decision("train", row, verdict, labels[verdict], origin) for row, verdict in verdicts.items())
    run.decisions.record(Action(f"{origin}-{len(verdicts)}", made))
    return Run(run.path)


def in_order(run: Run) -> list[int]:
    order = sample_order(run, run.issues["row"])
    return sorted(order, key=order.__getitem__)


def test_the_histogram_counts_every_judged_label_once(run):
    found = cuts(run)
    assert sum(found.bars) == 200
    assert len(found.bars) == STEPS
    assert max(found.heights) == 100


def test_what_lies_above_a_cut_is_counted(run):
    suspicion = run.samples["suspicion"][run.samples["split"] == "train"]
    found = cuts(run)
    assert (found.start, found.usual, found.flagged) == (50, True, 100)
    assert found.above[50] == 100
    for step in (0, 29, 57, 99, 100):
        assert found.above[step] == (suspicion >= step / 100).sum()
    assert found.above == sorted(found.above, reverse=True)


def test_a_run_that_a_person_cut_elsewhere_starts_there(run):
    suspicion = np.linspace(0.999, 0.001, 200)
    found = cuts(graded(run, suspicion, suspicion >= 0.8))
    assert (found.start, found.usual) == (80, False)
    assert found.above[80] == found.flagged == (suspicion >= 0.8).sum()


def test_labels_of_which_nothing_is_known_are_in_no_bar(run):
    suspicion = np.linspace(0.999, 0.001, 200)
    suspicion[100:150] = np.nan
    assert sum(cuts(graded(run, suspicion)).bars) == 150


def test_without_a_flag_there_is_still_a_histogram(run):
    found = cuts(graded(run, np.full(200, 0.25)))
    assert (found.start, found.flagged, found.above[50], found.bars[25]) == (50, 0, 0, 200)


def test_nothing_is_claimed_before_twenty_were_reviewed_at_random(run):
    assert cuts(run).precision == {}
    rows = in_order(run)
    assert cuts(decide(run, dict.fromkeys(rows[: LEAST - 1], "accepted"))).precision == {}
    assert 50 in cuts(decide(run, dict.fromkeys(rows[:LEAST], "accepted"))).precision


def test_decisions_down_the_list_say_nothing_of_the_others(run):
    decided = decide(run, dict.fromkeys(run.issues["row"].head(60).tolist(), "accepted"), origin="ranked")
    assert cuts(decided).precision == {}


def test_what_was_reviewed_at_random_says_how_many_above_a_cut_are_wrong(run):
    rows = in_order(run)[:60]
    verdicts = {row: "kept" if i % 4 == 0 else "unsure" if i % 15 == 1 else "accepted" for i, row in enumerate(rows)}
    found = cuts(decide(run, verdicts)).precision
    suspicion = run.samples.set_index("row")["suspicion"].to_dict()
    for step, (wrong, judged, low, high) in found.items():
        above = [verdict for row, verdict in verdicts.items() if suspicion[row] >= step / 100 or step == 50]
        assert judged == sum(verdict != "unsure" for verdict in above) >= LEAST
        assert wrong == sum(verdict == "accepted" for verdict in above)
        expected = Precision.of(verdict == "accepted" for verdict in above if verdict != "unsure")
        assert (low, high) == (expected.low, expected.high)
    assert min(found) == 50
    assert max(found) < 99


def test_where_others_lie_above_the_cut_too_the_sample_says_nothing(run):
    suspicion = np.linspace(0.999, 0.001, 200)
    flagged = (suspicion > 0.6) & (np.arange(200) != 3)
    found = cuts(decide(graded(run, suspicion, flagged), dict.fromkeys(range(4, 70), "accepted")))
    assert set(found.precision) == {found.start}


def test_the_truth_is_told_of_the_runs_own_cut(digits_run: Run, features_run: Run):
    assert cuts(features_run).known == ""
    assert cuts(digits_run).known == f"{100 * digits_run.summary.noise.flagged.precision:.1f}%"


def test_the_page_is_told_in_plain_values(run):
    assert json.loads(json.dumps(cuts(run).to_json(), allow_nan=False))["above"][50] == 100
