"""A run folder of somebody else: where it sends people is named before anything is read or written there."""

import json
import shutil
import sys
from io import StringIO
from pathlib import Path

import pandas as pd
import pytest

from stepe.review.cleaned import write_cleaned
from stepe.review.export import export


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """A folder in which somebody made a run of a table beside it."""
    import stepe

    theirs = tmp_path_factory.mktemp("theirs")
    rows = [{"review": f"{['good', 'bad'][i % 2]} {i}", "stars": ["5", "1"][i % 2 and i > 4]} for i in range(40)]
    pd.DataFrame(rows).to_csv(theirs / "films.csv", index=False)
    (theirs / "logs").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(theirs / "state"))
        options = {"label": "stars", "text": "review", "rho_max": 0.2, "epochs": 2, "probe": "in-sample"}
        stepe.clean(theirs / "films.csv", out=theirs / "run", device="cpu", **options)
    return theirs


@pytest.fixture
def theirs(made, tmp_path, monkeypatch) -> Path:
    """Their folder; a copy of the run lies in ``run`` here, before another user."""
    shutil.copytree(made / "run", tmp_path / "here" / "run")
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    Path("reviewed.csv").write_text("row,id,split,given_label,suggested_label,verdict,label\n")
    return made


@pytest.fixture
def terminal(monkeypatch):
    """Somebody at a terminal, and what they type."""

    def sits(answer: str) -> None:
        monkeypatch.setattr(sys, "stdin", StringIO(answer))
        monkeypatch.setattr(sys.stdin, "isatty", lambda: True)

    return sits


def record(**changed) -> None:
    config = json.loads(Path("run/config.json").read_text())
    for recorded in (config["request"], config["options"]):
        recorded |= changed
    Path("run/config.json").write_text(json.dumps(config))


def there(*folders: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for folder in folders for path in folder.rglob("*") if path.is_file()}


COMMANDS = ("cleaned run", "apply run reviewed.csv", "export run --to label-studio --all", "clean --resume run -q")


@pytest.mark.parametrize("line", COMMANDS)
def test_an_input_elsewhere_is_named_and_not_read(call, theirs, line):
    before = there(Path(), theirs)
    code, out, err = call(*line.split())
    assert (code, out, err.count("\n")) == (2, "", 1 + line.startswith("apply"))
    assert repr(str(theirs / "films.csv")) in err
    assert "--trust-paths" in err
    assert there(Path(), theirs) == before


@pytest.mark.parametrize("line", COMMANDS)
def test_who_agrees_has_it_read(call, theirs, line):
    code, out, err = call(*line.split(), "--trust-paths")
    assert (code, "--trust-paths" in err) == (0, False)
    assert out


@pytest.mark.parametrize(("answer", "code"), [("y\n", 0), ("n\n", 2), ("\n", 2)])
@pytest.mark.parametrize("line", ["cleaned run", "clean --resume run"])
@pytest.mark.usefixtures("theirs")
def test_people_at_a_terminal_are_asked(call, terminal, line, answer, code):
    terminal(answer)
    ended = call(*line.split())
    assert ended.code == code
    assert "Use that? [y/N]" in ended.err


@pytest.mark.parametrize("line", COMMANDS)
def test_one_s_own_run_is_never_asked_about(call, theirs, monkeypatch, line):
    monkeypatch.setenv("XDG_STATE_HOME", str(theirs / "state"))
    code, _, err = call(*line.split())
    assert (code, "--trust-paths" in err) == (0, False)


def test_what_needs_no_input_runs_without_it(call, theirs):
    away = theirs.rename(theirs.with_name("away"))
    try:
        Path("more.csv").write_text("review\ngood 1\n")
        for line in ("report run", "explain run 3", "compare run run --json", "predict run more.csv"):
            assert call(*line.split()).code == 0, line
    finally:
        away.rename(theirs)


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"test": "../table.csv"}, "test '../table.csv'"),
        ({"decisions": ".."}, "decisions '..'"),
        ({"data_dir": "/nowhere"}, "data_dir '/nowhere'"),
        ({"track": ["tensorboard:/nowhere/logs"]}, "track '/nowhere/logs'"),
        ({"model": "hf:.."}, "model '..'"),
        ({"data": "hf:..:train"}, "data '..'"),
    ],
)
def test_whatever_a_resumed_run_would_read_or_write_elsewhere_is_named(call, theirs, changed, told):
    Path("../table.csv").touch()
    shutil.copy(theirs / "films.csv", "films.csv")
    record(**{"data": "films.csv", **changed})
    before = there(Path())
    code, _, err = call("clean", "--resume", "run", "-q")
    assert (code, told in err) == (2, True), err
    assert there(Path()) == before


def test_a_path_that_was_typed_needs_no_question(call, theirs):
    shutil.copy(theirs / "films.csv", "films.csv")
    where = Path("../logs").resolve()
    record(data="films.csv", track=[f"tensorboard:{where}"])
    assert call("clean", "--resume", "run", "-q").code == 2
    assert call("clean", "--resume", "run", "-q", "--track", f"tensorboard:{where}").code == 0


@pytest.mark.usefixtures("theirs")
def test_from_python_nobody_is_asked():
    import stepe
    from stepe.app.resume import resume

    for work in (write_cleaned, lambda run, **agreed: export(run, "label-studio", everything=True, **agreed), resume):
        with pytest.raises(stepe.RunError, match="trust_paths=True"):
            work("run")
        work("run", trust_paths=True)
