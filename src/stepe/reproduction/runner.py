"""Carries out the grid: whole fleets where times do not matter, one run at a time where they do.

Every finished run is a file of its own, so an interrupted grid goes on where it stopped; within a run, checkpoints
do the same.
"""

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from stepe.data import cifar_n
from stepe.data.cifar_n import CifarN, Labels
from stepe.data.noise import Noise
from stepe.files import sweep, write_text
from stepe.loop.randomness import Stream, seeded
from stepe.methods import make_method, method_class
from stepe.models.resnet import resnet18
from stepe.reproduction.grid import IDENTITY, METHODS, Cell
from stepe.run.environment import commit
from stepe.run.record import Summary
from stepe.samples.augmentation import CropFlip, Normalised
from stepe.training import checkpoint
from stepe.training.building import Observer, Result, Silent, Training
from stepe.training.environment import describe_environment
from stepe.training.fit import Job, begin
from stepe.training.fleet import run_together
from stepe.training.session import Row

BATCH = 128
PROBE_BATCH = 5000
LARGEST_FLEET = 18
PAIRS = {9: 1, 2: 0, 3: 5, 5: 3, 4: 7}
"""classes of CIFAR-10 that resemble another: truck -> automobile, bird -> airplane, cat <-> dog, deer -> horse"""
FILTERS = ("self-paced", "one-shot", "step-e", "step-e-plus")
"""methods that filter samples: the others have no noise detection to report"""

Engine = Literal["resident", "compiled"]
Follow = Callable[[str], Observer]
"""name of a run -> something that shows its progress"""


@dataclass(frozen=True)
class Bench:
    """Where the grid runs, and on how much of the data."""

    device: torch.device
    data_dir: Path | None = None
    train_limit: int | None = None
    test_limit: int | None = None
    checkpoint_every: int = 20
    fleet_engine: Engine = "resident"
    """of runs that share the device; those whose time counts are alone, and always resident"""
    at_once: int | None = None
    """how many share it at a time; ``None``: the whole fleet"""

    def engine(self, cell: Cell) -> Engine:
        """Choose what trains a cell."""
        return "resident" if _alone(cell, self) else self.fleet_engine

    def load(self, cell: Cell) -> "Loaded":
        """Load the data of a cell, its images also on the device."""
        planted = ":" in cell.labels
        data = cifar_n.load(cell.data if planted else f"{cell.data}:{cell.labels}", self.data_dir)
        data = data.first(self.train_limit, self.test_limit)
        if planted:
            data = plant(data, cell.labels, cell.seed)
        if cell.held_out:
            data = data.holding_out(cell.held_out, cell.seed)
        images, test_images = (torch.from_numpy(part).to(self.device) for part in (data.images, data.test_images))
        return Loaded(data, images, test_images)


@dataclass(frozen=True, eq=False)
class Loaded:
    """The data of some cells, whose images all their runs share on the device."""

    data: CifarN
    images: Tensor
    test_images: Tensor


def plant(data: CifarN, noise: str, seed: int) -> CifarN:
    """Plant synthetic noise on the clean labels; ``pairs:0.4`` is what papers on CIFAR-10 call asymmetric."""
    clean = data.clean_labels
    if noise.startswith("pairs:"):
        noise = noise.replace("pairs", "asymmetric")
        confused = np.arange(data.classes)
        confused[list(PAIRS)] = list(PAIRS.values())
        chosen = _plant(noise, data, seed) != clean
        return replace(data, labels=np.where(chosen, confused[clean], clean))
    return replace(data, labels=_plant(noise, data, seed))


def _plant(noise: str, data: CifarN, seed: int) -> Labels:
    kind = Noise.parse(noise)
    clean = data.clean_labels
    return clean if kind is None else kind.plant(data.images, clean, data.classes, seed).labels


def carry_out(cells: Sequence[Cell], out: Path, bench: Bench, follow: Follow) -> None:
    """Run whatever is not there yet, then gather the result files."""
    runs = out / "runs"
    runs.mkdir(parents=True, exist_ok=True)
    sweep(runs)
    open_cells = [cell for cell in cells if not (runs / f"{cell.key}.json").exists()]
    together = [cell for cell in open_cells if not _alone(cell, bench)]
    for start in range(0, len(together), LARGEST_FLEET):
        fleet = together[start : start + LARGEST_FLEET]
        data = {_data_of(cell): cell for cell in fleet}
        loaded = {of: bench.load(cell) for of, cell in data.items()}
        run_together([job_of(cell, loaded[_data_of(cell)], out, bench, follow) for cell in fleet], bench.at_once)
    for _, group in groupby(sorted((cell for cell in open_cells if _alone(cell, bench)), key=_data_of), key=_data_of):
        alone = list(group)
        own = bench.load(alone[0])
        warm_up(alone[0], own, bench)
        for cell in alone:
            job_of(cell, own, out, bench, follow).finish()
    gather(cells, out)


def gather(cells: Sequence[Cell], out: Path) -> list[Path]:
    """Gather the finished runs of the grid, in a result file per table, beside those that are already there."""
    written = []
    for file in dict.fromkeys(cell.file for cell in cells):
        paths = [out / "runs" / f"{cell.key}.json" for cell in cells if cell.file == file]
        found = [json.loads(path.read_text(encoding="utf-8")) for path in paths if path.exists()]
        if found:
            target = out / f"{file}.json"
            earlier = json.loads(target.read_text(encoding="utf-8"))["runs"] if target.exists() else []
            newest = max(found, key=lambda each: each["environment"]["time"])
            kept = [run for run in earlier if run["epochs"] == found[-1]["run"]["epochs"]]
            runs = {_identity(run): run for run in kept + [each["run"] for each in found]}
            result = {"runs": sorted(runs.values(), key=_in_table), "environment": newest["environment"]}
            write_text(target, json.dumps(result, indent=1) + "\n")
            written.append(target)
    return written


def _identity(run: Row) -> tuple[Any, ...]:
    return tuple(run.get(name) for name in IDENTITY)


def _in_table(run: Row) -> tuple[Any, ...]:
    order = [*METHODS, run["method"]]
    return run["labels"], run["variant"] or "", order.index(run["method"]), run["seed"]


def _data_of(cell: Cell) -> tuple[Any, ...]:
    drawn = ":" in cell.labels or cell.held_out > 0
    return cell.data, cell.labels, cell.held_out, cell.seed if drawn else 0


def _alone(cell: Cell, bench: Bench) -> bool:
    return cell.timed and bench.device.type == "cuda"


def job_of(cell: Cell, loaded: Loaded, out: Path, bench: Bench, follow: Follow, epochs: int | None = None) -> Job:
    """Make a cell a run that is ready to be carried out; ``epochs`` cuts it short, without checkpoints."""
    data = loaded.data
    with seeded(Stream.named(cell.seed, "init")):
        model = resnet18(data.classes, stem=cell.stem)
    method = METHODS.get(cell.method, cell.method)
    options = dict(cell.options)
    if cell.warmup is not None and "warmup" in method_class(method).options():
        options["warmup"] = cell.warmup
    labels = data.clean_labels if cell.method == "oracle" else data.labels
    observers: tuple[Observer, ...] = (follow(cell.key),)
    if epochs is None:
        observers = (_Progress(cell, out, bench), *observers)
    training: dict[str, Any] = {"batch_size": BATCH, "learning_rate": 0.1, "augment": CropFlip()}
    return begin(
        model,
        loaded.images,
        labels,
        method=make_method(method, **options),
        epochs=epochs or cell.epochs,
        noise_rate=data.noise_rate,
        test=(loaded.test_images, data.test_labels),
        truth=data.truth,
        probe_batch_size=PROBE_BATCH,
        forward=Normalised.by(data.mean, data.std, bench.device),
        amp="bf16" if bench.device.type == "cuda" else None,
        engine=bench.engine(cell),
        device=bench.device,
        seed=cell.seed,
        observers=observers,
        **training | cell.training,
    )


def warm_up(cell: Cell, data: Loaded, bench: Bench) -> None:
    """Let the device reach its clocks and cuDNN make its choices before anything is timed."""
    cell = replace(cell, method="baseline", options={})  # which has no warm-up of its own that one epoch would cut off
    job_of(cell, data, Path(), bench, lambda name: Silent(), epochs=1).finish()


def summarise(cell: Cell, result: Result, *, engine: Engine = "resident", timed: bool) -> dict[str, Any]:
    """Return a run as the result files hold it; shares in percent."""
    summary = result.summary
    filters = cell.method in FILTERS
    noise = summary.noise
    assert noise is not None
    assert summary.test_accuracy is not None
    assert summary.best_test_accuracy is not None
    return {
        **cell.describe(),
        "engine": engine,
        "commit": commit(),  # a file gathers runs of several
        "test_accuracy": 100 * summary.test_accuracy,
        "best_test_accuracy": 100 * summary.best_test_accuracy,
        "noise_f1": 100 * noise.dropped.f1 if filters else None,
        "noise_precision": 100 * noise.dropped.precision if filters else None,
        "noise_recall": 100 * noise.dropped.recall if filters else None,
        "noise_auroc": _percent(noise.auroc) if filters else None,
        **_found_out(summary),
        "seconds_per_epoch": summary.seconds_per_epoch if timed else None,
        "total_seconds": summary.seconds if timed else None,
        "history": [_in_percent(row) for row in result.history],
    }


def _found_out(summary: Summary) -> Row:
    """Return the noise rate as it was estimated, beside the true one, where it was not told."""
    if summary.noise_rate is None or summary.noise is None:
        return {}
    return {"noise_rate": summary.noise_rate.to_json(), "true_rate": summary.noise.noisy / summary.samples}


def _in_percent(row: Row) -> Row:
    kept = ("epoch", "train_loss", "learning_rate", "kept", "dropped", "drop_fraction", "came", "went")
    shares = ("test_accuracy", "precision", "recall", "f1", "auroc")
    rounded = {name: None if row[name] is None else round(100 * row[name], 3) for name in shares}
    return {name: row[name] for name in kept} | rounded


def _percent(share: float | None) -> float | None:
    """``None`` stays: where all labels are wrong, or none, there is no order to judge."""
    return None if share is None else 100 * share


class _Progress(Silent):
    """Keeps what a run has reached: checkpoints while it lasts, its result when it ends."""

    def __init__(self, cell: Cell, out: Path, bench: Bench):
        self.cell, self.bench = cell, bench
        self.checkpoints = out / "unfinished" / cell.key
        self.result = out / "runs" / f"{cell.key}.json"

    def run_started(self, training: Training) -> None:
        """Take up where the run stopped."""
        checkpoint.restore(self.checkpoints, training)

    def epoch_ended(self, training: Training, row: Row) -> None:
        """Save now and then."""
        every = self.bench.checkpoint_every
        if every and training.epoch % every == 0 and training.epoch < training.task.epochs:
            self.checkpoints.parent.mkdir(parents=True, exist_ok=True)
            checkpoint.save(self.checkpoints, training)

    def run_ended(self, result: Result) -> None:
        """Give way to the result."""
        content = {
            "run": summarise(
                self.cell, result, engine=self.bench.engine(self.cell), timed=_alone(self.cell, self.bench)
            ),
            "environment": describe_environment(device=str(self.bench.device)),
        }
        self.result.parent.mkdir(parents=True, exist_ok=True)
        write_text(self.result, json.dumps(content) + "\n")
        shutil.rmtree(self.checkpoints, ignore_errors=True)
