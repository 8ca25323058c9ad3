"""Label smoothing: a little of every label is spread over all classes.

Szegedy et al., *Rethinking the Inception Architecture for Computer Vision*, 2016, section 7; Lukasik et al., *Does
Label Smoothing Mitigate Label Noise?*, 2020, on what it does to wrong labels.
"""

from dataclasses import dataclass
from typing import Annotated, ClassVar

from torch import Tensor

from stepe.methods.robust_loss import RobustLoss, of_label
from stepe.options import Option


@dataclass
class LabelSmoothing(RobustLoss):
    """Train by the cross-entropy with the target (1 - epsilon) label + epsilon / classes."""

    name: ClassVar[str] = "label-smoothing"
    summary: ClassVar[str] = "a little of every label is spread over all classes"
    paper: ClassVar[str] = "Szegedy et al., 2016"

    smoothing: Annotated[float, Option("Share of every label that is spread: epsilon.", min=0, below=1)] = 0.1

    def losses(self, logs: Tensor, labels: Tensor) -> Tensor:
        """Take the cross-entropy of the label and, for the share, that of every class alike."""
        return -(1 - self.smoothing) * of_label(logs, labels) - self.smoothing * logs.mean(1)
