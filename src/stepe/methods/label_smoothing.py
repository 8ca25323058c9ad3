"""Label smoothing: a little of every label is spread over all classes.

Szegedy et al., *Rethinking the Inception Architecture for Computer Vision*, 2016, section 7; Lukasik et al., *Does
Label Smoothing Mitigate Label Noise?*, 2020, on what it does to wrong labels.
"""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from stepe.errors import InputError
from stepe.loop.ledger import Ledger
from stepe.loop.task import Task
from stepe.methods.robust_loss import RobustLoss, of_label


@dataclass
class LabelSmoothing(RobustLoss):
    """Cross-entropy with the target (1 - epsilon) label + epsilon / classes."""

    name: ClassVar[str] = "label-smoothing"
    summary: ClassVar[str] = "a little of every label is spread over all classes"
    paper: ClassVar[str] = "Szegedy et al., 2016"

    smoothing: float = 0.1
    """epsilon, the share that is spread"""

    def start(self, task: Task, ledger: Ledger) -> None:
        """Check the share."""
        super().start(task, ledger)
        if not 0 <= self.smoothing < 1:
            raise InputError(f"smoothing is {self.smoothing!r}; it must be a share in [0, 1)")

    def losses(self, logs: Tensor, labels: Tensor) -> Tensor:
        """The cross-entropy of the label and, for the share, that of every class alike."""
        return -(1 - self.smoothing) * of_label(logs, labels) - self.smoothing * logs.mean(1)
