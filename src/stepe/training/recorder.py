"""Writes a run into its folder as it goes, so that a kill at any moment loses at most one epoch."""

import json
import os
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from stepe.beliefs.issues import COLUMNS
from stepe.beliefs.names import Names
from stepe.engine.steps import Steps
from stepe.errors import InputError, RunError
from stepe.files import TEMPORARY, inside, plain, replacing, reporting, sweep, write_json, write_text
from stepe.loop.ledger import Ledger
from stepe.methods import Method
from stepe.run.lock import LOCK, OWNER, check_free, locked
from stepe.run.paths import remember
from stepe.run.previews import Preview, worth_showing, write_previews
from stepe.run.record import Config, Environment, Fit, MethodFacts, Request
from stepe.run.saved_belief import write_belief
from stepe.run.trace import Trace
from stepe.samples.samples import TensorSamples
from stepe.tables.cells import escape_texts
from stepe.tables.delimited import of_frame
from stepe.training import checkpoint
from stepe.training.building import Result, Training
from stepe.training.environment import describe_environment
from stepe.training.issues import held_out_table, training_table
from stepe.training.session import Row

if TYPE_CHECKING:
    import numpy.typing as npt
    import pandas as pd


@dataclass(frozen=True)
class RunDetails:
    """What a run folder records beyond the training itself."""

    request: Request | None = None
    """what was made of the options that it was asked for with"""
    options: dict[str, Any] = field(default_factory=dict)
    """the options by name, in their canonical form, with which the run is resumed"""
    class_names: list[str] | None = None
    names: Names | None = None
    held_out_names: Names | None = None
    previews: Callable[[list[int]], list[Preview]] | None = None
    """indices of training samples -> what people are shown of them"""
    pictured: bool = False
    """whether the samples are pictures: fewer of them are stored than of texts"""
    unlabelled: Tensor | None = None
    """samples without a label, which the finished model predicts"""
    unlabelled_names: Names | None = None
    files: dict[str, str] = field(default_factory=dict)
    """further files of the run, by name: how inputs are encoded, what was found before training"""


class Recorder:
    """Writes a run into its folder: an observer of ``fit``, which takes it as ``run=``.

    The folder is locked while the run lasts, unless it lies in one that the caller has ``locked`` already.
    """

    def __init__(self, path: str | Path, details: RunDetails | None = None, *, locked: bool = False):
        self.path = Path(path)
        self.details = details or RunDetails()
        self._locked = locked
        self._resume, self._checkpoint_every = False, 1

    def prepare(self, *, resume: bool, checkpoint_every: int) -> None:
        """Refuse a folder that cannot be used, before any work is done."""
        if checkpoint_every < 1:
            raise InputError(f"checkpoint_every is {checkpoint_every!r}; it must be at least 1")
        self._checkpoint_every = checkpoint_every
        if not self._locked:
            check_free(self.path)
        self._check_usable(resume=resume)

    def _check_usable(self, *, resume: bool) -> None:
        with reporting(self.path):
            # A process killed before it wrote anything whole leaves temporary files at most.
            names = [entry.name for entry in self.path.iterdir()] if self.path.is_dir() else []
        occupied = not all(name.startswith(TEMPORARY) or name in (LOCK, OWNER) for name in names)
        if occupied and not resume:
            raise InputError(f"{self.path} is not empty; choose another folder, or resume the run that is in it")
        self._resume = resume and occupied
        if self._resume and not inside(self.path, "config.json").exists():
            raise RunError(f"{self.path} holds no run (no config.json); nothing to resume")

    def holding(self, steps: Steps[Result], *, resume: bool) -> Steps[Result]:
        """Take the steps of the run, with the folder locked from the first to the last, whatever ends them."""
        if self._locked:
            return (yield from steps)
        with locked(self.path):
            self._check_usable(resume=resume)  # another process may have been quicker
            return (yield from steps)

    def run_started(self, training: Training) -> None:
        """Start a new folder, or take up the last checkpoint of the one that is there."""
        self._trace = Trace(inside(self.path, "trace.bin"), training.ledger.n)
        if not self._resume or not self._take_up(training):
            self._begin(training)
        for name, content in self.details.files.items():
            if not (path := inside(self.path, name)).exists():
                write_text(path, content)
        self._trace.truncate(training.epoch)
        self._rewrite_history(training.history)

    def _begin(self, training: Training) -> None:
        with reporting(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
        sweep(self.path)
        if not self._resume:
            class_names = self.details.class_names or [str(label) for label in range(training.task.classes)]
            config = Config(
                options=self.details.options,
                request=self.details.request,
                method=_described(training.method),
                fit=training.config,
                class_names=class_names,
                environment=Environment(**describe_environment(training.task.seed, str(training.engine.device))),
            )
            write_json(inside(self.path, "config.json"), config.to_json(), indent=1)
            if self.details.request is not None:
                remember(self.path)
        checkpoint.save(inside(self.path, "checkpoint"), training)

    def _take_up(self, training: Training) -> bool:
        sweep(self.path)
        saved = Config.read(self.path)
        saved.check_resumable(self.path)
        _check_same(saved.fit, training.config, self.path)
        threads = saved.environment.threads
        if threads != (now := describe_environment()["threads"]):
            warnings.warn(
                f"{self.path} was started with {threads} threads and goes on with {now}: results differ by rounding",
                stacklevel=2,
            )
        return checkpoint.restore(inside(self.path, "checkpoint"), training)

    def _rewrite_history(self, history: list[Row]) -> None:
        """Cut the history to the epochs that the checkpoint knows: a later or torn line will be written again."""
        write_text(inside(self.path, "history.jsonl"), "".join(f"{_json_line(row)}\n" for row in history))

    def epoch_ended(self, training: Training, row: Row) -> None:
        """Add the epoch's line and, when it is due, a checkpoint."""
        if self._trace.fits(training.task.epochs):
            self._trace.append(*_traced(training.ledger, probed=row["probed"]))
        path = inside(self.path, "history.jsonl")
        with reporting(path), path.open("a", encoding="utf-8") as file:
            file.write(f"{_json_line(row)}\n")
            file.flush()
            os.fsync(file.fileno())
        if training.epoch % self._checkpoint_every == 0 or training.epoch == training.task.epochs:
            checkpoint.save(inside(self.path, "checkpoint"), training)

    def run_ended(self, result: Result) -> None:
        """Write what the run found; the summary comes last and says that all is there."""
        training = result.training
        self._trace.truncate(training.task.epochs)
        if self._trace.fits(training.task.epochs):
            self._trace.append(*_traced(training.ledger, probed=True))
        with replacing(inside(self.path, "model.safetensors")) as temporary:
            checkpoint.save_weights(result.model, temporary)
        samples = self._samples(result)
        with replacing(inside(self.path, "samples.parquet")) as temporary:
            samples.to_parquet(temporary, index=False)
        write_belief(self.path, result.belief)
        issues = samples.loc[samples["flagged"], list(COLUMNS)].sort_values("rank")
        write_text(inside(self.path, "issues.csv"), of_frame(escape_texts(issues)))
        if self.details.previews is not None:
            shown = worth_showing(samples, pictured=self.details.pictured)
            write_previews(self.path, self.details.previews(shown))
        self._store_probabilities(training)
        unlabelled = None if self.details.unlabelled is None else len(self.details.unlabelled)
        summary = replace(result.summary, unlabelled=unlabelled).to_json()
        write_text(inside(self.path, "summary.json"), json.dumps(summary, indent=1))

    def _store_probabilities(self, training: Training) -> None:
        """Store the running guess, for tools that work on probabilities."""
        if "guess" not in training.ledger.columns:
            return
        rows = np.arange(training.ledger.n) if self.details.names is None else np.asarray(self.details.names.rows)
        with replacing(inside(self.path, "probabilities.npz")) as temporary:
            np.savez_compressed(temporary, row=rows, probability=training.ledger["guess"].cpu().numpy())

    def _samples(self, result: Result) -> "pd.DataFrame":
        import pandas as pd

        training, details = result.training, self.details
        class_names = Config.read(self.path).class_names
        names = details.names or Names.numbered(training.ledger.n)
        task, warmup = training.task, training.method.warmup_epochs
        tables = [training_table(result.belief, training.ledger, task, warmup, class_names, names)]
        if result.held_out is not None and result.held_out_labels is not None:
            held_out_names = details.held_out_names or Names.numbered(len(result.held_out_labels), "test")
            tables.append(held_out_table(result.held_out, task, result.held_out_labels, class_names, held_out_names))
        if details.unlabelled is not None:
            tables.append(self._predicted(result, details.unlabelled, class_names))
        for before, table in pairwise(tables):
            table["rank"] += before["rank"].max()
        return pd.concat([pd.DataFrame(table) for table in tables], ignore_index=True)

    def _predicted(self, result: Result, unlabelled: Tensor, class_names: list[str]) -> dict[str, Any]:
        """Make the rows of samples without a label: a suggestion, and nothing to suspect."""
        engine = result.training.engine
        nobodys = torch.zeros(len(unlabelled), dtype=torch.int64)
        seen = engine.judge(TensorSamples(unlabelled.to(engine.device)), nobodys)
        seen = replace(seen, given_probability=None, margin=None)
        names = self.details.unlabelled_names or Names.numbered(len(unlabelled), "unlabelled")
        table = held_out_table(seen, result.training.task, nobodys, class_names, names)
        return table | {"given_label": [""] * len(unlabelled)}


def _described(method: Method) -> MethodFacts:
    return MethodFacts(getattr(method, "summary", ""), method.trains_on)


def _traced(ledger: Ledger, *, probed: bool) -> "tuple[npt.NDArray[Any], ...]":
    columns = ("dropped", "loss", "prediction") if probed else ("dropped",)
    return tuple(ledger[name].numpy() for name in columns)


def _json_line(row: Row) -> str:
    return json.dumps(plain(row), allow_nan=False)


def _check_same(saved: Fit, now: Fit, path: Path) -> None:
    before, after = asdict(saved), asdict(now)
    different = [
        f"{key} was {before[key]!r} and is now {after[key]!r}" for key in sorted(after) if before[key] != after[key]
    ]
    if different:
        raise RunError(
            f"{path} was started with another configuration: {'; '.join(different)}. "
            "Resume it as it was, or start a new run in another folder"
        )
