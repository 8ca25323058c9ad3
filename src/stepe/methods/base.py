"""What a method is: the answers to three questions, asked by the loop in :mod:`stepe.training.fit`.

1. Do I need a fresh probe before this epoch?        :meth:`Method.wants_probe`
2. Which samples train, with which weight and target? :meth:`Method.plan`
3. How does a batch become a loss?                    :meth:`Method.loss`

A method is a dataclass whose fields are its options. What it finds out during a run goes into its state, which
checkpoints save. To add one: a file in this folder, and a line in the registry (``stepe/methods/__init__.py``).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from stepe.errors import InputError
from stepe.evidence.posterior import Belief
from stepe.loop.labels import READERS, Kind, Read, kind_of
from stepe.loop.ledger import Ledger, Observation
from stepe.loop.plan import Plan
from stepe.loop.probe import check_losses
from stepe.loop.schedule import default_warmup
from stepe.loop.selection import protect, select

Criterion = Callable[[Tensor, Tensor], Tensor]
"""(outputs, targets) -> one loss per sample"""
Forward = Callable[[Any], Tensor]
"""inputs -> outputs (logits) of the model in training"""
View = Literal["augmented", "plain"]


@dataclass(frozen=True)
class Task:
    """All that a method may know about a run. The truth, where a benchmark has it, is not among it."""

    labels: Tensor
    """the given labels: int64 classes, or what else a criterion compares outputs with (``stepe.loop.labels``)"""
    classes: int
    """0 where labels are no classes"""
    epochs: int
    seed: int
    criterion: Criterion
    noise_rate: float | None = None
    """known share of wrong labels, one number"""
    groups: Tensor | None = None
    """one integer per sample for the group floor; ``None``: the class"""
    trusted: Tensor | None = None
    """bool: whose label was checked; they are never dropped"""
    weight: Tensor | None = None
    """how much each sample counts in training; ``None``: all the same"""
    reach: str = "in-sample"
    """who judges the samples: the model in training, or others (``stepe.training.reach``)"""
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    """where the loss is computed: state that it reads lives there"""

    @cached_property
    def kind(self) -> Kind:
        """What the labels are."""
        return kind_of(self.labels)

    @property
    def read(self) -> Read:
        """What outputs tell about labels of this kind."""
        return READERS[self.kind]

    def can_read(self, outputs: Tensor) -> bool:
        """Whether outputs tell more than their loss: one for a binary criterion, for example, is no logit per class."""
        if self.kind == "classes":
            return outputs.ndim == 2 and outputs.shape[1] >= self.classes
        return outputs.ndim > 0 and outputs[0].numel() == self.labels[0].numel()

    @property
    def n(self) -> int:
        """Number of samples."""
        return len(self.labels)


@dataclass(frozen=True)
class Batch:
    """A batch on the training device."""

    x: Any
    y: Tensor
    """given labels"""
    target: Tensor
    """what to train on: the given labels unless the plan says otherwise"""
    index: Tensor
    weight: Tensor | None
    total_weight: float | Tensor
    parts: int = 1
    """how many batches of one length lie here one after the other, each for another model (``stepe.engine.stack``);
    their weights are such that a mean over all is the sum of their means"""

    def before(self, values: Tensor) -> Tensor:
        """Of every sample, the value of the one before it in its batch; of the first, that of the last."""
        if self.parts == 1:
            return values.roll(1, 0)
        return values.reshape(self.parts, -1, *values.shape[1:]).roll(1, 1).reshape(values.shape)

    def mean(self, losses: Tensor) -> Tensor:
        """Weighted mean of per-sample losses over the global batch."""
        check_losses(losses, len(self.y))
        weighted = losses if self.weight is None else losses * self.weight
        return weighted.sum() / self.total_weight


class Method(ABC):
    """Base class of all methods. Subclasses are dataclasses; their fields are their options."""

    name: ClassVar[str]
    summary: ClassVar[str]
    """one line for ``--help`` and the docs"""
    paper: ClassVar[str] = ""
    """who proposed it, and when, for the docs"""
    trains_on: ClassVar[Literal["given", "clean"]] = "given"
    """``clean`` asks whoever prepares the data for the clean labels: only a benchmark has them"""
    needs_classes: ClassVar[bool] = False
    """whether it is for classes alone, not for numbers or marks"""
    mixes_inputs: bool = False
    """whether it trains on blends of inputs, which must then be numbers that can be blended"""
    networks: ClassVar[int] = 1
    """how many train side by side"""
    needs_probabilities: bool = False
    """whether the probe has to give the probability of every class"""
    cross_fits: ClassVar[bool] = False
    """whether other models may judge its samples; of no use to a method that hardly probes"""
    view: View = "augmented"
    """which images the probe sees"""
    averaging: float = 0.0
    """epochs over which weights are averaged for the model that is probed and tested; 0: it is the one in training"""
    warmup_epochs: int = 0
    """epochs before the method may drop anything"""
    seconds_before: float = 0.0
    """what a recipe has spent before the first epoch"""
    task: Task

    @classmethod
    def options(cls) -> list[str]:
        """Names of the options this method takes."""
        return [option.name for option in fields(cls)] if is_dataclass(cls) else []

    def start(self, task: Task, ledger: Ledger) -> None:
        """Get to know the task: resolve options that depend on it, declare ledger columns."""
        self.task = task
        if self.needs_classes and task.kind != "classes":
            raise InputError(
                f"method {self.name!r} compares the probabilities of classes, and these labels are {task.kind}: choose "
                "another method, such as step-e"
            )
        if task.kind == "numbers":
            width = task.labels.shape[1] if task.labels.ndim == 2 else None
            ledger.add_column("output", torch.float32, float("nan"), width=width)

    @property
    def has_own_loss(self) -> bool:
        """Whether a batch's loss is more than the criterion's mean."""
        return type(self).loss is not Method.loss

    @property
    def stacks(self) -> bool:
        """Whether the loss is a mean over samples, each of which knows no other but the one :meth:`Batch.before` it:
        then batches of several models can be one (``Batch.parts``).
        """
        return not self.has_own_loss

    def network(self, model: nn.Module) -> nn.Module:
        """What trains in the model's place; in eval mode it gives the outputs of one model. Itself, as a rule."""
        return model

    def trained(self, network: nn.Module) -> nn.Module:
        """The model of what :meth:`network` gave, to be handed over in the end."""
        return network

    @abstractmethod
    def wants_probe(self, epoch: int) -> bool:
        """Whether a fresh probe is needed before this epoch."""

    def observe(self, seen: Observation, ledger: Ledger) -> None:
        """Take in a probe."""
        ledger.record_probe(seen)

    def plan(self, epoch: int, ledger: Ledger) -> Plan:
        """Which samples train this epoch. Everything, unless a method says otherwise."""
        return Plan(epoch, self.task.epochs, torch.ones(self.task.n, dtype=torch.bool), self.task.seed)

    def scores(self, ledger: Ledger) -> Tensor:
        """How suspicious each label is to this method; the paper's measure is the loss."""
        return ledger["score"]

    def keep_lowest(self, epoch: int, scores: Tensor, drop_fraction: float) -> Plan:
        """An epoch on the samples with the lowest scores, and on those whose label was checked."""
        scores, drop_fraction = protect(scores, drop_fraction, self.task.trusted)
        chosen = select(scores, drop_fraction)
        return Plan(
            epoch,
            self.task.epochs,
            chosen.kept,
            self.task.seed,
            drop_fraction=drop_fraction,
            cut=chosen.cut,
            nonfinite=chosen.nonfinite,
        )

    def loss(self, forward: Forward, batch: Batch) -> Tensor:
        """Turn a batch into a scalar. Must not read values back to the host, so that a CUDA graph can hold it."""
        return batch.mean(self.task.criterion(forward(batch.x), batch.target))

    def written(self) -> list[Tensor]:
        """Columns that :meth:`loss` writes, one row a sample: a capture puts them back as they were, and processes that
        train together exchange their rows.
        """
        return []

    def believes(self, ledger: Ledger) -> Belief | None:
        """What is believed of the samples, where a running guess is kept: how many labels to point out, and which."""
        return None

    def findings(self, ledger: Ledger) -> dict[str, Any]:
        """What was found out about the data, for the summary, as JSON values."""
        return {}

    def state_dict(self) -> dict[str, Any]:
        """What was found out at run time, as JSON values or tensors."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:  # noqa: B027 (no state is a valid state)
        """Take up a saved state."""


def resolve_warmup(warmup: int | Literal["auto"] | None, epochs: int, share: float = 1 / 6) -> int:
    """The warm-up a user gave, or a share of the run, the longest that ``auto`` takes; by default the paper's."""
    if isinstance(warmup, str) and warmup != "auto":
        raise InputError(f"the warm-up is {warmup!r}; it must be a number of epochs, or 'auto'")
    return default_warmup(epochs, share) if warmup is None or isinstance(warmup, str) else warmup
