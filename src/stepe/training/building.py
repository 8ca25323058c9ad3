"""A run in progress, and how it is put together from what a user handed over."""

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.optim import SGD, Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from stepe.beliefs.belief import Belief
from stepe.beliefs.names import Names
from stepe.engine.compiled import CompiledEngine
from stepe.engine.eager import AMP_TYPES, EagerEngine
from stepe.engine.learning_rate import ProgressRate, Rate, RateShape, TorchRate
from stepe.engine.resident import ResidentEngine
from stepe.errors import InputError
from stepe.files import plain
from stepe.loop.ledger import Ledger, Observation
from stepe.loop.metrics import Truth, auroc, detection
from stepe.methods import Criterion, Method, Task
from stepe.run.record import Fit, NoiseFound, Summary
from stepe.samples.given_labels import as_tensor, label_tensor, read_labels
from stepe.samples.samples import Samples, TensorSamples, as_samples
from stepe.training.issues import training_table
from stepe.training.judging.base import Prober
from stepe.training.session import Row, Session

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pandas as pd

ENGINES: dict[str, type[EagerEngine]] = {
    "eager": EagerEngine,
    "resident": ResidentEngine,
    "compiled": CompiledEngine,
}
DIGESTED = 256


@dataclass
class Training:
    """A run in progress: everything a checkpoint holds."""

    session: Session
    engine: EagerEngine
    prober: Prober
    config: Fit
    """what a resumed run must share with the run it continues"""
    class_names: list[str]
    """what the classes are called in the issues"""
    names: Names
    """what the samples are called there"""

    @property
    def method(self) -> Method:
        """The method that decides which samples train."""
        return self.session.method

    @property
    def ledger(self) -> Ledger:
        """What is remembered per sample."""
        return self.session.ledger

    @property
    def history(self) -> list[Row]:
        """One row an epoch."""
        return self.session.history

    @property
    def epoch(self) -> int:
        """The epoch that is on, or comes next."""
        return self.session.epoch

    @property
    def model(self) -> nn.Module:
        """What trains: the model, or several networks side by side."""
        return self.engine.model

    @property
    def task(self) -> Task:
        """What is trained on."""
        return self.engine.task

    def align(self) -> None:
        """Have every rank start from what the first one starts from: new weights, or a checkpoint it took up."""
        ranks = self.engine.ranks
        if not ranks.grouped:
            return
        parts = {name: getattr(self, name) for name in ("model", "ledger", "engine", "method", "prober")}
        state = {name: part.state_dict() for name, part in parts.items()}
        shared = ranks.share(plain(state | {"history": self.history}))
        for name, part in parts.items():
            part.load_state_dict(shared[name])
        self.session.history = shared["history"]


@dataclass(frozen=True)
class Result:
    """A finished run."""

    training: Training
    belief: Belief
    """what is held of the labels in the end"""
    summary: Summary
    held_out: Observation | None = None
    """what the final model says about the test samples"""
    held_out_labels: Tensor | None = None

    @property
    def model(self) -> nn.Module:
        """The trained model."""
        return self.training.method.trained(self.training.model)

    @property
    def ledger(self) -> Ledger:
        """What is known about every sample."""
        return self.training.ledger

    @property
    def history(self) -> list[Row]:
        """One row an epoch."""
        return self.training.history

    @property
    def issues(self) -> "pd.DataFrame":
        """The samples that look wrong, most suspicious first."""
        import pandas as pd

        run, warmup = self.training, self.training.method.warmup_epochs
        table = training_table(self.belief, self.ledger, run.task, warmup, run.class_names, run.names)
        found = pd.DataFrame(table)
        return found[found["flagged"]].sort_values("rank").reset_index(drop=True)


class Observer(Protocol):
    """Something that follows a run: a run folder, a progress display."""

    def run_started(self, training: Training) -> None:
        """Everything is in place; a run folder restores the last checkpoint here."""

    def epoch_ended(self, training: Training, row: Row) -> None:
        """Hear that an epoch is over and in the history."""

    def run_ended(self, result: Result) -> None:
        """Hear that the last probe is done."""


class Silent:
    """An observer that does nothing; base of those that follow only part of a run."""

    def run_started(self, training: Training) -> None:
        """Do nothing."""

    def epoch_ended(self, training: Training, row: Row) -> None:
        """Do nothing."""

    def run_ended(self, result: Result) -> None:
        """Do nothing."""


def summarise(training: Training, belief: Belief, truth: Truth | None) -> Summary:
    """Put the run into a few numbers. The last epoch counts; the best test accuracy stands beside it, named as such."""
    history, ledger = training.history, training.ledger
    dropped, flagged, last = ledger["dropped"], belief.flagged, history[-1]
    seconds = sum(row["seconds"] for row in history)
    found = dict(training.method.findings())
    return Summary(
        method=training.method.name,
        epochs=training.task.epochs,
        samples=ledger.n,
        dropped=int(dropped.sum()),
        flagged=int(flagged.sum()),
        seconds=training.method.seconds_before + seconds,
        seconds_per_epoch=seconds / len(history),
        probe=training.prober.findings(),
        rho_max=found.pop("rho_max", None),
        warmup=found.pop("warmup", None),
        noise_rate=belief.found_rate,
        hardly_recognised=tuple(belief.hardly_recognised),
        test_loss=last.get("test_loss"),
        test_accuracy=last.get("test_accuracy"),
        best_test_accuracy=max(row["test_accuracy"] for row in history) if "test_accuracy" in last else None,
        noise=None if truth is None else _noise_found(training, truth, flagged),
        more=found,
    )


def _noise_found(training: Training, truth: Truth, flagged: "npt.NDArray[np.bool_]") -> NoiseFound:
    return NoiseFound(
        noisy=int(truth.noisy.sum()),
        auroc=auroc(training.method.scores(training.ledger).double().cpu(), truth.noisy),
        dropped=detection(training.ledger["dropped"].cpu(), truth.noisy),
        flagged=detection(flagged, truth.noisy),
    )


def find_device(device: str | torch.device) -> torch.device:
    """Find a device by name; ``auto`` takes CUDA, then MPS, then the CPU; of several GPUs, each process its own."""
    if device == "auto":
        if torch.cuda.is_available():
            return _own_gpu()
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        found = torch.device(device)
        torch.zeros(1, device=found)
        if found.type == "meta":
            raise RuntimeError("no numbers on it")
    except (RuntimeError, AssertionError, NotImplementedError, ImportError) as error:
        raise InputError(
            f"device {str(device)!r} is not there; use one that is (cpu always is), or leave it to 'auto'"
        ) from error
    return _own_gpu() if str(found) == "cuda" else found


def _own_gpu() -> torch.device:
    """Take the current GPU; under torchrun, if nobody chose one, the GPU that has the process's number there."""
    current, local = torch.cuda.current_device(), int(os.environ.get("LOCAL_RANK", "0"))
    if current == 0 and dist.is_available() and dist.is_initialized() and local < torch.cuda.device_count():
        current = local
        torch.cuda.set_device(current)
    return torch.device("cuda", current)


def place(samples: Samples, device: torch.device) -> Samples:
    """Move tensors to the device, once; data sets move batch by batch."""
    return samples.to(device) if isinstance(samples, TensorSamples) else samples


def count_classes(labels: Tensor) -> int:
    """Count the classes; 0 where labels are no classes."""
    return 0 if labels.is_floating_point() else int(labels.max()) + 1


def check_held_out(labels: Tensor, given: Tensor) -> None:
    """Refuse test labels of another kind, or of a class that no training label has."""
    if labels.is_floating_point() != given.is_floating_point() or labels.shape[1:] != given.shape[1:]:
        kinds = [
            f"{str(found.dtype).removeprefix('torch.')} of shape {tuple(found.shape)}" for found in (labels, given)
        ]
        raise InputError(f"the labels of the test data are {kinds[0]}, those of the training data {kinds[1]}")
    classes = count_classes(given)
    if classes and (largest := int(labels.max())) >= classes:
        raise InputError(f"label {largest} of the test data is not among the {classes} classes of the training labels")


def held_out_samples(
    test: Any, device: torch.device, *, any_kind: bool = False, **loader_options: Any
) -> tuple[Samples, Tensor] | None:
    """Read test data and its labels."""
    if test is None:
        return None
    data, labels = test if isinstance(test, tuple) and len(test) == 2 else (test, None)
    samples = place(as_samples(data, None, None, **loader_options), device)
    if len(samples) == 0:
        raise InputError("the test data is empty; leave test= out if there is none")
    try:
        found = label_tensor(read_labels(data) if labels is None else labels, len(samples), any_kind=any_kind)
    except InputError as error:
        raise InputError(f"in the test data, {error}") from error
    return samples, found


def check_initialised(model: nn.Module) -> None:
    """Refuse lazy weights: an optimizer, a copy and a checkpoint need to know their shapes."""
    if any(map(is_lazy, (*model.parameters(), *model.buffers()))):
        raise InputError(
            "the model has lazy layers that have not seen an input, so its weights have no shape yet; call it once "
            "before, on a batch such as model(inputs[:2])"
        )


def cross_entropy(classes: int) -> Criterion:
    """Make the default criterion, which refuses too few outputs: they would end as an assertion on the device."""

    def criterion(outputs: Tensor, targets: Tensor) -> Tensor:
        if outputs.ndim != 2 or outputs.shape[1] < classes:
            raise InputError(
                f"the model's outputs have shape {tuple(outputs.shape)} and the labels {classes} classes; "
                "it must return one logit per class, or give criterion= for outputs of another kind"
            )
        if targets.is_floating_point():  # probabilities of the classes: outputs beyond them have none
            targets = F.pad(targets, (0, outputs.shape[1] - targets.shape[1]))
        return F.cross_entropy(outputs, targets, reduction="none")

    return criterion


def check_groups(groups: Any, n: int) -> Tensor:
    """Take groups as integers, one per sample."""
    try:
        found = as_tensor(groups)
    except (TypeError, ValueError) as error:
        raise InputError("groups must be integers, one a sample; map names to numbers first") from error
    if found.shape != (n,) or found.is_floating_point():
        raise InputError(f"groups have shape {tuple(found.shape)} and type {found.dtype}; give one integer a sample")
    return found.to(torch.int64)


def check_trusted(trusted: Any, n: int) -> Tensor:
    """Take trusted samples as a mask."""
    found = as_tensor(trusted)
    if found.shape != (n,) or found.dtype != torch.bool:
        raise InputError(f"trusted has shape {tuple(found.shape)} and type {found.dtype}; give one bool a sample")
    return found.cpu()


def check_weight(weight: Any, n: int) -> Tensor:
    """Take weights as one finite number a sample, none negative, not all zero."""
    found = as_tensor(weight).to(torch.float32).cpu()
    if found.shape != (n,) or not bool(torch.isfinite(found).all()) or float(found.min()) < 0:
        raise InputError(f"weight must hold one number a sample, 0 or more; there are {n} samples")
    if not float(found.sum()):
        raise InputError("every weight is 0, so nothing would train; give at least one sample a positive weight")
    return found


def balanced_weight(labels: Tensor) -> Tensor:
    """Make one weight per sample, by which every class counts alike; 1 on average.

    >>> balanced_weight(torch.tensor([0, 0, 0, 2])).tolist()
    [0.6666666865348816, 0.6666666865348816, 0.6666666865348816, 2.0]
    """
    counts = torch.bincount(labels)
    return (len(labels) / (counts > 0).sum() / counts[labels]).to(torch.float32)


def check_class_names(class_names: Sequence[str] | None, classes: int) -> list[str]:
    """Name the classes: by their numbers, unless they have names."""
    if class_names is not None and len(class_names) < classes:
        raise InputError(f"there are {len(class_names)} class names for {classes} classes")
    return [str(label) for label in range(classes)] if class_names is None else [str(name) for name in class_names]


def check_ids(ids: Sequence[str] | None, n: int) -> Names:
    """Name the samples: by their numbers, unless they have names."""
    if ids is None:
        return Names.numbered(n)
    if len(ids) != n:
        raise InputError(f"there are {len(ids)} ids for {n} samples; give one per sample")
    return Names([str(name) for name in ids], list(range(n)))


def check_batch_size(batch_size: int, n: int) -> int:
    """Refuse what is no batch size; a batch is no larger than the data."""
    if not isinstance(batch_size, int) or batch_size < 1:
        raise InputError(f"the batch size is {batch_size!r}; it must be a whole number, at least 1")
    return min(batch_size, n)


def engine_class(name: str) -> type[EagerEngine]:
    """Find an engine by name."""
    if name not in ENGINES:
        raise InputError(f"unknown engine {name!r}; choose one of {', '.join(ENGINES)}")
    return ENGINES[name]


def make_optimizer(
    optimizer: Any, model: nn.Module, learning_rate: float | None, weight_decay: float, *, fused: bool = False
) -> Optimizer:
    """Make the user's optimizer, or the paper's: SGD with Nesterov momentum 0.9."""
    if optimizer is None:
        rate = 0.1 if learning_rate is None else learning_rate
        return SGD(model.parameters(), lr=rate, momentum=0.9, weight_decay=weight_decay, nesterov=True, fused=fused)
    if learning_rate is not None:
        raise InputError("give the learning rate to your own optimizer, not to fit()")
    made = optimizer(model.parameters()) if callable(optimizer) else optimizer
    if not isinstance(made, Optimizer):
        raise InputError(f"optimizer gave a {type(made).__name__}; it must be, or return, a torch optimizer")
    own = set(map(id, model.parameters()))
    if not any(id(parameter) in own for group in made.param_groups for parameter in group["params"]):
        raise InputError("the optimizer holds no parameter of this model; make it from model.parameters()")
    return made


def make_rate(
    shape: RateShape,
    scheduler: LRScheduler | Callable[[Optimizer], LRScheduler] | None,
    interval: Literal["epoch", "step"],
    optimizer: Optimizer,
    *,
    epochs: int,
    full_steps: int,
) -> Rate:
    """Make what sets the learning rate: a function of progress, or a torch scheduler kept in pace with it."""
    if interval not in ("epoch", "step"):
        raise InputError(f"scheduler_interval is {interval!r}; choose 'epoch' or 'step'")
    if scheduler is None:
        return ProgressRate(optimizer, shape)
    made = scheduler(optimizer) if callable(scheduler) else scheduler
    if not isinstance(made, LRScheduler):
        raise InputError(f"scheduler gave a {type(made).__name__}; it must be, or return, a torch scheduler")
    if isinstance(made, ReduceLROnPlateau):
        raise InputError("ReduceLROnPlateau steps on a metric, and fit() has none to give it; use another one")
    if made.optimizer is not optimizer:
        raise InputError("the scheduler drives another optimizer; give fit() that one too, as optimizer=")
    return TorchRate(made, epochs * (full_steps if interval == "step" else 1))


def check_amp(amp: str | None) -> None:
    """Refuse unknown precisions."""
    if amp not in (None, *AMP_TYPES):
        raise InputError(f"amp is {amp!r}; choose one of {', '.join(AMP_TYPES)}, or None for full precision")


@contextmanager
def determinism(wanted: bool) -> Iterator[None]:
    """Use deterministic CUDA kernels for a while; the CPU is deterministic at a fixed number of threads."""
    before, benchmark = torch.are_deterministic_algorithms_enabled(), torch.backends.cudnn.benchmark
    warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
    if wanted:
        # cuBLAS reads it when it starts; without it the algorithms it picks are not reproducible.
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True, warn_only=warn_only or not before)
        torch.backends.cudnn.benchmark = False
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before, warn_only=warn_only)
        torch.backends.cudnn.benchmark = benchmark


def describe(method: Method, task: Task, engine: EagerEngine, amp: str | None, deterministic: bool) -> Fit:
    """Describe what a resumed run must share with the run it continues."""
    shapes = {name: list(value.shape) for name, value in engine.model.state_dict().items()}
    options: Row = {f.name: getattr(method, f.name) for f in fields(method)} if is_dataclass(method) else {}
    rate = engine.rate.shape if isinstance(engine.rate, ProgressRate) else type(engine.rate.scheduler).__name__
    return Fit(
        method=method.name,
        options={name: _comparable(value) for name, value in options.items()},
        epochs=task.epochs,
        seed=task.seed,
        batch_size=engine.batch_size,
        probe_batch_size=engine.probe_batch_size,
        noise_rate=task.noise_rate,
        optimizer={
            "name": type(engine.optimizer).__name__,
            **{name: _comparable(value) for name, value in engine.optimizer.defaults.items()},
        },
        rate=_comparable(rate),
        criterion=_comparable(task.criterion),
        amp=amp,
        deterministic=deterministic,
        device=engine.device.type,
        samples=task.n,
        classes=task.classes,
        inputs=_inputs_digest(engine.samples),
        labels=_digest(task.labels.numpy().tobytes()),
        probe=task.probe,
        trusted=None if task.trusted is None else _digest(task.trusted.numpy().tobytes()),
        weight=None if task.weight is None else _digest(task.weight.numpy().tobytes()),
        groups=None if task.groups is None else _digest(task.groups.cpu().numpy().tobytes()),
        model=f"{type(engine.model).__name__} {_digest(json.dumps(shapes).encode())}",
    )


def _comparable(value: object) -> bool | int | float | str | None:
    """Write a value as the next process would: a function's address, for one, is another there."""
    return (
        value if value is None or isinstance(value, bool | int | float | str) else re.sub(r" at 0x\w+", "", str(value))
    )


def _inputs_digest(samples: Samples) -> str | None:
    """Digest some of the inputs, if they are tensors: to read all of a data set would take too long."""
    if not isinstance(samples, TensorSamples):
        return None
    some = samples.x[:: max(1, len(samples) // DIGESTED)].cpu().contiguous()
    kind = f"{tuple(samples.x.shape)} {_comparable(samples.augment)}"
    return _digest(kind.encode() + some.view(torch.uint8).numpy().tobytes())


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]
