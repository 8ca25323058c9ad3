"""A run folder of somebody else: where it sends people is named before anything is read or written there."""

import hashlib
import json
import os
import pickle
import shutil
import subprocess
import sys
from io import StringIO
from pathlib import Path

import pandas as pd
import pytest
from rich.console import Console

from stepe.cli.tables import suspects
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


def test_a_network_elsewhere_is_named_before_it_predicts(call, theirs, monkeypatch):
    """What encodes further data comes from a file of the folder, and names a network that may lie anywhere."""
    opened: list[str] = []
    monkeypatch.setattr("stepe.models.pretrained._package", lambda prefix: opened.append(prefix))
    Path("more.csv").write_text("review\ngood 1\n")
    saved = json.loads(Path("run/preprocessing.json").read_text())
    inner = {"name": "TokenEncoder", "model": f"hf:{theirs}", "length": 8}
    for changed in (
        {"model": {"name": "pretrained", "model": f"timm:local-dir:{theirs}", "classes": 2}},
        {"encoder": {"name": "FrozenEncoder", "kind": "text", "model": "hf:none", "inputs": inner, "outputs": {}}},
    ):
        Path("run/preprocessing.json").write_text(json.dumps(saved | changed))
        code, out, err = call("predict", "run", "more.csv")
        assert (code, out, opened) == (2, "", []), err
        assert f"names what lies outside of {Path.cwd()}: model {str(theirs)!r}" in err
        assert "--trust-paths" in err


@pytest.mark.usefixtures("theirs")
def test_no_command_to_a_terminal_is_passed_on(call):
    samples = pd.read_parquet("run/samples.parquet")
    for column in ("suggested_label", "reason"):
        samples[column] = "\x1b]0;owned\x07"
    samples["flagged"] = True
    samples.to_parquet("run/samples.parquet")
    code, out, err = call("explain", "run", "3")
    assert (code, "\N{REPLACEMENT CHARACTER}]0;owned" in out) == (0, True)
    assert "\x1b" not in out + err
    shown = StringIO()
    Console(file=shown, width=120).print(suspects(samples))
    assert "\N{REPLACEMENT CHARACTER}]0;owned" in shown.getvalue()
    assert "\x1b" not in shown.getvalue()


# ---------------------------------------------------------------------------------------------------------------
# Folders that were made to reach out

EVERYTHING = (
    *COMMANDS,
    *(
        "report run",
        "explain run 3",
        "compare run run --json",
        "predict run films.csv",
        "export run --to fiftyone --all",
    ),
    "clean films.csv --label stars --text review --decisions run --epochs 2 --probe in-sample -q",
)
SECRET = b"nobody else's business"


def samples_in_a_folder() -> None:
    """Readers of Parquet read all files of a folder, and follow links."""
    samples = pd.read_parquet("run/samples.parquet")
    samples["id"] = [f"{SECRET.decode()} {row}" for row in samples["row"]]
    samples.to_parquet("../outside/samples.parquet")
    Path("run/samples.parquet").unlink()
    Path("run/samples.parquet").mkdir()
    Path("run/samples.parquet/part.parquet").symlink_to(Path("../outside/samples.parquet").resolve())


def a_journal_that_names_a_file() -> None:
    """SQLite deletes the file that a journal names as the one above it."""
    leave_a_journal = (
        "import os, sqlite3; database = sqlite3.connect('run/decisions.sqlite', isolation_level=None)\n"
        "database.execute('CREATE TABLE t (x)'); database.execute('PRAGMA cache_size = 5')\n"
        "database.execute('BEGIN'); database.executemany('INSERT INTO t VALUES (?)', [('x' * 500,)] * 500)\n"
        "os._exit(0)"
    )
    subprocess.run([sys.executable, "-c", leave_a_journal], check=True)
    name = str(Path("../outside/secret").resolve()).encode()
    numbers = (0x40000000 // 4096 + 1, len(name), sum(name))
    page, length, checksum = (number.to_bytes(4, "big") for number in numbers)
    with Path("run/decisions.sqlite-journal").open("ab") as journal:
        journal.write(page + name + length + checksum + bytes.fromhex("d9d505f920a163d7"))


def an_input_full_of_links() -> None:
    Path("data").mkdir()
    Path("data/state.json").symlink_to(Path("../outside/secret").resolve())
    record(data=str(Path("data").resolve()))


def a_tracker_under_which_a_link_lies() -> None:
    shutil.copy("films.csv", "own.csv")
    Path("logs/run").mkdir(parents=True)
    Path("logs/run/step-e-plus").symlink_to(Path("../outside").resolve())
    record(data="own.csv", track=["tensorboard:logs"])


def a_history_with_a_link() -> None:
    Path("run/tensorboard/step-e-plus").mkdir(parents=True)
    link = Path("run/tensorboard/step-e-plus/events.out.tfevents.1.a.1.0")
    link.symlink_to(Path("../outside/secret").resolve())
    record(data="films.csv", track=["tensorboard"])


def a_method_that_is_a_path() -> None:
    record(data="films.csv", methods=["step-e-plus", "../../outside/x"], track=["tensorboard:logs"])


def pictures_that_climb_out() -> None:
    Path("films").mkdir()
    samples = pd.read_parquet("run/samples.parquet")
    samples["id"] = [["../../outside/secret", "/etc/passwd", "link"][row % 3] for row in samples["row"]]
    Path("films/link").symlink_to(Path("../outside/secret").resolve())
    samples.to_parquet("run/samples.parquet")
    record(data="films", kind="images", text=None, label=None)


def pictures_in_a_table_that_climb_out() -> None:
    films = pd.read_csv("films.csv", dtype=str)
    Path("link").symlink_to(Path("../outside/secret").resolve())
    films["review"] = [["../outside/secret", "/etc/passwd", "link"][row % 3] for row in range(len(films))]
    films.to_csv("pictures.csv", index=False)
    record(data="pictures.csv", text=None, image="review")


def a_name_that_no_file_has() -> None:
    record(data="a\0b.csv", test="\0", decisions="\ud800", data_dir="\0", track=["tensorboard:\0"], model="hf:\0")


def a_comparison_elsewhere() -> None:
    shutil.copytree("run", "../outside/run")
    Path("run/compare").mkdir()
    Path("run/compare/plain").symlink_to(Path("../outside/run").resolve())


def a_pickle_for_a_state() -> None:
    """Whatever is in a checkpoint, only numbers are read out of it."""
    newest = max(Path("run/checkpoint").iterdir())
    (newest / "state.pt").write_bytes(pickle.dumps(_Evil()))
    digests = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in newest.iterdir()}
    del digests["manifest.json"]
    (newest / "manifest.json").write_text(json.dumps(digests))
    Path("run/summary.json").unlink()
    record(data="films.csv")


class _Evil:
    def __reduce__(self) -> tuple[object, ...]:
        return Path.unlink, (Path("../outside/secret").resolve(),)


ATTACKS = (
    samples_in_a_folder,
    a_journal_that_names_a_file,
    an_input_full_of_links,
    a_tracker_under_which_a_link_lies,
    a_history_with_a_link,
    a_method_that_is_a_path,
    pictures_that_climb_out,
    pictures_in_a_table_that_climb_out,
    a_name_that_no_file_has,
    a_comparison_elsewhere,
    a_pickle_for_a_state,
)


@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize("unfinished", [False, True])
def test_nothing_outside_is_read_or_written(call, theirs, attack, unfinished):
    outside = Path("../outside").resolve()
    outside.mkdir()
    (outside / "secret").write_bytes(SECRET)
    shutil.copy(theirs / "films.csv", "films.csv")
    attack()
    if unfinished:
        Path("run/summary.json").unlink(missing_ok=True)
    before, opened = there(outside, theirs), []
    _WATCHED[:] = [(str(outside), opened)]
    try:
        for line in EVERYTHING:
            code, out, err = call(*line.split())
            assert code in (0, 2), line
            assert SECRET.decode() not in out + err
    finally:
        _WATCHED.clear()
    assert there(outside, theirs) == before
    assert opened == []
    assert all(SECRET not in content for path, content in there(Path()).items() if not path.is_symlink())


_WATCHED: list[tuple[str, list[str]]] = []


def _watch(event: str, arguments: tuple[object, ...]) -> None:
    """Note which files below a folder are opened; a hook stays for good, so that it is told what to note."""
    if _WATCHED and event in ("open", "sqlite3.connect"):
        folder, opened = _WATCHED[0]
        path = arguments[0]
        if isinstance(path, str | bytes) and os.path.realpath(os.fsdecode(path)).startswith(folder):
            opened.append(os.fsdecode(path))


sys.addaudithook(_watch)
