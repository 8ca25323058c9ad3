"""Symmetric cross-entropy: the label is asked to explain the prediction, too.

Wang et al., *Symmetric Cross Entropy for Robust Learning with Noisy Labels*, 2019, Eq. 7.
"""

from dataclasses import dataclass
from typing import Annotated, ClassVar

from torch import Tensor

from stepe.errors import InputError
from stepe.loop.ledger import Ledger
from stepe.loop.task import Task
from stepe.methods.robust_loss import RobustLoss, of_label
from stepe.options import Option


@dataclass
class SymmetricCrossEntropy(RobustLoss):
    """Train by ``alpha`` cross-entropy + ``beta`` reverse cross-entropy; the defaults are the paper's for CIFAR-10.

    Reverse cross-entropy has label and prediction change places: ``-sum(prediction * log(label))``. The logarithm of
    the label's zeros is set to ``log_zero``, which makes it ``-log_zero * (1 - p)``, p being the probability of the
    given label: an absolute error.
    """

    name: ClassVar[str] = "sce"
    summary: ClassVar[str] = "cross-entropy plus its reverse, which is bounded"
    paper: ClassVar[str] = "Wang et al., 2019"

    alpha: Annotated[
        float, Option("Weight of cross-entropy, which learns; 6 for the 100 classes of CIFAR-100.", min=0)
    ] = 0.1
    beta: Annotated[float, Option("Weight of its reverse, which noise hardly moves; 0.1 for CIFAR-100.", min=0)] = 1.0
    log_zero: Annotated[float, Option("A, a negative number that stands for the logarithm of 0.", below=0)] = -4.0

    def start(self, task: Task, ledger: Ledger) -> None:
        """Check that one of the weights is left."""
        super().start(task, ledger)
        if self.alpha == self.beta == 0:
            raise InputError("alpha and beta are 0, so that nothing is learned; give one of them more")

    def losses(self, logs: Tensor, labels: Tensor) -> Tensor:
        """Add both, of the given label's probability."""
        log_given = of_label(logs, labels)
        return -self.alpha * log_given + self.beta * self.log_zero * log_given.expm1()
