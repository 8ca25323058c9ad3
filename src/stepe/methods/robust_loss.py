"""What methods share that train on all samples and only change the loss, for labels that are classes."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch.nn.functional as F
from torch import Tensor

from stepe.errors import InputError
from stepe.loop.task import Batch, Forward, Task
from stepe.methods.plain import Plain


@dataclass
class RobustLoss(Plain):
    """Train plainly with another loss; the probe, and so the ranking of the samples, keeps the criterion's."""

    needs_classes: ClassVar[bool] = True

    @abstractmethod
    def losses(self, logs: Tensor, labels: Tensor) -> Tensor:
        """Return one loss per sample, from the logarithms of the class probabilities and the labels."""

    def loss(self, forward: Forward, batch: Batch) -> Tensor:
        """Average the losses by their weights."""
        return batch.mean(self.losses(log_probabilities(forward(batch.x), self.task), batch.target))


def log_probabilities(outputs: Tensor, task: Task) -> Tensor:
    """Return the logarithm of every class's probability."""
    check_logits(outputs, task)
    return outputs.log_softmax(1)


def check_logits(outputs: Tensor, task: Task) -> None:
    """Refuse fewer logits than classes, which would otherwise end as an assertion on the device."""
    if not task.can_read(outputs):
        raise InputError(
            f"the model's outputs have shape {tuple(outputs.shape)} and the labels {task.classes} classes; this method "
            "needs one logit per class"
        )


def of_label(logs: Tensor, labels: Tensor) -> Tensor:
    """Return the logarithm of each label's probability, by torch's own loss: its gradients are the same every time."""
    return -F.nll_loss(logs, labels, reduction="none")
