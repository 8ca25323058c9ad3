"""The grid on a few random images, with a network that takes milliseconds where ResNet-18 takes seconds."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from stepe.reproduction import grid, runner
from stepe.reproduction.grid import Cell
from stepe.reproduction.runner import Bench, Loaded, Silent, carry_out, gather, job_of, warm_up
from stepe.samples.augmentation import Normalised
from stepe.training.building import Result, Training
from stepe.training.session import Row
from tiny_cifar import make_sets

CPU = torch.device("cpu")
RUN_KEYS = {"data", "labels", "method", "seed", "stem", "variant", "epochs", "engine", "commit"} | {
    "test_accuracy",
    "best_test_accuracy",
    "noise_f1",
    "noise_precision",
    "noise_recall",
    "noise_auroc",
    "seconds_per_epoch",
    "total_seconds",
    "history",
}
NOISE_KEYS = {"noise_f1", "noise_precision", "noise_recall", "noise_auroc"}
EPOCH_KEYS = {"epoch", "train_loss", "learning_rate", "kept", "dropped", "drop_fraction", "came", "went"} | {
    "test_accuracy",
    "precision",
    "recall",
    "f1",
    "auroc",
}


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    data = tmp_path_factory.mktemp("cifar") / "data"
    make_sets(data)
    return data


@pytest.fixture
def bench(data_dir) -> Bench:
    return Bench(CPU, data_dir, checkpoint_every=1)


@pytest.fixture(autouse=True)
def stems(monkeypatch) -> list[str]:
    """A small network takes ResNet-18's place; the stems it was asked for."""
    asked: list[str] = []

    def small(classes: int, stem: str) -> nn.Module:
        asked.append(stem)
        return nn.Sequential(
            nn.Conv2d(3, 4, 3, stride=4),
            nn.BatchNorm2d(4),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(2),
            nn.Flatten(),
            nn.Linear(16, classes),
        )

    monkeypatch.setattr(runner, "resnet18", small)
    return asked


def main_cells(*methods: str, seeds: tuple[int, ...] = (42,), epochs: int = 4) -> list[Cell]:
    return [cell.lasting(epochs) for cell in grid.cifar100n(seeds) if not methods or cell.method in methods]


def unobserved(name: str) -> Silent:
    return Silent()


def finish(cell: Cell, data: Loaded, bench: Bench) -> Result:
    return job_of(cell, data, Path("nowhere"), bench, unobserved, epochs=cell.epochs).finish()


def read(path: Path) -> Any:
    return json.loads(path.read_text())


def without_clock(run: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in run.items() if "seconds" not in key}


class Follower(Silent):
    """Notes down which run was started at which epoch, and can stop one."""

    def __init__(self, started: list[tuple[str, int]], name: str, stop: tuple[str, int] | None = None):
        self.started, self.name, self.stop = started, name, stop
        self.result: Result | None = None

    def run_started(self, training: Training) -> None:
        self.started.append((self.name, training.epoch))

    def epoch_ended(self, training: Training, row: Row) -> None:
        if self.stop == (self.name, training.epoch):
            raise KeyboardInterrupt

    def run_ended(self, result: Result) -> None:
        self.result = result


# What is written


@pytest.fixture(scope="module")
def finished(data_dir, tmp_path_factory) -> tuple[list[Cell], Path, dict[str, Result]]:
    """A little of every result file, carried out once for the tests that only look at it."""
    out = tmp_path_factory.mktemp("out")
    cells = [
        *main_cells(seeds=(13, 42)),
        *(cell.lasting(3) for cell in [*grid.cifar10n((42,))[:4], *grid.sensitivity()[-2:], *grid.cifar_stem()[4:5]]),
    ]
    followers: dict[str, Follower] = {}

    def follow(name: str) -> Follower:
        return followers.setdefault(name, Follower([], name))

    def small(classes: int, stem: str) -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(3072, classes))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runner, "resnet18", small)
        carry_out(cells, out, Bench(CPU, data_dir), follow)
    results = {name: follower.result for name, follower in followers.items() if follower.result is not None}
    return cells, out, results


def test_every_run_is_a_file_and_in_its_tables_file_in_the_order_of_the_grid(finished):
    cells, out, _ = finished
    assert {path.name for path in (out / "runs").iterdir()} == {f"{cell.key}.json" for cell in cells}
    assert {path.name for path in out.glob("*.json")} == {f"{cell.file}.json" for cell in cells}
    for file in {cell.file for cell in cells}:
        content = read(out / f"{file}.json")
        mine = [cell for cell in cells if cell.file == file]
        assert content.keys() == {"runs", "environment"}
        assert content["runs"] == [read(out / "runs" / f"{cell.key}.json")["run"] for cell in mine]
        for run, cell in zip(content["runs"], mine, strict=True):
            assert {key: run[key] for key in cell.describe()} == cell.describe()
        assert content["environment"]["device"] == "cpu"
        assert content["environment"]["torch"] == torch.__version__


def test_a_run_has_exactly_the_keys_that_were_agreed_on(finished):
    cells, out, _ = finished
    for file in {cell.file for cell in cells}:
        for run in read(out / f"{file}.json")["runs"]:
            assert run.keys() == RUN_KEYS
            assert [row["epoch"] for row in run["history"]] == list(range(run["epochs"]))
            assert all(row.keys() == EPOCH_KEYS for row in run["history"])


def test_shares_are_in_percent(finished):
    cells, out, results = finished
    for cell in cells:
        run, result = read(out / "runs" / f"{cell.key}.json")["run"], results[cell.key]
        summary = result.summary
        assert run["test_accuracy"] == pytest.approx(100 * summary.test_accuracy)
        assert run["best_test_accuracy"] == pytest.approx(100 * max(row["test_accuracy"] for row in result.history))
        for row, was in zip(run["history"], result.history, strict=True):
            for name in ("test_accuracy", "precision", "recall", "f1", "auroc"):
                if was[name] is None:
                    assert row[name] is None
                else:
                    assert row[name] == pytest.approx(100 * was[name], abs=6e-4)
            for name in ("kept", "dropped", "drop_fraction", "train_loss", "learning_rate"):
                assert row[name] == was[name]
        if run["noise_f1"] is not None:
            dropped = summary.noise.dropped
            for name in ("f1", "precision", "recall"):
                assert run[f"noise_{name}"] == pytest.approx(100 * getattr(dropped, name))
            assert run["noise_auroc"] == pytest.approx(100 * summary.noise.auroc)
    step_e = read(out / "cifar100n.json")["runs"][8]
    assert step_e["method"] == "step-e"
    assert max(row["f1"] for row in step_e["history"]) > 1  # a share would be below


def test_only_methods_that_filter_have_noise_detection(finished):
    _, out, _ = finished
    for run in read(out / "cifar100n.json")["runs"]:
        filters = run["method"] in ("self-paced", "one-shot", "step-e")
        assert all((run[key] is not None) == filters for key in NOISE_KEYS)


def test_where_every_label_is_wrong_there_is_no_auroc(bench, tmp_path):
    (cell,) = [cell.lasting(2) for cell in grid.cifar10n((42,)) if (cell.labels, cell.method) == ("worst", "step-e")]
    carry_out([cell], tmp_path, bench, unobserved)
    (run,) = read(tmp_path / "cifar10n.json")["runs"]
    assert run["noise_auroc"] is None
    assert run["noise_precision"] == 100


def test_the_times_of_a_fleet_are_not_told(finished):
    cells, out, _ = finished
    for cell in cells:
        run = read(out / "runs" / f"{cell.key}.json")["run"]
        assert run["seconds_per_epoch"] is None
        assert run["total_seconds"] is None


def test_the_time_of_an_epoch_is_all_training_over_all_epochs(bench):
    (cell,) = main_cells("step-e")
    result = finish(cell, bench.load(cell), bench)
    run = runner.summarise(cell, result, timed=True)
    assert run["total_seconds"] == pytest.approx(sum(row["seconds"] for row in result.history))
    assert run["seconds_per_epoch"] == pytest.approx(run["total_seconds"] / 4)
    assert run["total_seconds"] > sum(row["probe_seconds"] for row in result.history) > 0  # probes are part of it


def test_nothing_is_gathered_where_nothing_has_finished(tmp_path):
    assert gather(main_cells(), tmp_path) == []
    assert list(tmp_path.iterdir()) == []


# How it is carried out


def test_each_cell_gets_its_labels_stem_and_options(bench, stems, monkeypatch):
    asked: list[dict[str, Any]] = []

    def begin(model: nn.Module, images: Any, labels: Any, **options: Any) -> None:
        asked.append({"labels": labels, **options})

    monkeypatch.setattr(runner, "begin", begin)
    cells = [*grid.cifar100n((42,)), *grid.cifar_stem()[:1], *grid.sensitivity()]
    data = bench.load(cells[0])
    for cell in cells:
        job_of(cell, data, Path("nowhere"), bench, unobserved)
        given = asked[-1]
        method = given["method"]
        assert method.name == grid.METHODS[cell.method]
        assert given["labels"] is (data.data.clean_labels if cell.method == "oracle" else data.data.labels)
        assert (given["epochs"], given["seed"], given["learning_rate"]) == (60, cell.seed, 0.1)
        assert (given["batch_size"], given["engine"], given["amp"]) == (128, "resident", None)
        assert given["noise_rate"] == pytest.approx(0.2)
        assert stems[-1] == cell.stem
        for name, value in cell.options.items():
            assert getattr(method, name) == value
        warms_up = cell.method in ("step-e", "one-shot")
        assert getattr(method, "warmup", None) == (cell.warmup if warms_up else None)


def test_the_network_sees_pixels_scaled_by_the_datas_own_numbers():
    x = torch.tensor([[0, 255], [51, 102]], dtype=torch.uint8).view(1, 1, 2, 2).expand(2, 3, 2, 2)
    found = Normalised.by((0.1, 0.2, 0.3), (0.5, 0.25, 1.0), torch.device("cpu"))(nn.Identity(), x)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found[1, :, 0, 1], torch.tensor([0.9 / 0.5, 0.8 / 0.25, 0.7]))
    torch.testing.assert_close(found[0, :, 1, 0], torch.tensor([0.1 / 0.5, 0.0, -0.1]), atol=1e-6, rtol=1e-5)


def test_the_first_weights_are_the_seeds_whatever_the_method(bench, bits):
    data = bench.load(main_cells()[0])
    seen: dict[tuple[str, int], bytes] = {}

    class First(Silent):
        def __init__(self, cell: Cell):
            self.cell = cell

        def run_started(self, training: Training) -> None:
            seen[self.cell.method, self.cell.seed] = bits(training.model)

    for cell in main_cells("baseline", "step-e", seeds=(13, 42), epochs=2):
        torch.manual_seed(len(seen))
        job_of(cell, data, Path("nowhere"), bench, lambda name, cell=cell: First(cell), epochs=2).finish()
    assert seen["baseline", 13] == seen["step-e", 13] != seen["baseline", 42]


def test_the_limits_cut_train_and_test_images_off(data_dir):
    found = Bench(CPU, data_dir, train_limit=30, test_limit=7).load(main_cells()[0])
    whole = Bench(CPU, data_dir).load(main_cells()[0])
    assert (len(found.images), len(found.data.labels), len(found.test_images)) == (30, 30, 7)
    assert torch.equal(found.images, whole.images[:30])
    assert np.array_equal(found.data.labels, whole.data.labels[:30])
    assert (len(whole.images), len(whole.test_images)) == (100, 20)


@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_on_a_gpu_timed_runs_are_alone_and_the_others_in_fleets(device, monkeypatch, tmp_path):
    log: list[Any] = []

    class Alone:
        def __init__(self, cell: Cell):
            self.cell = cell

        def finish(self) -> None:
            log.append(self.cell.key)

    monkeypatch.setattr(Bench, "load", lambda bench, cell: None)
    monkeypatch.setattr(runner, "job_of", lambda cell, *rest: Alone(cell))
    monkeypatch.setattr(runner, "run_together", lambda jobs, at_once: log.append([job.cell.key for job in jobs]))
    monkeypatch.setattr(runner, "warm_up", lambda cell, data, bench: log.append("warm-up"))
    cells = [*grid.cifar100n(), *grid.sensitivity()]
    carry_out(cells, tmp_path, Bench(torch.device(device)), unobserved)
    timed = [cell.key for cell in cells if cell.timed and device == "cuda"]
    others = [cell.key for cell in cells if cell.key not in timed]
    fleets = [entry for entry in log if isinstance(entry, list)]
    assert [key for keys in fleets for key in keys] == others
    assert all(len(keys) <= 18 for keys in fleets)
    assert log[len(fleets) :] == (["warm-up", *timed] if timed else [])


@pytest.mark.parametrize("method", grid.METHODS)
def test_the_warm_up_works_from_whichever_run_is_open(method, bench, tmp_path, monkeypatch):
    """An interrupted grid may go on with a method whose own warm-up is longer than the device's."""
    monkeypatch.chdir(tmp_path)
    (cell,) = main_cells(method, epochs=60)
    warm_up(cell, bench.load(cell), bench)
    assert list(tmp_path.iterdir()) == []


# Interruption


def follow_into(started: list[tuple[str, int]], stop: tuple[str, int] | None = None) -> Callable[[str], Follower]:
    return lambda name: Follower(started, name, stop)


def test_an_interrupted_grid_goes_on_where_it_stopped(bench, tmp_path, monkeypatch):
    monkeypatch.setattr(runner, "LARGEST_FLEET", 2)
    cells = main_cells("baseline", "truncation", "one-shot", "step-e")
    carry_out(cells, tmp_path / "whole", bench, follow_into([]))

    out, started = tmp_path / "out", []
    with pytest.raises(KeyboardInterrupt):
        carry_out(cells, out, bench, follow_into(started, stop=(cells[3].key, 3)))
    assert started == [(cell.key, 0) for cell in cells]
    assert {path.name for path in (out / "runs").iterdir()} == {f"{cell.key}.json" for cell in cells[:2]}
    assert {path.name for path in (out / "unfinished").iterdir()} == {cell.key for cell in cells[2:]}
    before = {path: path.stat().st_mtime_ns for path in (out / "runs").iterdir()}

    started.clear()
    carry_out(cells, out, bench, follow_into(started))
    assert started == [(cell.key, 3) for cell in cells[2:]]
    assert all(path.stat().st_mtime_ns == time for path, time in before.items())
    assert list((out / "unfinished").iterdir()) == []
    found, expected = (read(folder / "cifar100n.json")["runs"] for folder in (out, tmp_path / "whole"))
    assert [without_clock(run) for run in found] == [without_clock(run) for run in expected]

    started.clear()
    carry_out(cells, out, bench, follow_into(started))
    assert started == []


def test_a_grid_that_grows_runs_only_what_is_new(bench, tmp_path):
    started: list[tuple[str, int]] = []
    carry_out(main_cells("baseline"), tmp_path, bench, follow_into([]))
    carry_out(main_cells("baseline", "oracle"), tmp_path, bench, follow_into(started))
    assert [name for name, _ in started] == [main_cells("oracle")[0].key]
    assert [run["method"] for run in read(tmp_path / "cifar100n.json")["runs"]] == ["baseline", "oracle"]


def test_checkpoints_are_as_far_apart_as_asked(bench, tmp_path):
    saved: list[tuple[int, list[str]]] = []
    (cell,) = main_cells("baseline", epochs=5)

    class Look(Silent):
        def epoch_ended(self, training: Training, row: Row) -> None:
            saved.append((training.epoch, sorted(path.name for path in tmp_path.glob("unfinished/*/*"))))

    carry_out([cell], tmp_path, replace(bench, checkpoint_every=2), lambda name: Look())
    assert saved == [
        (1, []),
        (2, ["epoch-00002"]),
        (3, ["epoch-00002"]),
        (4, ["epoch-00002", "epoch-00004"]),
        (5, ["epoch-00002", "epoch-00004"]),
    ]


def test_what_a_killed_process_left_half_written_is_swept(bench, tmp_path):
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / ".tmp-half.json").write_text("{")
    carry_out(main_cells("baseline"), tmp_path, bench, unobserved)
    assert [path.name for path in (tmp_path / "runs").iterdir()] == [f"{main_cells('baseline')[0].key}.json"]


def test_runs_of_another_length_are_not_taken_for_these(bench, tmp_path):
    carry_out(main_cells("baseline", epochs=2), tmp_path, bench, unobserved)
    carry_out(main_cells("baseline", epochs=3), tmp_path, bench, unobserved)
    (run,) = read(tmp_path / "cifar100n.json")["runs"]
    assert (run["epochs"], len(run["history"])) == (3, 3)


def test_other_runs_of_a_result_file_stay_in_it(bench, tmp_path):
    for seed, method in ((21, "oracle"), (13, "baseline"), (13, "baseline")):
        cells = [cell.lasting(2) for cell in grid.cifar100n((seed,)) if cell.method == method]
        carry_out(cells, tmp_path, bench, unobserved)
    runs = read(tmp_path / "cifar100n.json")["runs"]
    assert [(run["method"], run["seed"]) for run in runs] == [("baseline", 13), ("oracle", 21)]


# Clean labels


def with_other_truth(loaded: Loaded) -> Loaded:
    """The same given labels, and as many of them wrong, but others."""
    data = loaded.data
    noisy = np.roll(data.labels != data.clean_labels, 2)
    clean = np.where(noisy, (data.labels + 3) % data.classes, data.labels)
    return replace(loaded, data=replace(data, clean_labels=clean))


@pytest.mark.parametrize("method", [name for name in grid.METHODS if name != "oracle"])
def test_the_truth_reaches_no_weight(method, bench, bits):
    (cell,) = main_cells(method)
    data = bench.load(cell)
    other = with_other_truth(data)
    assert other.data.noise_rate == data.data.noise_rate
    assert not np.array_equal(other.data.truth.noisy, data.data.truth.noisy)
    one, two = finish(cell, data, bench), finish(cell, other, bench)
    assert bits(one.model) == bits(two.model)
    assert torch.equal(one.ledger["drop_count"], two.ledger["drop_count"])
    assert torch.equal(one.ledger["loss"], two.ledger["loss"])
    assert one.summary.noise != two.summary.noise


def test_the_oracle_is_plain_training_on_the_clean_labels(bench, bits):
    (oracle,), (baseline,) = main_cells("oracle"), main_cells("baseline")
    data = bench.load(oracle)
    found = finish(oracle, data, bench)
    clean = replace(data, data=replace(data.data, labels=data.data.clean_labels))
    assert bits(found.model) == bits(finish(baseline, clean, bench).model)
    assert bits(found.model) != bits(finish(baseline, data, bench).model)
    assert bits(found.model) != bits(finish(oracle, with_other_truth(data), bench).model)
