"""``stepe reproduce`` on a few random images: end to end, interrupted, and refused."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from torch import nn

import stepe
import stepe.cli
from command import Ended
from stepe.reproduction import grid, runner
from stepe.reproduction.numbers import METHOD_TITLES
from stepe.training.building import Training
from tiny_cifar import make_sets

TABLES = {"main", "noise", "per-seed", "cifar10n"}
FIGURES = {"convergence", "dynamics", "seed-band", "cifar10n"}


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    data = tmp_path_factory.mktemp("cifar") / "data"
    make_sets(data)
    return data


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("STEPE_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name in ("FORCE_COLOR", "PY_COLORS", "NO_COLOR", "GITHUB_ACTIONS"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def call(call) -> Callable[..., Ended]:
    return partial(call, "reproduce")


@pytest.fixture
def _small(monkeypatch) -> None:
    """A network that takes milliseconds where ResNet-18 takes seconds."""

    def small(classes: int, stem: str) -> nn.Module:
        return nn.Sequential(nn.Conv2d(3, 4, 8, stride=8), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(64, classes))

    monkeypatch.setattr(runner, "resnet18", small)


@pytest.fixture
def _nothing_runs(monkeypatch) -> None:
    def refuse(*args: object) -> None:
        raise AssertionError("a run was begun")

    monkeypatch.setattr(runner, "carry_out", refuse)


def runs_of(path: Path) -> list[dict]:
    return json.loads(path.read_text())["runs"]


@pytest.mark.usefixtures("_small")
def test_smoke_does_everything_the_paper_needs_end_to_end(call, data_dir, tmp_path):
    ended = call("--preset", "smoke", "--data-dir", str(data_dir), "--device", "cpu", "--out", "out")
    assert ended.code == 0, ended.err
    out = tmp_path / "out"
    written = {"cifar100n": grid.cifar100n, "cifar10n": grid.cifar10n}
    for file, cells in written.items():
        expected = [(cell.labels, cell.method, cell.seed, 3) for cell in cells()]
        found = [(r["labels"], r["method"], r["seed"], r["epochs"]) for r in runs_of(out / f"{file}.json")]
        assert sorted(found) == sorted(expected)
    assert len(runs_of(out / "sensitivity.json")) == 11
    assert len(list((out / "runs").iterdir())) == 42
    assert list((out / "unfinished").iterdir()) == []

    for name in TABLES:
        for kind in ("md", "tex"):
            assert (out / "tables" / f"{name}.{kind}").read_text().strip()
    for name in FIGURES:
        assert (out / "figures" / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert "<svg" in (out / "figures" / f"{name}.svg").read_text()
    table = (out / "tables" / "main.md").read_text()
    assert all(title in table for title in METHOD_TITLES.values())
    assert "50.4" in table  # the paper's own

    printed = {Path(line) for line in ended.out.splitlines()}
    files = {path.relative_to(tmp_path) for kind in ("tables", "figures") for path in (out / kind).iterdir()}
    assert printed == files
    assert "epoch 3/3" in ended.err
    assert "accuracy" in ended.err
    assert "kept" in ended.err
    assert "Traceback" not in ended.err


@pytest.mark.slow
def test_smoke_trains_the_papers_network_in_a_process_of_its_own(data_dir, tmp_path):
    source = str(Path(stepe.__file__).parents[1])
    environment = os.environ | {"OMP_NUM_THREADS": "1", "STEPE_DATA": str(data_dir)}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, (source, os.environ.get("PYTHONPATH"))))
    words = "reproduce --preset smoke --figure cifar10n --seeds 5 --epochs 2 --device cpu"
    command = [sys.executable, "-m", "stepe", *words.split()]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path, timeout=300)
    assert done.returncode == 0, done.stderr
    out = tmp_path / "results" / "smoke"
    assert [run["method"] for run in runs_of(out / "cifar10n.json")] == ["baseline", "step-e", "oracle"]
    environment = json.loads((out / "cifar10n.json").read_text())["environment"]
    assert environment["command"] == f"stepe {words}"
    assert (out / "figures" / "cifar10n.png").exists()
    assert not (out / "cifar100n.json").exists()


@pytest.mark.usefixtures("_small")
@pytest.mark.parametrize(
    ("words", "file", "cells"),
    [
        (["--table", "main"], "cifar100n", 6),
        (["--table", "noise"], "cifar100n", 6),
        (["--figure", "dynamics"], "cifar100n", 6),
        (["--table", "cifar10n"], "cifar10n", 3),
        (["--figure", "cifar10n"], "cifar10n", 3),
    ],
)
def test_one_table_or_figure_runs_what_it_needs_and_no_more(words, file, cells, call, data_dir, tmp_path, monkeypatch):
    monkeypatch.setattr("stepe.reproduction.figures.write_figures", lambda results, out: [])
    options = ["--preset", "smoke", "--seeds", "5", "--epochs", "2", "--data-dir", str(data_dir), "--device", "cpu"]
    ended = call(*words, *options)
    assert ended.code == 0, ended.err
    out = tmp_path / "results" / "smoke"
    assert [path.name for path in out.glob("*.json")] == [f"{file}.json"]
    assert len(list((out / "runs").iterdir())) == cells
    assert {run["seed"] for run in runs_of(out / f"{file}.json")} == {5}


@pytest.mark.usefixtures("_small")
def test_called_again_after_an_interruption_it_goes_on(call, data_dir, tmp_path, monkeypatch):
    words = ["--preset", "smoke", "--table", "main", "--seeds", "7", "--data-dir", str(data_dir), "--device", "cpu"]
    monkeypatch.setattr("stepe.reproduction.figures.write_figures", lambda results, out: [])
    monkeypatch.setattr(runner, "LARGEST_FLEET", 1)
    out = tmp_path / "results" / "smoke"
    started: list[int] = []
    run_started = runner._Progress.run_started

    def noted(progress: runner._Progress, training: Training) -> None:
        run_started(progress, training)
        started.append(training.epoch)
        if len(started) == 4:
            raise KeyboardInterrupt

    monkeypatch.setattr(runner._Progress, "run_started", noted)
    assert call(*words).code == 130
    assert len(list((out / "runs").iterdir())) == 3
    assert not (out / "tables").exists()
    ended = call(*words)
    assert ended.code == 0, ended.err
    assert len(started) == 4 + 3
    assert len(runs_of(out / "cifar100n.json")) == 6


@pytest.mark.usefixtures("_small")
def test_a_look_at_the_smoke_test_leaves_the_papers_results_alone(call, data_dir, tmp_path):
    committed = tmp_path / "results" / "paper" / "cifar100n.json"
    committed.parent.mkdir(parents=True)
    committed.write_text('{"runs": [], "environment": {}}')
    options = ["--table", "main", "--seeds", "5", "--epochs", "2", "--data-dir", str(data_dir), "--device", "cpu"]
    assert call("--preset", "smoke", *options).code == 0
    assert committed.read_text() == '{"runs": [], "environment": {}}'
    assert (tmp_path / "results" / "smoke" / "tables" / "main.md").exists()


@pytest.mark.usefixtures("_nothing_runs")
@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--table overhead", "unknown table 'overhead'; choose one of main, noise, per-seed, cifar10n"),
        ("--figure table", "unknown figure 'table'; choose one of convergence, dynamics, seed-band, cifar10n"),
        ("--seeds 1,two", "seeds are '1,two'; write them as 13,21,42"),
        ("--seeds 1;2", "seeds are '1;2'; write them as 13,21,42"),
        ("--seeds 1,", "seeds are '1,'; write them as 13,21,42"),
        ("--preset papers", "preset is 'papers'; choose paper or smoke"),
        ("--epochs 0", "epochs is 0; it must be a whole number, at least 1"),
        ("--epochs -3", "epochs is -3; it must be a whole number, at least 1"),
        ("--epochs 1", "more epochs"),
        ("--epochs many", "many"),
        ("--device abacus", "device 'abacus' is not there"),
        ("--tables main", "--tables"),
    ],
)
def test_a_mistake_is_one_line_and_code_2_before_anything_runs(words, message, call, tmp_path):
    ended = call(*words.split())
    assert ended.code == 2
    assert message in ended.err
    assert ended.err.startswith("Error: ")
    assert len(ended.err.strip().splitlines()) == 1
    assert ended.out == ""
    assert list(tmp_path.iterdir()) == []


def test_data_that_cannot_be_had_is_one_line_and_code_2(call, monkeypatch):
    requests = pytest.importorskip("requests")
    pytest.importorskip("pooch")

    def offline(*args: object, **options: object) -> None:
        raise requests.exceptions.ConnectionError("no network")

    monkeypatch.setattr(requests, "get", offline)
    monkeypatch.setattr("stepe.data.download.RETRIES", 0)
    ended = call("--preset", "smoke", "--data-dir", "empty", "--device", "cpu")
    assert ended.code == 2
    last = ended.err.strip().splitlines()[-1]
    assert last.startswith("Error: https://")
    assert "could not be downloaded (no network); try again later, or get " in last
    assert "put it into empty" in last
    assert "Traceback" not in ended.err


def test_data_that_is_not_there_without_the_means_to_get_it_is_one_line_and_code_2(call, monkeypatch):
    monkeypatch.setitem(sys.modules, "pooch", None)
    ended = call("--preset", "smoke", "--data-dir", "empty", "--device", "cpu")
    assert ended.code == 2
    assert ended.err.startswith("Error: downloading cifar-100")
    assert "pip install 'stepe[download]'; or get https://" in ended.err
    assert len(ended.err.strip().splitlines()) == 1


def test_a_data_file_that_is_not_there_is_named(call, data_dir, tmp_path):
    (tmp_path / "data").mkdir()
    for path in data_dir.iterdir():
        if path.name != "cifar-100-python":
            (tmp_path / "data" / path.name).symlink_to(path)
    (tmp_path / "data" / "cifar-100-python").mkdir()
    for name in ("test", "meta"):
        (tmp_path / "data" / "cifar-100-python" / name).symlink_to(data_dir / "cifar-100-python" / name)
    ended = call("--preset", "smoke", "--table", "main", "--data-dir", "data", "--device", "cpu")
    assert ended.code == 2
    assert ended.err.startswith("Error: data/cifar-100-python/train is missing; ")
    assert len(ended.err.strip().splitlines()) == 1


@pytest.mark.usefixtures("_small")
def test_a_seed_named_twice_runs_once(call, data_dir, tmp_path, monkeypatch):
    monkeypatch.setattr("stepe.reproduction.figures.write_figures", lambda results, out: [])
    options = ["--preset", "smoke", "--table", "cifar10n", "--epochs", "2", "--data-dir", str(data_dir)]
    assert call(*options, "--seeds", "5,5", "--device", "cpu").code == 0
    assert len(runs_of(tmp_path / "results" / "smoke" / "cifar10n.json")) == 3
