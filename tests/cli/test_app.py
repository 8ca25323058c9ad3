"""The command line: what it prints where, what it refuses, and how it ends."""

import json
import os
import pty
import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import stepe
import stepe.cli
from command import Ended
from processes import signalled
from stepe import Run
from stepe.methods import EVERY_METHOD
from stepe.training.recorder import Recorder

COMMANDS = [command.name or command.callback.__name__ for command in stepe.cli.app.app.registered_commands]


def environment(**more: str) -> dict[str, str]:
    """As it is, with the package at hand whether or not it is installed, and without what would force colours."""
    found = {key: value for key, value in os.environ.items() if key not in ("FORCE_COLOR", "PY_COLORS", "NO_COLOR")}
    source = str(Path(stepe.__file__).parents[1])
    found["PYTHONPATH"] = os.pathsep.join(filter(None, (source, os.environ.get("PYTHONPATH"))))
    found["OMP_NUM_THREADS"] = "1"
    return found | more


def spawn(*words: str, **options) -> Ended:
    """A command in a process of its own."""
    command = [sys.executable, "-m", "stepe", *words]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(), timeout=300, **options)
    return Ended(done.returncode, done.stdout, done.stderr)


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("FORCE_COLOR", "PY_COLORS", "NO_COLOR", "GITHUB_ACTIONS"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def _no_report(monkeypatch) -> None:
    """Reports have tests of their own, and take longer than these runs."""

    def write(run: Run) -> Path:
        (run.path / "report.html").write_text("report")
        return run.path / "report.html"

    monkeypatch.setattr("stepe.report.html.write_report", write)


@pytest.fixture
def mine(tmp_path) -> str:
    """A small file of people's own."""
    draw = np.random.default_rng(0)
    x = 3 * np.repeat(np.eye(3), 30, axis=0) + draw.normal(size=(90, 3))
    labels = np.repeat(["ant", "bee", "cat"], 30)
    labels[::9] = "cat"
    np.savez(tmp_path / "mine.npz", features=x, labels=labels)
    return "mine.npz"


@pytest.fixture(scope="session")
def finished(tmp_path_factory) -> Path:
    """Two finished runs in ``runs``, the later one called digits-2; to be copied, not changed."""
    folder = tmp_path_factory.mktemp("finished")
    for number, method in ((1, "one-shot"), (2, "step-e")):
        path = folder / "runs" / f"digits-{number}"
        stepe.clean("digits", method=method, epochs=12, warmup=2, compare=False, out=path)
        os.utime(path / "config.json", (number, number))
    return folder


@pytest.fixture
def runs(finished, tmp_path) -> Path:
    return shutil.copytree(finished / "runs", tmp_path / "runs")


def is_complaint(ended: Ended) -> bool:
    """One line on standard error, exit code 2, nothing else."""
    return (
        ended.code == 2
        and ended.out == ""
        and ended.err.startswith("Error: ")
        and ended.err.endswith("\n")
        and ended.err.count("\n") == 1
        and "\x1b" not in ended.err
    )


# ---------------------------------------------------------------------------------------------------------------
# Help and version


def test_the_version_is_told(call):
    assert call("--version") == Ended(0, f"stepe {stepe.__version__}\n", "")


def test_without_a_command_the_help_is_shown(call):
    ended = call()
    assert ended.code == 2
    assert "Usage" in ended.out + ended.err
    assert "Error" not in ended.out + ended.err
    assert all(command in ended.out + ended.err for command in COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(call, command):
    ended = call(command, "--help")
    assert ended.code == 0
    assert "Usage" in ended.out
    assert "\x1b" not in ended.out
    assert "[b]" not in ended.out


def test_the_help_of_clean_mentions_every_method_option_and_default(call, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    text = " ".join(call("clean", "--help").out.replace("│", " ").split())
    assert all(name in text for name in EVERY_METHOD)
    for option in ("--method", "--epochs", "--warmup", "--rho-max", "--seed", "--out", "--device", "--noise"):
        assert option in text
    for option in ("--compare", "--no-compare", "--resume", "--quiet", "--json", "--min-keep"):
        assert option in text
    for default in ("step-e", "symmetric:0.4 for bundled data", "20 to 60", "a sixth", "min(0.5, rate + 0.05)"):
        assert default in text
    for default in ("[default: 0]", "runs/DATA-N", "[default: auto]", "on for bundled data"):
        assert default in text


def test_the_help_of_the_others_mentions_their_defaults(call):
    assert "[default: latest]" in call("report", "--help").out
    assert "[default: comparison.svg]" in call("compare", "--help").out


# ---------------------------------------------------------------------------------------------------------------
# Results and messages


@pytest.mark.usefixtures("_no_report")
def test_results_go_to_standard_output_and_progress_to_standard_error(call):
    ended = call("clean", "digits", "--epochs", "2", "--out", "run")
    assert ended.code == 0
    assert "\x1b" not in ended.out + ended.err
    *progress, told = ended.err.splitlines()
    assert [line.split()[0] for line in progress] == ["step-e-plus", "plain", "oracle"]
    assert told == "clean: method step-e-plus, the default"
    assert re.search(r"step-e-plus +epoch 2/2 +loss \d\.\d+ +kept \d+% +accuracy \d+\.\d% +about 0 s left", ended.err)
    rows = re.findall(r"│ (plain|step-e-plus|oracle) +│", ended.out)
    assert rows == ["plain", "step-e-plus", "oracle"]
    assert all(column in ended.out for column in ("accuracy", "F1", "dropped", "flagged", "AUROC", "seconds"))
    assert "Top suspects, 10 of" in ended.out
    summary = Run("run").summary
    assert f"{summary.flagged} of 1438 labels look wrong:" in ended.out
    assert ended.out.splitlines()[-3:] == [
        "  run/issues.csv",
        "  run/report.html",
        "Go through them with: stepe review run",
    ]


@pytest.mark.usefixtures("_no_report")
def test_json_is_one_object_and_nothing_else(call):
    ended = call("clean", "digits", "--epochs", "2", "--json", "--method", "step-e,plain", "--no-compare")
    assert ended.code == 0
    assert ended.err == ""
    assert ended.out.count("\n") == 1
    told = json.loads(ended.out)
    assert told["run"] == "runs/digits-1"
    assert Path(told["report"]).exists()
    assert told["summary"] == Run("runs/digits-1").summary.to_json()
    assert told["compare"] == {"plain": Run("runs/digits-1/compare/plain").summary.to_json()}


@pytest.mark.usefixtures("_no_report")
def test_quiet_prints_the_folder_and_nothing_else(call, mine):
    assert call("clean", mine, "--rho-max", "0.2", "--epochs", "2", "--quiet") == Ended(0, "runs/mine-1\n", "")
    assert call("clean", mine, "--rho-max", "0.2", "--epochs", "2", "-q").out == "runs/mine-2\n"


@pytest.mark.usefixtures("_no_report")
def test_a_method_that_drops_nothing_says_so(call, mine):
    ended = call("clean", mine, "--method", "plain", "--epochs", "2")
    assert ended.code == 0
    assert "plain drops nothing, so it flags nothing." in ended.out
    assert "stepe review" not in ended.out


@pytest.mark.usefixtures("_no_report")
def test_all_methods_are_trained_and_compared(call, mine):
    ended = call("clean", mine, "--method", "all", "--noise", "symmetric:0.2", "--epochs", "2", "--out", "run")
    assert ended.code == 0
    assert sorted(path.name for path in Path("run/compare").iterdir()) == sorted(set(EVERY_METHOD) - {"step-e-plus"})
    assert all(f"│ {name} " in ended.out for name in EVERY_METHOD)


@pytest.mark.usefixtures("_no_report")
def test_comparing_is_on_for_bundled_data_and_off_for_peoples_own(call, mine):
    call("clean", "digits", "--epochs", "1", "--out", "a")
    call("clean", "digits", "--epochs", "1", "--no-compare", "--out", "b")
    call("clean", mine, "--epochs", "1", "--rho-max", "0.2", "--out", "c")
    call("clean", mine, "--epochs", "1", "--rho-max", "0.2", "--compare", "--out", "d")
    found = {name: sorted(other.method for other in Run(name).others) for name in "abcd"}
    assert found == {"a": ["oracle", "plain"], "b": [], "c": [], "d": ["plain"]}


@pytest.mark.usefixtures("_no_report")
def test_a_local_path_named_like_bundled_data_wins_and_says_so(call, tmp_path):
    (tmp_path / "digits").mkdir()
    ended = call("clean", "digits", "--epochs", "1")
    assert ended.code == 2
    assert "'digits' is a local path, which wins over the bundled data set" in ended.err
    assert "bundled:digits" in ended.err
    assert call("clean", "bundled:digits", "--epochs", "1", "--quiet", "--no-compare").out == "runs/digits-1\n"


@pytest.mark.usefixtures("_no_report")
def test_names_from_the_data_are_printed_as_they_are(call, tmp_path):
    draw = np.random.default_rng(0)
    true = np.arange(80) % 2
    labels = np.array(["[red]a[/red]", ":dog:"])[np.where(np.arange(80) % 7 == 0, 1 - true, true)]
    np.savez(tmp_path / "[b] :cat:.npz", features=draw.normal(size=(80, 3)) + 4 * true[:, None], labels=labels)
    ended = call("clean", "[b] :cat:.npz", "--rho-max", "0.4", "--epochs", "12")
    assert ended.code == 0
    assert "[b] :cat:" in ended.out
    assert "[red]a[/red]" in ended.out
    assert ":dog:" in ended.out


# ---------------------------------------------------------------------------------------------------------------
# Bad input

MISTAKES = {
    "unknown data": ("clean nothing", "'nothing' is neither a file here nor a known data set; there is digits"),
    "unknown bundled data": ("clean bundled:nothing", "unknown bundled data set 'nothing'"),
    "no data": ("clean", "give DATA to clean"),
    "data and a run": ("clean digits --resume run", "give DATA to clean"),
    "unknown method": (
        "clean digits --method magic",
        "unknown method 'magic'; choose one of step-e, step-e-plus, plain",
    ),
    "method that resembles another": ("clean digits --method step-f", "margins, prune; did you mean step-e"),
    "unknown method in a list": ("clean digits --method step-e,magic", "unknown method 'magic'"),
    "rho of 1": ("clean digits --rho-max 1", "rho_max is 1.0; it must be a number in [0, 1)"),
    "negative rho": ("clean digits --rho-max -0.1", "rho_max is -0.1"),
    "rho that is no number": ("clean digits --rho-max nan", "rho_max is nan"),
    "rho of a word": ("clean mine.npz --rho-max much", "--rho-max is 'much'; give a number, or auto"),
    "warm-up as long as the run": ("clean digits --epochs 5 --warmup 5", "warm-up is 5 of 5 epochs"),
    "negative warm-up": ("clean digits --warmup -1", "warmup is -1; it must be a whole number, at least 0"),
    "no epochs": ("clean digits --epochs 0", "epochs is 0; it must be a whole number, at least 1"),
    "epochs that are no number": ("clean digits --epochs ten", "Invalid value for '--epochs'"),
    "malformed noise": ("clean digits --noise symmetric=0.4", "noise is 'symmetric=0.4'"),
    "noise above 1": ("clean digits --noise symmetric:1.4", "the rate must lie in [0, 1)"),
    "no such device": ("clean digits --device tpu", "device 'tpu' is not there; use one that is"),
    "no such gpu": ("clean digits --device cuda:99", "device 'cuda:99' is not there"),
    "device without numbers": ("clean digits --device meta", "device 'meta' is not there"),
    "class floor above 1": ("clean digits --min-keep 1.5", "min_keep is 1.5"),
    "strong augmentation of no pictures": ("clean digits --strong 0.3", "strong is for pictures"),
    "clean labels missing": ("clean mine.npz --method oracle", "which mine does not have"),
    "option without effect": ("clean mine.npz --method plain --rho-max 0.2", "method 'plain' has no rho_max"),
    "mistake in a compared method": ("clean digits --method plain --rho-max 2", "rho_max is 2.0"),
    "warm-up of a compared method": ("clean digits --method plain --epochs 3 --warmup 3", "warm-up is 3 of 3"),
    "folder not empty": ("clean digits --out taken", "taken is not empty; choose another folder"),
    "folder is a file": ("clean digits --out mine.npz", "mine.npz is a file; choose another folder"),
    "folder below a file": ("clean digits --epochs 1 --out mine.npz/run", "cannot write mine.npz/run"),
    "folder that cannot be": ("clean digits --epochs 1 --out /proc/none/run", "cannot write /proc/none/run"),
    "no run to resume": ("clean --resume nowhere", "nowhere is not a run folder"),
    "no latest run to resume": ("clean --resume latest", "there is no run under runs/ yet"),
    "another kind of file": ("clean taken/text.txt", "is not a kind of data that can be read"),
    "damaged file": ("clean broken.npz", "broken.npz cannot be read as an npz file"),
    "unknown option": ("clean digits --speed 9", "No such option"),
    "option that resembles another": (
        "clean digits --roh-max 0.2",
        "No such option: --roh-max; did you mean --rho-max?",
    ),
    "option that resembles several": ("clean digits --lable kind", "--lable; did you mean --label or --relabel"),
    "command that resembles another": ("claen digits", "No such command 'claen'. Did you mean 'clean', 'cleaned'?"),
    "unknown command": ("wash digits", "No such command 'wash'"),
    "too many words": ("clean digits twice", "unexpected extra argument"),
    "report of nothing": ("report nowhere", "nowhere is not a run folder (no config.json)"),
    "report of a file": ("report mine.npz", "mine.npz is not a run folder"),
    "report before any run": ("report", "there is no run under runs/ yet; make one with `stepe clean digits`"),
    "explain nothing": ("explain nowhere 1", "nowhere is not a run folder"),
    "explain without an id": ("explain nowhere", "Missing argument"),
    "compare nothing": ("compare nowhere", "nowhere is not a run folder"),
}


@pytest.mark.parametrize(("line", "told"), MISTAKES.values(), ids=MISTAKES.keys())
def test_a_mistake_is_one_line_and_exit_code_2_and_writes_nothing(call, mine, tmp_path, line, told):
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "text.txt").write_text("mine")
    (tmp_path / "broken.npz").write_bytes(b"PK\x03\x04 cut off")
    before = sorted(tmp_path.rglob("*"))
    ended = call(*line.split())
    assert is_complaint(ended), ended
    assert told in ended.err
    assert sorted(tmp_path.rglob("*")) == before


def test_a_mistake_in_a_process_of_its_own_leaves_no_traceback():
    ended = spawn("clean", "digits", "--method", "magic")
    assert is_complaint(ended), ended
    assert "Traceback" not in ended.err


def test_a_complaint_is_printed_as_it_is_and_on_one_line(call):
    ended = call("clean", "[red]:dog:[/red]\nnext line " + "and on " * 60)
    assert is_complaint(ended), ended
    assert "[red]:dog:[/red]" in ended.err


@pytest.mark.usefixtures("_no_report")
def test_a_full_disk_is_one_line(call, mine, monkeypatch):
    def refuse(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("stepe.training.checkpoint.np.savez", refuse)
    ended = call("clean", mine, "--rho-max", "0.2", "--epochs", "2", "--out", "run")
    assert is_complaint(Ended(ended.code, ended.out, ended.err)), ended
    assert "cannot write run/checkpoint/epoch-00000: No space left on device; free some space" in ended.err
    assert not list(Path("run").rglob(".tmp-*"))


# ---------------------------------------------------------------------------------------------------------------
# Interrupting and resuming


def interrupt_after(epoch: int, monkeypatch) -> None:
    """As Ctrl-C would, at a precise moment."""
    ended = Recorder.epoch_ended

    def interrupting(self, training, row):
        ended(self, training, row)
        if training.epoch == epoch:
            monkeypatch.setattr(Recorder, "epoch_ended", ended)
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(Recorder, "epoch_ended", interrupting)


@pytest.mark.usefixtures("_no_report")
def test_ctrl_c_exits_130_and_prints_the_command_that_resumes(call, mine, monkeypatch):
    interrupt_after(2, monkeypatch)
    ended = call("clean", mine, "--rho-max", "0.2", "--epochs", "4", "--out", "my runs/it's one")
    assert ended.code == 130
    assert ended.out == ""
    command = re.search(r"Interrupted\. Continue with: (.*)\n", ended.err)[1]
    words = shlex.split(command)
    assert words[0] == "stepe"
    resumed = call(*words[1:])
    assert resumed.code == 0
    assert "labels look wrong" in resumed.out
    assert [row["epoch"] for row in Run("my runs/it's one").history] == [0, 1, 2, 3]


@pytest.mark.usefixtures("_no_report")
def test_ctrl_c_before_anything_is_written_says_so(call, monkeypatch):
    def interrupt(*args, **options):
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr("stepe.app.begin.open_source", interrupt)
    ended = call("clean", "digits")
    assert ended.code == 130
    assert "Interrupted before anything was written." in ended.err


def test_ctrl_c_ends_a_real_process_and_the_printed_command_continues_it(tmp_path):
    command = [sys.executable, "-c", signalled(signal.SIGINT), "clean", "digits", "--epochs", "5", "--no-compare"]
    ended = subprocess.run(command, capture_output=True, text=True, env=environment(), timeout=300)
    err = ended.stderr
    assert (ended.returncode, ended.stdout) == (130, "")
    assert "Traceback" not in err
    words = shlex.split(re.search(r"Continue with: (.*)\n", err)[1])
    assert words == ["stepe", "clean", "--resume", "runs/digits-1"]
    assert not Run("runs/digits-1").finished
    resumed = spawn(*words[1:], "--json")
    assert resumed.code == 0
    assert json.loads(resumed.out)["summary"]["epochs"] == 5
    assert [row["epoch"] for row in Run("runs/digits-1").history] == list(range(5))


@pytest.mark.usefixtures("_no_report")
@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("--epochs 5", "epochs was 4, not 5"),
        ("--seed 0", "seed was 3, not 0"),
        ("--noise symmetric:0.1", "noise was None, not 'symmetric:0.1'"),
        ("--rho-max 0.1", "rho_max was 0.2, not 0.1"),
        ("--warmup 3", "warmup was None, not 3"),
        ("--min-keep 0.1", "min_keep was 0.0, not 0.1"),
        ("--strong 0.3", "strong was 0.0, not 0.3"),
        ("--method plain", "method was 'step-e-plus', not 'plain'"),
        ("--compare", "compare was None, not True"),
        ("--out other", "--out other is not the run that --resume run names"),
    ],
)
def test_resuming_with_another_configuration_names_the_difference(call, mine, monkeypatch, words, told):
    interrupt_after(2, monkeypatch)
    call("clean", mine, "--rho-max", "0.2", "--epochs", "4", "--seed", "3", "--out", "run")
    ended = call("clean", "--resume", "run", *words.split())
    assert is_complaint(ended), ended
    assert told in ended.err
    assert [row["epoch"] for row in Run("run").history] == [0, 1]


@pytest.mark.usefixtures("_no_report")
def test_the_same_configuration_may_be_repeated_when_resuming(call, mine, monkeypatch):
    interrupt_after(2, monkeypatch)
    call("clean", mine, "--rho-max", "0.2", "--epochs", "4", "--seed", "3")
    words = shlex.split("--rho-max 0.2 --epochs 4 --seed 3 --method step-e-plus --device cpu --out runs/mine-1 --quiet")
    assert call("clean", "--resume", "latest", *words) == Ended(0, "runs/mine-1\n", "")


@pytest.mark.usefixtures("_no_report")
def test_a_warning_is_one_line_for_people(mine, monkeypatch, call):
    interrupt_after(2, monkeypatch)
    call("clean", mine, "--rho-max", "0.2", "--epochs", "4", "--out", "run")
    (Path("run") / "checkpoint" / "epoch-00002" / "state.pt").write_bytes(b"")
    ended = spawn("clean", "--resume", "run", "--quiet")
    assert ended.code == 0
    assert ended.out == "run\n"
    warnings = [line for line in ended.err.splitlines() if "damaged" in line]
    assert warnings == [
        "Warning: checkpoint run/checkpoint/epoch-00002 is damaged (state.pt has changed); going back to the one before"
    ]
    assert ".py" not in ended.err


# ---------------------------------------------------------------------------------------------------------------
# In a terminal


def test_a_terminal_sees_a_live_bar(mine):
    leader, follower = pty.openpty()
    command = [sys.executable, "-m", "stepe", "clean", mine, "--rho-max", "0.2", "--epochs", "12"]
    env = environment(TERM="xterm-256color", COLUMNS="120")
    with subprocess.Popen(command, stdin=follower, stdout=follower, stderr=follower, env=env) as process:
        os.close(follower)
        seen = b""
        while True:
            try:
                part = os.read(leader, 4096)
            except OSError:  # the other end is closed
                break
            if not part:
                break
            seen += part
    os.close(leader)
    text = seen.decode()
    assert process.returncode == 0
    plain_text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)
    assert "\x1b[2K" in text  # a line is drawn over
    assert re.search(r"step-e-plus +━+ epoch 12/12 loss \d\.\d+ +kept 81% +accuracy \d+\.\d% +\d+:\d\d", plain_text)
    assert "labels look wrong" in plain_text


# ---------------------------------------------------------------------------------------------------------------
# Looking at runs


def test_report_takes_the_latest_run_unless_one_is_named(call, runs):
    for path in runs.glob("*/report.html"):
        path.unlink()
    assert call("report") == Ended(0, "runs/digits-2/report.html\n", "")
    assert (runs / "digits-2" / "report.html").exists()
    assert not (runs / "digits-1" / "report.html").exists()
    assert call("report", "latest").out == "runs/digits-2/report.html\n"
    assert call("report", "runs/digits-1").out == "runs/digits-1/report.html\n"
    assert "<html" in (runs / "digits-1" / "report.html").read_text()


def test_an_unfinished_run_says_how_to_continue(call, runs):
    (runs / "digits-2" / "summary.json").unlink()
    for words in (["report"], ["explain", "latest", "1"], ["compare", "latest"], ["compare", "latest", "--json"]):
        ended = call(*words)
        assert is_complaint(ended), ended
        assert "runs/digits-2 is not finished; continue it with `stepe clean --resume runs/digits-2`" in ended.err


def test_a_folder_called_latest_is_that_folder(call, runs):
    (runs / "digits-1").rename("latest")
    assert call("report", "latest").out == "latest/report.html\n"


def readmitted(run: Run) -> tuple[str, list[dict[str, object]]]:
    """A training sample that was dropped and came back, and its trace."""
    training = run.samples[run.samples["split"] == "train"]
    for index, name in enumerate(training["id"]):
        trace = run.trace(index)
        fates = "".join("x" if entry["dropped"] else "." for entry in trace[:-1])
        if "x." in fates:
            return name, trace
    raise AssertionError("no sample came back")


def test_explain_tells_of_drops_and_readmissions(call, runs):
    name, trace = readmitted(Run(runs / "digits-2"))
    ended = call("explain", "latest", name)
    assert ended.code == 0
    assert "\x1b" not in ended.out
    assert ended.out.startswith(f"Sample {name} (row {name}, train)")
    assert "given label" in ended.out
    assert "the model says" in ended.out
    assert "loss by epoch, 0 to 11" in ended.out
    fates = "".join("x" if entry["dropped"] else "·" for entry in trace[:-1])
    assert f"\n  {fates}\n" in ended.out
    assert ": dropped\n" in ended.out
    assert ": kept again\n" in ended.out
    assert "predicted" in ended.out


def test_explain_as_json_is_the_same_story(call, runs):
    name, trace = readmitted(Run(runs / "digits-2"))
    ended = call("explain", "runs/digits-2", name, "--json")
    told = json.loads(ended.out)
    assert told["epochs"] == trace
    assert told["sample"]["id"] == name
    assert told["sample"]["row"] == int(name)
    assert isinstance(told["sample"]["flagged"], bool)
    assert ended.err == ""


def test_a_held_out_sample_has_no_story(call, runs):
    samples = Run(runs / "digits-2").samples
    name = samples[samples["split"] == "test"]["id"].iloc[0]
    ended = call("explain", "latest", name)
    assert ended.code == 0
    assert "A held-out sample" in ended.out


def test_an_unknown_id_is_one_line(call, runs):
    ended = call("explain", "latest", "nobody")
    assert is_complaint(ended), ended
    assert "runs/digits-2 has no sample with the id 'nobody'; ids look like " in ended.err


@pytest.mark.parametrize("ending", ["svg", "png", "pdf"])
def test_compare_prints_a_table_and_draws_the_curves(call, runs, ending, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    ended = call("compare", "runs/digits-1", "latest", "--out", f"curves.{ending}")
    assert ended.code == 0
    text = " ".join(ended.out.split())
    assert "digits-1 (one-shot)" in text
    assert "digits-2 (step-e)" in text
    assert f"Curves: curves.{ending}" in text
    start = {"svg": b"<?xml", "png": b"\x89PNG", "pdf": b"%PDF"}[ending]
    assert Path(f"curves.{ending}").read_bytes().startswith(start)
    assert not list(Path().glob(".tmp-*"))


def test_compare_draws_where_nobody_said_so_into_comparison_svg(call, runs):
    assert call("compare", "runs/digits-1", "runs/digits-2").code == 0
    assert Path("comparison.svg").exists()


def test_compare_as_json_draws_nothing(call, runs):
    ended = call("compare", "runs/digits-1", "runs/digits-2", "--json")
    told = json.loads(ended.out)
    assert [entry["run"] for entry in told] == ["runs/digits-1", "runs/digits-2"]
    assert told[1]["summary"] == Run(runs / "digits-2").summary.to_json()
    assert not Path("comparison.svg").exists()


@pytest.mark.parametrize(
    ("out", "told"), [("curves.doc", "must end in .svg, .png or .pdf"), ("none/a.svg", "cannot write")]
)
def test_compare_refuses_what_it_cannot_draw(call, runs, out, told):
    ended = call("compare", "runs/digits-1", "runs/digits-2", "--out", out)
    assert is_complaint(ended), ended
    assert told in ended.err
    assert out in ended.err


def test_a_reader_that_had_enough_is_no_reason_to_complain(runs):
    command = [sys.executable, "-m", "stepe", "compare", "runs/digits-1", "runs/digits-2"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()) as process:
        process.stdout.close()
        err = process.stderr.read().decode()
    assert "Traceback" not in err
    assert "Error" not in err
