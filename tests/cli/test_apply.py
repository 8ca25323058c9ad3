"""``stepe apply`` and ``stepe clean --decisions``."""

import csv
import shlex
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from command import Ended
from stepe import Run

CLEAN = "clean points.csv --label =kind --features a,b,c --rho-max 0.2 --probe in-sample --epochs 3 --device cpu -q"
NAMES = ("=1+1", "-2", "cat")


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("stepe.report.html.write_report", lambda run: run.path)


@pytest.fixture
def call(call) -> Callable[[str], Ended]:
    return lambda line: call(*shlex.split(line))


@pytest.fixture
def points() -> pd.DataFrame:
    """Points of three kinds, every tenth under another name; names that a spreadsheet would run."""
    draw = np.random.default_rng(0)
    truth = np.arange(90) % 3
    x = 5 * np.eye(3)[truth] + draw.normal(size=(90, 3))
    frame = pd.DataFrame(x.round(3), columns=["a", "b", "c"])
    frame["=kind"] = np.array(NAMES)[np.where(np.arange(90) % 10 == 3, (truth + 1) % 3, truth)]
    frame.to_csv("points.csv", index=False)
    return frame


def read(path: str) -> list[dict[str, str]]:
    with Path(path).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.usefixtures("points")
def test_suspects_become_decisions_and_decisions_clean_labels(call):
    assert call(f"{CLEAN} --out run")[0] == 0
    issues = read("run/issues.csv")
    cells = [issue[name] for issue in issues for name in ("given_label", "suggested_label")]
    assert {"'=1+1", "'-2"} & set(cells)
    assert not any(cell.startswith(("=", "-")) for cell in cells)
    # What a person does in a spreadsheet: the list of suspects, with verdicts.
    columns = ("row", "id", "split", "given_label", "suggested_label", "verdict", "label")
    with Path("reviewed.csv").open("w", newline="") as file:
        out = csv.DictWriter(file, columns, extrasaction="ignore")
        out.writeheader()
        out.writerows(issue | {"verdict": "accepted", "label": ""} for issue in issues)
    code, out, err = call("apply run reviewed.csv")
    assert (code, out) == (0, "run/cleaned.csv\n")
    assert err == f"{len(issues)} decisions: {len(issues)} accepted\n"
    before = pd.read_csv("points.csv", dtype=str)["=kind"]
    after = pd.read_csv("run/cleaned.csv", dtype=str)["=kind"]
    suggested = Run("run").issues.set_index("row")["suggested_label"].to_dict()
    assert after.tolist() == [suggested.get(row, given) for row, given in before.items()]
    assert call("apply run reviewed.csv --drop")[0] == 0
    assert len(pd.read_csv("run/cleaned.csv")) == len(before)  # nothing is left that nobody settled


@pytest.mark.usefixtures("points")
def test_a_file_that_does_not_fit_is_one_line_and_changes_nothing(call):
    call(f"{CLEAN} --out run")
    before = Path("run/cleaned.csv").read_bytes()
    Path("reviewed.csv").write_text("row,id,split,given_label,suggested_label,verdict,label\n0,0,train,cow,,kept,\n")
    code, _, err = call("apply run reviewed.csv")
    assert code == 2
    assert err.startswith("Error: line 2 of reviewed.csv: its given_label is 'cow'")
    assert err.count("\n") == 1
    assert Run("run").decisions.current() == {}
    assert Path("run/cleaned.csv").read_bytes() == before


@pytest.mark.usefixtures("points")
def test_training_again_takes_the_decisions(call):
    call(f"{CLEAN} --out run")
    issue = next(issue for issue in read("run/issues.csv") if issue["given_label"] != "cat")
    Path("reviewed.csv").write_text(
        "row,id,split,given_label,suggested_label,verdict,label\n"
        f"{issue['row']},{issue['id']},train,{issue['given_label']},,relabelled,cat\n"
    )
    assert call("apply run reviewed.csv")[0] == 0
    code, _, err = call(f"{CLEAN.removesuffix(' -q')} --out again --decisions run")
    assert code == 0
    assert "labels that a review settled are trusted: 1 corrected, 0 confirmed\n" in err
    assert Run("again").request.decisions == str(Path("run").resolve())
    assert Run("again").samples.set_index("row")["reviewed_label"][int(issue["row"])] == "cat"
    code, _, err = call("clean --resume again --decisions other")
    assert code == 2
    assert "decisions was" in err
