"""The history elsewhere: each line once, whatever happens."""

import json
import sys
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import stepe
from stepe import InputError, RunError
from stepe.app.resume import resume
from stepe.training.building import Silent, Training
from stepe.training.session import Row, Session
from stepe.training.trackers import MLflow, TensorBoard, Tracker, WandB, make_tracker

EPOCHS = 6


class PulledPlug(Silent):
    """Ends the process, as far as a run can tell, after an epoch."""

    def __init__(self, epoch: int):
        self.epoch = epoch

    def epoch_ended(self, training: Training, row: Row) -> None:
        if row["epoch"] == self.epoch:
            raise KeyboardInterrupt


@pytest.fixture
def fit(blobs, make_model):
    def start(*observers: Any, **options: Any) -> stepe.Result:
        return stepe.fit(
            make_model(), blobs.x, blobs.given, rho_max=0.3, epochs=EPOCHS, batch_size=16, device="cpu",
            observers=observers, **options,
        )  # fmt: skip

    return start


def events(folder) -> EventAccumulator:
    return EventAccumulator(str(folder), size_guidance={"scalars": 0}).Reload()


def scalars(folder, name: str) -> list[tuple[int, float]]:
    return [(event.step, event.value) for event in events(folder).Scalars(name)]


def lines(result: stepe.Result, name: str) -> list[tuple[int, float]]:
    return [(row["epoch"], pytest.approx(row[name], rel=1e-6)) for row in result.history]


# TensorBoard, for real


def test_tensorboard_shows_the_history(fit, tmp_path):
    result = fit(TensorBoard(tmp_path / "logs"))
    for name in ("train_loss", "kept", "dropped", "drop_fraction", "learning_rate"):
        assert scalars(tmp_path / "logs", name) == lines(result, name)
    tags = events(tmp_path / "logs").Tags()
    assert "epoch" not in tags["scalars"]
    assert "probed" not in tags["scalars"]
    written = events(tmp_path / "logs").Tensors("summary/text_summary")[0].tensor_proto.string_val[0]
    assert json.loads(written)["flagged"] == result.summary.flagged


@pytest.mark.parametrize("checkpoint_every", [1, 4])
def test_a_resumed_run_shows_each_line_once(fit, tmp_path, checkpoint_every):
    """With a checkpoint every fourth epoch only, the fifth and sixth run twice."""
    run = {"run": tmp_path / "run", "checkpoint_every": checkpoint_every}
    with pytest.raises(KeyboardInterrupt):
        fit(TensorBoard(tmp_path / "logs"), PulledPlug(4), **run)
    assert [step for step, _ in scalars(tmp_path / "logs", "kept")] == [0, 1, 2, 3, 4]
    result = fit(TensorBoard(tmp_path / "logs"), **run, resume=True)
    assert scalars(tmp_path / "logs", "train_loss") == lines(result, "train_loss")


def test_files_are_made_in_different_seconds_for_they_are_read_in_the_order_of_their_names(fit, tmp_path):
    for seed in range(3):
        fit(TensorBoard(tmp_path / "logs"), seed=seed)
    seconds = [path.name.split(".")[3] for path in (tmp_path / "logs").iterdir()]
    assert len(set(seconds)) == len(seconds) == 3


def test_a_run_resumed_into_another_folder_shows_what_came_before(fit, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        fit(TensorBoard(tmp_path / "logs"), PulledPlug(2), run=tmp_path / "run")
    result = fit(TensorBoard(tmp_path / "others"), run=tmp_path / "run", resume=True)
    assert scalars(tmp_path / "others", "train_loss") == lines(result, "train_loss")


def test_a_new_run_in_the_same_folder_takes_the_place_of_the_old_one(fit, tmp_path):
    fit(TensorBoard(tmp_path / "logs"))
    result = fit(TensorBoard(tmp_path / "logs"), seed=1)
    assert scalars(tmp_path / "logs", "train_loss") == lines(result, "train_loss")


def test_a_folder_that_cannot_be_written_says_so(fit, tmp_path):
    (tmp_path / "logs").write_text("in the way")
    with pytest.raises(RunError, match="cannot write"):
        fit(TensorBoard(tmp_path / "logs"))


# The others, by what they were sent


class Sent(Tracker):
    """Keeps what it is sent; knows some epochs from before."""

    def __init__(self, *there: int):
        self.there, self.epochs, self.closed = there, [], 0

    def open(self, training: Training):
        return self.there

    def log(self, epoch: int, numbers: dict[str, float]) -> None:
        self.epochs.append(epoch)

    def close(self, summary: dict[str, Any]) -> None:
        self.closed += 1


def test_lines_that_are_there_are_not_sent_again(fit):
    tracker = Sent(0, 1, 3)
    fit(tracker)
    assert tracker.epochs == [2, 4, 5]
    assert tracker.closed == 1


@pytest.mark.parametrize(("rank", "sent"), [(0, list(range(EPOCHS))), (1, [])])
def test_only_the_first_of_several_processes_sends(fit, monkeypatch, rank, sent):
    result = fit()
    monkeypatch.setattr("stepe.training.trackers.dist.is_initialized", lambda: True)
    monkeypatch.setattr("stepe.training.trackers.dist.get_rank", lambda: rank)
    tracker = Sent()
    started = Session(result.training.task, result.training.method, result.ledger)
    tracker.run_started(replace(result.training, session=started))
    for row in result.history:
        tracker.epoch_ended(result.training, row)
    tracker.run_ended(result)
    assert tracker.epochs == sent
    assert tracker.closed == (rank == 0)


class FakeWandB:
    """As much of Weights & Biases as is used: runs by id, which count their steps."""

    def __init__(self):
        self.runs: dict[str, SimpleNamespace] = {}
        self.asked: list[dict[str, Any]] = []

    def init(self, **options: Any) -> SimpleNamespace:
        self.asked.append(options)
        name = options.get("id") or f"run{len(self.runs)}"
        if name not in self.runs:
            self.runs[name] = SimpleNamespace(id=name, step=0, lines={}, summary={}, finished=False)
        run = self.runs[name]

        def log(numbers: dict[str, float], step: int, commit: bool) -> None:
            assert commit
            assert step >= run.step, "Weights & Biases ignores steps of the past"
            run.lines[step], run.step = numbers, step + 1

        run.log, run.finish = log, lambda: setattr(run, "finished", True)
        return run


class FakeMLflow:
    """As much of MLflow as is used: the active run, and metrics that keep every value they are given."""

    def __init__(self):
        self.metrics: dict[str, list[tuple[str, int]]] = {}
        self.params: dict[str, dict[str, Any]] = {}
        self.experiment, self.ended, self._active = None, 0, None

    def active_run(self):
        return self._active

    def set_experiment(self, name: str) -> None:
        self.experiment = name

    def start_run(self, run_id: str | None = None, **options: Any):
        run_id = run_id or f"run{len(self.metrics)}"
        self.metrics.setdefault(run_id, [])
        self._active = SimpleNamespace(info=SimpleNamespace(run_id=run_id))
        return self._active

    def end_run(self) -> None:
        self.ended, self._active = self.ended + 1, None

    def log_params(self, params: dict[str, Any]) -> None:
        self.params[self._active.info.run_id] = params

    def log_metrics(self, numbers: dict[str, float], step: int = 0) -> None:
        self.metrics[self._active.info.run_id] += [(name, step) for name in numbers]

    def MlflowClient(self):  # noqa: N802
        def history(run_id: str, name: str) -> list[SimpleNamespace]:
            return [SimpleNamespace(step=step) for key, step in self.metrics[run_id] if key == name]

        return SimpleNamespace(get_metric_history=history)


@pytest.fixture
def wandb(monkeypatch) -> FakeWandB:
    fake = FakeWandB()
    monkeypatch.setitem(sys.modules, "wandb", fake)
    return fake


@pytest.fixture
def mlflow(monkeypatch) -> FakeMLflow:
    fake = FakeMLflow()
    monkeypatch.setitem(sys.modules, "mlflow", fake)
    return fake


@pytest.mark.parametrize("checkpoint_every", [1, 4])
def test_weights_and_biases_goes_on_with_the_run_of_before(fit, wandb, tmp_path, checkpoint_every):
    run = {"run": tmp_path / "run", "checkpoint_every": checkpoint_every}
    remember = tmp_path / "wandb.txt"
    with pytest.raises(KeyboardInterrupt):
        fit(WandB("mine", remember=remember), PulledPlug(4), **run)
    result = fit(WandB("mine", remember=remember, tags=["again"]), **run, resume=True)
    (sent,) = wandb.runs.values()
    assert list(sent.lines) == list(range(EPOCHS))
    assert sent.lines[2]["train_loss"] == result.history[2]["train_loss"]
    assert sent.summary["flagged"] == result.summary.flagged
    assert sent.finished
    assert wandb.asked[0]["project"] == "mine"
    assert wandb.asked[0]["config"]["method"] == "step-e"
    assert wandb.asked[1] | {"id": "run0", "resume": "allow", "tags": ["again"]} == wandb.asked[1]


def test_weights_and_biases_without_a_memory_starts_anew_with_all_lines(fit, wandb, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        fit(WandB(), PulledPlug(3), run=tmp_path / "run")
    fit(WandB(), run=tmp_path / "run", resume=True)
    assert [list(sent.lines) for sent in wandb.runs.values()] == [[0, 1, 2, 3], list(range(EPOCHS))]


@pytest.mark.parametrize("checkpoint_every", [1, 4])
def test_mlflow_goes_on_with_the_run_of_before(fit, mlflow, tmp_path, checkpoint_every):
    run = {"run": tmp_path / "run", "checkpoint_every": checkpoint_every}
    with pytest.raises(KeyboardInterrupt):
        fit(MLflow("mine", remember=tmp_path / "mlflow.txt"), PulledPlug(4), **run)
    mlflow.end_run()  # as it does when a process exits
    fit(MLflow("mine", remember=tmp_path / "mlflow.txt"), **run, resume=True)
    (metrics,) = mlflow.metrics.values()
    counted = Counter(metrics)
    assert set(counted.values()) == {1}
    assert sorted(step for name, step in counted if name == "train_loss") == list(range(EPOCHS))
    assert ("summary.flagged", 0) in counted
    assert mlflow.experiment == "mine"
    assert mlflow.params["run0"]["options.rho_max"] == 0.3
    assert mlflow.ended == 2


def test_an_active_run_of_mlflow_is_used_and_left_open(fit, mlflow):
    mlflow.start_run()
    fit(MLflow())
    assert len(mlflow.metrics) == 1
    assert mlflow.ended == 0


@pytest.mark.parametrize("name", ["wandb", "mlflow"])
def test_a_missing_package_is_named_with_its_extra(monkeypatch, tmp_path, name):
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(InputError, match=rf'pip install "stepe\[{name}\]"'):
        make_tracker(name, tmp_path, "step-e")


@pytest.mark.parametrize("text", ["tensorbord", "tensorboard:", "", ":logs"])
def test_unknown_names_are_refused(tmp_path, text):
    with pytest.raises(InputError, match="write tensorboard or tensorboard:DIR"):
        make_tracker(text, tmp_path, "step-e")


def test_names_of_the_command_line(tmp_path, wandb, mlflow):
    run = tmp_path / "digits-1"
    assert make_tracker("tensorboard", run, "step-e").folder == run / "tensorboard" / "step-e"
    elsewhere = make_tracker(f"tensorboard:{tmp_path / 'logs'}", run, "plain")
    assert elsewhere.folder == tmp_path / "logs" / "digits-1" / "plain"
    assert isinstance(make_tracker("wandb:mine", run, "step-e"), WandB)
    assert isinstance(make_tracker("mlflow", run, "step-e"), MLflow)


# stepe clean


def test_clean_tracks_every_method_and_goes_on_after_an_interruption(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("stepe.report.html.write_report", lambda run: run.path)
    options = {"epochs": EPOCHS, "device": "cpu", "out": "run", "method": "step-e,plain", "compare": False}
    with pytest.raises(KeyboardInterrupt):
        stepe.clean("digits", **options, track="tensorboard:logs", follow=lambda *_: PulledPlug(3))
    monkeypatch.chdir("/")
    resume(tmp_path / "run")
    for method in ("step-e", "plain"):
        steps = [step for step, _ in scalars(tmp_path / "logs" / "run" / method, "test_accuracy")]
        assert steps == list(range(EPOCHS))


def test_clean_refuses_an_unknown_tracker_before_anything_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="cannot track with 'paper'"):
        stepe.clean("digits", epochs=2, device="cpu", out="run", track=["paper"])
    assert not (tmp_path / "run").exists()
