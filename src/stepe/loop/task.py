"""What a run trains on: the task that a method gets to know, and the batches whose loss it takes."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import torch
from torch import Tensor

from stepe.loop.kinds import LabelKind
from stepe.loop.labels import READERS, Read, kind_of
from stepe.loop.probe import check_losses

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
    probe: str = "in-sample"
    """who judges the samples: the model in training, or others, as ``fit`` takes it"""
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    """where the loss is computed: state that it reads lives there"""

    @cached_property
    def kind(self) -> LabelKind:
        """What the labels are."""
        return kind_of(self.labels)

    @property
    def read(self) -> Read:
        """What outputs tell about labels of this kind."""
        return READERS[self.kind]

    def can_read(self, outputs: Tensor) -> bool:
        """Say whether outputs tell more than their loss: one output for a binary criterion is no logit per class."""
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
        """Give every sample the value of the one before it in its batch; the first gets that of the last."""
        if self.parts == 1:
            return values.roll(1, 0)
        return values.reshape(self.parts, -1, *values.shape[1:]).roll(1, 1).reshape(values.shape)

    def mean(self, losses: Tensor) -> Tensor:
        """Take the weighted mean of per-sample losses over the global batch."""
        check_losses(losses, len(self.y))
        weighted = losses if self.weight is None else losses * self.weight
        return weighted.sum() / self.total_weight
