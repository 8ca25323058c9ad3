"""Correcting is careful: on made data with a known truth, it leaves fewer wrong labels than it found."""

import json
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import stepe
from stepe import InputError, Run
from stepe.audit.rounds import audit
from stepe.beliefs.belief import Belief
from stepe.beliefs.believe import believe
from stepe.judges.blocks import Blocks
from stepe.judges.kernel import kernel
from stepe.review.cleaned import write_cleaned
from stepe.run.decisions import Action, Decision
from stepe.run.paths import remember
from stepe.run.saved_belief import write_belief

CLASSES = np.array(["ant", "bee", "cat", "doe"])


@dataclass
class Made:
    """A run over made data, and what is true of it."""

    run: Run
    truth: np.ndarray
    said: list[str]

    @property
    def given(self) -> np.ndarray:
        return pd.read_csv(self.run.request.data)["label"].to_numpy()

    def corrected(self, **options) -> np.ndarray:
        """The labels after relabelling."""
        return pd.read_csv(write_cleaned(self.run, "relabel", say=self.said.append, **options))["label"].to_numpy()

    def wrong(self, labels: np.ndarray) -> int:
        return int((labels != self.truth).sum())


def made(folder: Path, rate: float, apart: float, *, pairs: bool = False, seed: int = 0, n: int = 400) -> Made:
    """A run over clouds of points, audited; the less they are apart, the more often nobody could tell."""
    draw, classes = np.random.default_rng(seed), len(CLASSES)
    truth = draw.integers(0, classes, n)
    x = draw.normal(size=(n, 6))
    x[np.arange(n), truth] += apart
    other = (truth + (1 if pairs else draw.integers(1, classes, n))) % classes
    given = np.where(draw.random(n) < rate, other, truth)
    return write_run(folder, truth, given, audit(kernel(x, Blocks.of_one_row(n)), given, classes).belief)


def write_run(folder: Path, truth: np.ndarray, given: np.ndarray, belief: Belief) -> Made:
    folder.mkdir(parents=True, exist_ok=True)
    data, rows = folder / "data.csv", np.arange(len(truth))
    pd.DataFrame({"id": rows, "label": CLASSES[given]}).to_csv(data, index=False)
    samples = pd.DataFrame(
        {
            "rank": rows + 1,
            "id": [str(row) for row in rows],
            "row": rows,
            "split": "train",
            "given_label": CLASSES[given],
            "suggested_label": np.append(CLASSES, "")[belief.suggestion],
            "suspicion": 1 - belief.p_right,
            "suggestion_confidence": belief.confidence,
            "flagged": belief.flagged,
            "status": "open",
        }
    )
    samples.to_parquet(folder / "samples.parquet", index=False)
    request = {"data": str(data), "label": "label"}
    config = {"format": 1, "request": request, "fit": {"method": "step-e"}, "class_names": CLASSES.tolist()}
    (folder / "config.json").write_text(json.dumps(config))
    summary = {"flagged": int(belief.flagged.sum()), "samples": len(rows)}
    (folder / "summary.json").write_text(json.dumps(summary))
    write_belief(folder, belief)
    remember(folder)
    return Made(Run(folder), CLASSES[truth], [])


@pytest.mark.parametrize("pairs", [False, True])
@pytest.mark.parametrize("apart", [2, 3, 4])
@pytest.mark.parametrize("rate", [0.05, 0.15, 0.3])
def test_there_are_never_more_wrong_labels_than_before(rate, apart, pairs, tmp_path):
    for seed in range(3):
        data = made(tmp_path / str(seed), rate, apart, pairs=pairs, seed=seed)
        assert data.wrong(data.corrected()) < data.wrong(data.given)


@pytest.mark.parametrize("apart", [1, 2, 3, 4])
def test_of_clean_labels_hardly_any_is_corrected(apart, tmp_path):
    for seed in range(3):
        data = made(tmp_path / str(seed), 0.0, apart, seed=seed)
        assert data.wrong(data.corrected()) <= (0 if apart > 2 else 0.01 * len(data.given))


def test_following_every_suggestion_would_do_harm_where_classes_overlap(tmp_path):
    data = made(tmp_path, 0.05, 1)
    assert data.wrong(data.corrected(min_confidence=0)) > 2 * data.wrong(data.given)
    assert data.wrong(data.corrected()) <= data.wrong(data.given)


def test_the_surer_a_suggestion_must_be_the_fewer_labels_change(tmp_path):
    data = made(tmp_path, 0.15, 3)
    samples = data.run.samples
    for least in (0.0, 0.5, 0.9, 0.99, 1.0):
        changed = data.corrected(min_confidence=least) != data.given
        assert changed.tolist() == (samples["flagged"] & (samples["suggestion_confidence"] >= least)).tolist()


def test_what_is_said_adds_up(tmp_path):
    data = made(tmp_path, 0.15, 3)
    changed = int((data.corrected() != data.given).sum())
    assert 1 < changed < len(data.run.issues)
    assert data.said == [f"{changed} corrected, {len(data.run.issues) - changed} left as they are"]


def test_one_label_that_is_left_is_left_as_it_is(tmp_path):
    belief = believe([0, 1] * 10, np.eye(4)[[0, 1] * 10])
    flagged, confidence = np.arange(20) < 1, np.full(20, 0.5)
    made = write_run(
        tmp_path, np.arange(20) % 2, np.arange(20) % 2, replace(belief, flagged=flagged, confidence=confidence)
    )
    made.corrected()
    assert made.said == ["0 corrected, 1 left as it is"]


def test_what_people_decided_is_carried_out_however_unsure_the_suggestion_is(tmp_path):
    data = made(tmp_path, 0.15, 3)
    issues = data.run.issues
    unsure = issues[issues["suggestion_confidence"] < 0.9].iloc[:3].to_dict("records")
    sure = issues[issues["suggestion_confidence"] >= 0.9].iloc[0]
    other = next(name for name in CLASSES if name not in (unsure[1]["given_label"], unsure[1]["suggested_label"]))
    accept, another, doubt = unsure
    labels = {accept["row"]: accept["suggested_label"], another["row"]: other, sure["row"]: sure["given_label"]}
    verdicts = {accept["row"]: "accepted", another["row"]: "relabelled", sure["row"]: "kept"}
    decided = [Decision("train", int(row), verdicts[row], label) for row, label in labels.items()]
    decided.append(Decision("train", int(doubt["row"]), "unsure", None))
    data.run.decisions.record(Action("all", tuple(decided)))
    data.run = Run(data.run.path)
    after = data.corrected()
    assert {row: after[row] for row in labels} == labels
    assert after[doubt["row"]] == doubt["given_label"]
    changed = int((after != data.given).sum())
    assert data.said == [f"{changed} corrected, {len(issues) - changed} left as they are"]


def test_the_label_of_an_input_of_no_class_stays(tmp_path):
    data = made(tmp_path, 0.15, 3)
    belief = data.run.belief
    gone = np.flatnonzero(belief.flagged)[0]
    suggestion = np.where(np.arange(len(belief.flagged)) == gone, -1, belief.suggestion)
    confidence = np.where(suggestion < 0, np.nan, belief.confidence)
    given = np.searchsorted(CLASSES, data.given)
    again = write_run(
        tmp_path,
        np.searchsorted(CLASSES, data.truth),
        given,
        replace(belief, suggestion=suggestion, confidence=confidence),
    )
    after = again.corrected(min_confidence=0)
    assert after[gone] == data.given[gone]
    assert (after != data.given).sum() == belief.flagged.sum() - 1


def test_rows_that_say_nothing_of_their_labels_correct_none_unless_somebody_insists(tmp_path):
    given = np.random.default_rng(0).integers(0, 4, 400)
    belief = believe(given, np.full((400, 4), 0.25))
    assert not belief.has_signal
    run = write_run(tmp_path, given, given, belief)
    with pytest.raises(InputError, match=r"say too little about their labels .*; add more rows, .*--force") as refused:
        run.corrected()
    assert "\n" not in str(refused.value)
    assert not (tmp_path / "cleaned.csv").exists()
    assert run.corrected(force=True).tolist() == run.given.tolist()
    for mode in ("mark", "drop"):
        assert write_cleaned(run.run, mode).exists()


def test_a_run_over_the_corrected_file_finds_less_and_adds_no_wrong_labels(tmp_path):
    draw = np.random.default_rng(1)
    truth = draw.integers(0, 3, 360)
    x = 3 * draw.normal(size=(3, 5))[truth] + draw.normal(size=(360, 5))
    given = np.where(draw.random(360) < 0.15, (truth + 1) % 3, truth)
    np.savez(tmp_path / "mine.npz", features=x, labels=CLASSES[given])

    def cleaned(path: Path, name: str) -> tuple[Path, int]:
        run = stepe.clean(path, epochs=8, out=tmp_path / name, device="cpu")
        return write_cleaned(run, "relabel", out=tmp_path / f"{name}.npz"), len(run.issues)

    def wrong(path: Path) -> int:
        with np.load(path) as arrays:
            return int((arrays["labels"] != CLASSES[truth]).sum())

    once, found = cleaned(tmp_path / "mine.npz", "once")
    again, left = cleaned(once, "again")
    assert wrong(again) <= wrong(once) < wrong(tmp_path / "mine.npz")
    assert left < found
