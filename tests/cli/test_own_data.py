"""``stepe clean`` and ``stepe predict`` on people's own data."""

import shlex
from collections.abc import Callable
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pandas as pd
import pytest

from command import Ended
from stepe import Run
from stepe.beliefs.belief import Belief
from stepe.loop.ledger import JudgedBy, Ledger
from stepe.methods.parts.guesses import Guesses


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("stepe.report.html.write_report", lambda run: run.path)


@pytest.fixture
def call(call) -> Callable[[str], Ended]:
    return lambda line: call(*shlex.split(line))


@pytest.fixture
def _films() -> None:
    rows = [
        {"nr": f"{i:03d}", "review": f"{['good', 'bad'][i % 2]} {i}", "score": f"{i % 7}", "stars": ["5", "1"][i % 2]}
        for i in range(40)
    ]
    pd.DataFrame(rows).to_csv("films.csv", index=False)


@pytest.mark.usefixtures("_films")
def test_columns_are_named_by_options(call):
    code, out, _ = call(
        "clean films.csv --label stars --text review --id nr --rho-max auto --warmup 1 --probe in-sample --epochs 3 -q"
    )
    assert (code, out) == (0, "runs/films-1\n")
    request = Run("runs/films-1").request
    assert (request.label, request.text, request.id) == ("stars", "review", "nr")
    assert (request.rho_max, request.warmup, request.probe) == ("auto", 1, "in-sample")
    code, out, _ = call("clean films.csv --label stars --features score --holdout 0 --rho-max 0.2 --epochs 2 -q")
    request = Run("runs/films-2").request
    assert (code, request.features, request.holdout) == (0, ("score",), 0)


@pytest.mark.usefixtures("_films")
def test_what_a_person_should_know_is_said_on_standard_error(call):
    code, _, err = call("clean films.csv --label stars --rho-max 0.2 --epochs 2")
    assert code == 0
    assert "column 'review' looks like text and is left out; to learn from it, say --text review" in err


@pytest.mark.usefixtures("_films")
@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("clean films.csv", "say which column of films holds the labels, with --label; it has nr, review"),
        ("clean films.csv --label star", "films has no column 'star' for --label"),
        ("clean films.csv --label stars --warmup soon", "--warmup is 'soon'; give a whole number, or auto"),
        ("clean films.csv --label stars --text review --model timm:x", "model 'timm:x' is for images, and the data is"),
        ("clean films.csv --label stars --image-size 1", "image_size is 1; it must be a whole number, at least 8"),
        ("clean films.csv --label stars --text stars", "column 'stars' holds the labels; --text needs another one"),
        ("clean films.csv --label stars --trusted stars", "column 'stars' holds the labels; --trusted needs another"),
        ("predict nowhere films.csv", "nowhere is not a run folder"),
    ],
)
def test_mistakes_are_one_line(call, line, told):
    code, out, err = call(line)
    assert (code, out) == (2, "")
    assert told in err
    assert err.count("\n") == 1


@pytest.mark.usefixtures("_films")
def test_predictions_go_to_standard_output_or_a_file(call):
    call("clean films.csv --label stars --text review --id nr --rho-max 0.2 --epochs 2 -q")
    code, out, _ = call("predict latest films.csv")
    found = pd.read_csv(StringIO(out), dtype=str)
    assert code == 0
    assert found["id"].tolist() == [f"{i:03d}" for i in range(40)]
    assert set(found["predicted_label"]) <= {"1", "5"}
    assert call("predict runs/films-1 films.csv --out new.csv")[:2] == (0, "new.csv\n")
    assert Path("new.csv").read_text() == out
    code, _, err = call("predict latest films.csv --out nowhere/new.csv")
    assert code == 2
    assert "there is no folder nowhere" in err


@pytest.mark.usefixtures("_films")
def test_columns_of_a_resumed_run_may_be_repeated_but_not_changed(call):
    call("clean films.csv --label stars --features score --rho-max 0.2 --epochs 2 --out run -q")
    assert call("clean --resume run --label stars --features score --rho-max 0.2 -q")[0] == 0
    code, _, err = call("clean --resume run --label score --features nr -q")
    assert code == 2
    assert "label was 'stars', not 'score'; features was ['score'], not ['nr']" in err


@pytest.mark.usefixtures("_films")
def test_the_data_comes_back_with_the_suspects_marked_removed_or_corrected(call):
    quick = "--label stars --text review --id nr --rho-max 0.3 --warmup 1 --epochs 3"
    code, out, _ = call(f"clean films.csv {quick} --out marked")
    assert code == 0
    assert "marked/cleaned.csv" in out
    marked = pd.read_csv("marked/cleaned.csv", dtype=str)
    assert marked["nr"].tolist() == [f"{i:03d}" for i in range(40)]
    flagged = Run("marked").summary.flagged
    assert (marked["stepe_flagged"] == "True").sum() == flagged
    call(f"clean films.csv {quick} --out dropped --drop")
    assert len(pd.read_csv("dropped/cleaned.csv")) == 40 - flagged
    call(f"clean films.csv {quick} --out corrected --relabel")
    corrected = pd.read_csv("corrected/cleaned.csv", dtype=str)
    assert list(corrected.columns) == ["nr", "review", "score", "stars"]
    assert (corrected["stars"] != marked["stars"]).sum() == flagged


@pytest.mark.usefixtures("_films")
def test_a_pipeline_can_refuse_a_bad_batch(call, monkeypatch):
    quick = "clean films.csv --label stars --text review --rho-max 0.3 --warmup 1 --epochs 3 -q"
    assert call(f"{quick} --out fine --fail-above 1")[0] == 0
    share = Run("fine").summary.flagged / Run("fine").summary.samples
    believe = Guesses.believe

    def flag_what_is_dropped(guesses: Guesses, ledger: Ledger, judged_by: JudgedBy) -> Belief:
        return replace(believe(guesses, ledger, judged_by), flagged=ledger["dropped"].numpy())

    monkeypatch.setattr(Guesses, "believe", flag_what_is_dropped)
    code, out, err = call(f"{quick} --out bad --fail-above 0.05")
    assert (code, out) == (3, "bad\n")
    assert "of the labels look wrong, more than the 5.0% that --fail-above allows" in err
    assert Run("bad").summary.flagged / Run("bad").summary.samples > max(share, 0.05)


@pytest.mark.usefixtures("_films")
def test_suspects_cannot_be_both_removed_and_corrected(call):
    code, _, err = call("clean films.csv --label stars --drop --relabel")
    assert code == 2
    assert "--drop and --relabel are two ways to treat the same rows" in err
    assert not Path("runs").exists()


@pytest.mark.usefixtures("_films")
@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("--label nr", "all 40 labels of films are different: that is an id, not a class"),
        ("--label stars --trusted review", "write true, 1 or yes where a label was checked"),
        ("--label stars --epochs 1", "found out in the warm-up, and there is none: train for 2 epochs or more"),
    ],
)
def test_what_cannot_be_done_leaves_nothing_behind(call, line, told):
    code, _, err = call(f"clean films.csv {line}")
    assert code == 2
    assert told in err
    assert not Path("runs").exists()


@pytest.mark.usefixtures("_films")
def test_marks_of_an_earlier_run_are_not_learned_from(call):
    quick = "--label stars --features score --rho-max 0.3 --warmup 1 --epochs 2"
    assert call(f"clean films.csv {quick} --out first")[0] == 0
    code, _, err = call("clean first/cleaned.csv --label stars --rho-max 0.3 --warmup 1 --epochs 2 --out second")
    assert code == 0
    assert "columns stepe_flagged, stepe_suggested, stepe_suspicion are marks of an earlier run and are left out" in err
    assert "stepe_" not in Path("second/preprocessing.json").read_text()


@pytest.mark.usefixtures("_films")
def test_a_damaged_run_is_one_line(call):
    call("clean films.csv --label stars --features score --rho-max 0.3 --warmup 1 --epochs 2 --out run -q")
    Path("run/samples.parquet").write_bytes(b"junk")
    code, _, err = call("cleaned run")
    assert code == 2
    assert "samples.parquet cannot be read" in err
    assert "Traceback" not in err


@pytest.mark.usefixtures("_films")
def test_an_unfinished_run_cannot_predict_and_says_how_to_continue(call):
    call("clean films.csv --label stars --features score --rho-max 0.3 --warmup 1 --epochs 2 --out run -q")
    for name in ("summary.json", "model.safetensors"):
        Path("run", name).unlink()
    code, _, err = call("predict run films.csv")
    assert code == 2
    assert "run is not finished; continue it with `stepe clean --resume run`" in err
