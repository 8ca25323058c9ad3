"""What a method is: the answers to three questions, asked by the loop in :mod:`stepe.training.fit`.

1. Do I need a fresh probe before this epoch?        :meth:`Method.wants_probe`
2. Which samples train, with which weight and target? :meth:`Method.plan`
3. How does a batch become a loss?                    :meth:`Method.loss`

A method is a dataclass whose fields are its options. What it finds out during a run goes into its state, which
checkpoints save. To add one: a file in this folder, and a line in the registry (``stepe/methods/__init__.py``).
"""

from abc import ABC, abstractmethod
from dataclasses import fields, is_dataclass
from typing import Any, ClassVar, Literal, Self

import torch
from torch import Tensor, nn

from stepe.beliefs.belief import Belief
from stepe.errors import InputError
from stepe.loop.ledger import Ledger, Observation
from stepe.loop.plan import Plan
from stepe.loop.selection import protect, select
from stepe.loop.task import Batch, Forward, Task, View
from stepe.methods.parts.contradiction import believe_contradictions
from stepe.options import check_fields, check_names


class Method(ABC):
    """Base class of all methods. Subclasses are dataclasses; their fields are their options."""

    name: ClassVar[str]
    summary: ClassVar[str]
    """one line for ``--help`` and the docs"""
    paper: ClassVar[str] = ""
    """who proposed it, and when, for the docs"""
    trains_on: ClassVar[Literal["given", "clean"]] = "given"
    """``clean`` asks for the clean labels, which only a benchmark has"""
    needs_classes: ClassVar[bool] = False
    """whether it is for classes alone, not for numbers or marks"""
    mixes_inputs: bool = False
    """whether it trains on blends of inputs, which must then be numbers that can be blended"""
    networks: ClassVar[int] = 1
    """how many networks train side by side"""
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
    """seconds that a recipe has spent before the first epoch"""
    task: Task

    def __new__(cls, *args: Any, **options: Any) -> Self:
        """Refuse options that are not the method's, and name those that they resemble."""
        check_names(options, cls.options(), cls.__name__)
        return super().__new__(cls)

    @classmethod
    def options(cls) -> list[str]:
        """List the options that this method takes."""
        return [option.name for option in fields(cls)] if is_dataclass(cls) else []

    def start(self, task: Task, ledger: Ledger) -> None:
        """Get to know the task: check the options, resolve those that depend on it, declare ledger columns."""
        check_fields(self)
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
        """Whether the loss is a mean over samples that know no other but the one :meth:`Batch.before` them: then
        batches of several models can be one (``Batch.parts``).
        """
        return not self.has_own_loss

    def network(self, model: nn.Module) -> nn.Module:
        """Return what trains in the model's place; in eval mode it gives the outputs of one model."""
        return model

    def trained(self, network: nn.Module) -> nn.Module:
        """Return the model, to be handed over in the end, of what :meth:`network` gave."""
        return network

    @abstractmethod
    def wants_probe(self, epoch: int) -> bool:
        """Say whether a fresh probe is needed before this epoch."""

    def observe(self, epoch: int, seen: Observation, ledger: Ledger) -> None:
        """Take in the probe before an epoch, and learn what there is to learn from it."""
        ledger.record_probe(seen)

    def plan(self, epoch: int, ledger: Ledger) -> Plan:
        """Say which samples train this epoch: everything, unless a method says otherwise. Asking changes nothing that a
        later answer depends on.
        """
        return Plan(epoch, self.task.epochs, torch.ones(self.task.n, dtype=torch.bool), self.task.seed)

    def prepare(self, epoch: int) -> None:  # noqa: B027 (most methods have nothing to prepare)
        """Set what :meth:`loss` reads in an epoch, once before it: shares drawn at random, for example."""

    def scores(self, ledger: Ledger) -> Tensor:
        """Score how suspicious each label is to this method; the paper's measure is the loss."""
        return ledger["score"]

    def keep_lowest(self, epoch: int, scores: Tensor, drop_fraction: float) -> Plan:
        """Plan an epoch on the samples with the lowest scores, and on those whose label was checked."""
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

    def written_columns(self) -> list[Tensor]:
        """List the columns that :meth:`loss` writes, one row a sample: a capture puts them back as they were, and
        processes that train together exchange their rows.
        """
        return []

    def make_belief(self, ledger: Ledger) -> Belief:
        """Make the belief of what the ledger remembers."""
        return believe_contradictions(ledger, self.task)

    def findings(self) -> dict[str, Any]:
        """Return what was found out about the run itself, for the summary, as JSON values."""
        return {}

    def resolved(self, task: Task) -> dict[str, Any]:
        """Name every option with what it would be for a task."""
        return {name: getattr(self, name) for name in self.options()}

    def state_dict(self) -> dict[str, Any]:
        """Return what was found out at run time, as JSON values or tensors."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:  # noqa: B027 (no state is a valid state)
        """Take up a saved state."""
