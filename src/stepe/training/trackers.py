"""A run's history where people watch their runs: TensorBoard, Weights & Biases, MLflow.

A tracker is an observer of :func:`stepe.fit`: ``stepe.fit(..., observers=[TensorBoard("logs")])``; on the command line
it is ``stepe clean DATA --track tensorboard``. Each line of the history arrives once: from the first process alone
where there are several, and after an interruption only what did not arrive before.

Another one is a subclass of :class:`Tracker` with three methods.
"""

import json
import math
import time
from abc import abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Any

import torch.distributed as dist

from stepe.errors import InputError
from stepe.files import inside, plain, reporting, write_text
from stepe.training.building import Result, Silent, Training
from stepe.training.session import Row

EVERY_EPOCH = "train_loss"
"""a number that every line has"""


class Tracker(Silent):
    """Sends the history on, each line once."""

    @abstractmethod
    def open(self, training: Training) -> Iterable[int]:
        """Begin, or go on with what an interrupted process began; returns the epochs whose lines are there."""

    @abstractmethod
    def log(self, epoch: int, numbers: dict[str, float]) -> None:
        """Send a line."""

    @abstractmethod
    def close(self, summary: dict[str, Any]) -> None:
        """Close the tracker when the run is over."""

    def run_started(self, training: Training) -> None:
        """Send what is known already, where it is not there: a resumed run may be sent elsewhere than before."""
        if not _is_first():
            return
        self._there = set(self.open(training))
        for row in training.history:
            self.epoch_ended(training, row)

    def epoch_ended(self, training: Training, row: Row) -> None:
        """Send the line."""
        if _is_first() and row["epoch"] not in self._there:
            self._there.add(row["epoch"])
            self.log(row["epoch"], flat({name: value for name, value in row.items() if name != "epoch"}))

    def run_ended(self, result: Result) -> None:
        """Send the summary."""
        if _is_first():
            self.close(result.summary.to_json())


class TensorBoard(Tracker):
    """Writes event files into a folder: ``tensorboard --logdir FOLDER``."""

    def __init__(self, folder: str | Path):
        _imported("tensorboard")
        self.folder = Path(folder)

    def open(self, training: Training) -> Iterable[int]:
        """Lines of epochs that run again are declared void, which TensorBoard heeds when it reads them."""
        from torch.utils.tensorboard import SummaryWriter

        there = self._epochs_there()
        again = training.epoch if there else None
        self._let_a_second_pass()
        with reporting(self.folder):
            self._writer: Any = SummaryWriter(self.folder, purge_step=again)
        if not there:
            self._write_text("config", asdict(training.config))
        return [epoch for epoch in there if epoch < training.epoch]

    def _let_a_second_pass(self) -> None:
        """Files are read in the order of their names, which begin with the second they were made in."""
        while any(self.folder.glob(f"*.tfevents.{int(time.time()):010d}.*")):
            time.sleep(0.05)

    def _epochs_there(self) -> list[int]:
        if not any(self.folder.glob("*.tfevents.*")):
            return []
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

        events = EventAccumulator(str(self.folder), size_guidance={"scalars": 0}).Reload()
        known = EVERY_EPOCH in events.Tags()["scalars"]
        return [event.step for event in events.Scalars(EVERY_EPOCH)] if known else []

    def log(self, epoch: int, numbers: dict[str, float]) -> None:
        """Write a scalar each, on disk at once."""
        for name, value in numbers.items():
            self._writer.add_scalar(name, value, epoch)
        self._writer.flush()

    def close(self, summary: dict[str, Any]) -> None:
        """Write the summary as text."""
        self._write_text("summary", summary)
        self._writer.close()

    def _write_text(self, name: str, values: dict[str, Any]) -> None:
        indented = "\n".join(f"    {line}" for line in json.dumps(plain(values), indent=1).splitlines())
        self._writer.add_text(name, indented)


class WandB(Tracker):
    """Sends a run to Weights & Biases; ``options`` go to ``wandb.init``.

    ``remember`` is a file that notes the run's id there, so that a resumed run goes on with it.
    """

    def __init__(self, project: str | None = None, *, remember: str | Path | None = None, **options: Any):
        self._wandb = _imported("wandb")
        self._options = {"project": project, **options}
        self._id = RememberedId(remember)

    def open(self, training: Training) -> Iterable[int]:
        """Begin a new run there, or go on with the one of before, which counts its own steps."""
        known = self._id.read()
        again = {} if known is None else {"id": known, "resume": "allow"}
        self._run = self._wandb.init(**{"config": asdict(training.config), **again, **self._options})
        self._id.write(self._run.id)
        return range(self._run.step)

    def log(self, epoch: int, numbers: dict[str, float]) -> None:
        """Log a step of the run; committed, for a step waits otherwise until the next one comes."""
        self._run.log(numbers, step=epoch, commit=True)

    def close(self, summary: dict[str, Any]) -> None:
        """Write the summary, and that the run is over."""
        self._run.summary.update(flat(summary))
        self._run.finish()


class MLflow(Tracker):
    """Sends a run to MLflow, into the active run if there is one; ``options`` go to ``mlflow.start_run``.

    ``remember`` is a file that notes the run's id there, so that a resumed run goes on with it.
    """

    def __init__(self, experiment: str | None = None, *, remember: str | Path | None = None, **options: Any):
        self._mlflow = _imported("mlflow")
        self._experiment, self._options = experiment, options
        self._id = RememberedId(remember)

    def open(self, training: Training) -> Iterable[int]:
        """Begin a new run there, or go on with the one of before."""
        known, active = self._id.read(), self._mlflow.active_run()
        self._is_ours = active is None
        if active is None:
            if self._experiment is not None:
                self._mlflow.set_experiment(self._experiment)
            active = self._mlflow.start_run(**({} if known is None else {"run_id": known}), **self._options)
        self._id.write(active.info.run_id)
        there = self._mlflow.MlflowClient().get_metric_history(active.info.run_id, EVERY_EPOCH)
        if not there:
            self._mlflow.log_params(flat(asdict(training.config), numbers_alone=False))
        return [metric.step for metric in there]

    def log(self, epoch: int, numbers: dict[str, float]) -> None:
        """Log a step of every metric."""
        self._mlflow.log_metrics(numbers, step=epoch)

    def close(self, summary: dict[str, Any]) -> None:
        """Write the summary, and that the run is over, if it is not somebody else's."""
        self._mlflow.log_metrics({f"summary.{name}": value for name, value in flat(summary).items()})
        if self._is_ours:
            self._mlflow.end_run()


class RememberedId:
    """The name of a run elsewhere, in a file that a resumed run finds again."""

    def __init__(self, path: str | Path | None):
        self.path = None if path is None else Path(path)

    def read(self) -> str | None:
        """Read what was noted."""
        if self.path is None or not self.path.exists():
            return None
        return self.path.read_text(encoding="utf-8").strip() or None

    def write(self, name: str) -> None:
        """Note it."""
        if self.path is not None:
            write_text(self.path, f"{name}\n")


def _tensorboard(where: str | None, run: Path, method: str) -> Tracker:
    if where is not None:
        return TensorBoard(Path(where) / run.name / method)
    folder = inside(run, "tensorboard", method)
    for path in folder.glob("*"):  # which TensorBoard would read
        inside(folder, path.name)
    return TensorBoard(folder)


def _wandb(where: str | None, run: Path, method: str) -> Tracker:
    return WandB(where or "stepe", remember=inside(run, f"wandb-{method}.txt"), name=f"{run.name} {method}")


def _mlflow(where: str | None, run: Path, method: str) -> Tracker:
    return MLflow(where or "stepe", remember=inside(run, f"mlflow-{method}.txt"), run_name=f"{run.name} {method}")


TRACKERS: dict[str, Callable[[str | None, Path, str], Tracker]] = {
    "tensorboard": _tensorboard,
    "wandb": _wandb,
    "mlflow": _mlflow,
}


def make_tracker(text: str, run: Path, method: str) -> Tracker:
    """Make a tracker by its name: ``tensorboard``, ``tensorboard:DIR``, ``wandb:PROJECT``, ``mlflow:EXPERIMENT``."""
    name, colon, where = text.partition(":")
    if name not in TRACKERS or (colon and not where):
        raise InputError(
            f"cannot track with {text!r}; write tensorboard or tensorboard:DIR, wandb or wandb:PROJECT, mlflow or "
            "mlflow:EXPERIMENT"
        )
    return TRACKERS[name](where or None, run, method)


def flat(values: dict[str, Any], *, numbers_alone: bool = True) -> dict[str, Any]:
    """Nested entries by their paths; of a history, what can be drawn.

    >>> flat({"loss": 0.5, "probed": True, "noise": {"rate": 0.1, "name": "x"}, "cut": float("inf")})
    {'loss': 0.5, 'noise.rate': 0.1}
    """
    found: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, dict):
            inner = flat(value, numbers_alone=numbers_alone)
            found |= {f"{name}.{key}": entry for key, entry in inner.items()}
        elif not numbers_alone or _is_number(value):
            found[name] = value
    return found


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_first() -> bool:
    return not (dist.is_available() and dist.is_initialized()) or dist.get_rank() == 0


def _imported(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        raise InputError(f'{name} is not installed ({error}); install it with: pip install "stepe[{name}]"') from error
