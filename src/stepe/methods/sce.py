"""Symmetric cross-entropy: the label is asked to explain the prediction, too.

Wang et al., *Symmetric Cross Entropy for Robust Learning with Noisy Labels*, 2019, Eq. 7.
"""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from stepe.errors import InputError
from stepe.loop.ledger import Ledger
from stepe.loop.task import Task
from stepe.methods.robust_loss import RobustLoss, of_label


@dataclass
class SymmetricCrossEntropy(RobustLoss):
    """``alpha`` cross-entropy + ``beta`` reverse cross-entropy; the defaults are the paper's for CIFAR-10.

    Reverse cross-entropy has label and prediction change places: ``-sum(prediction * log(label))``. The logarithm of
    the label's zeros is set to ``log_zero``, which makes it ``-log_zero * (1 - p)``, p being the probability of the
    given label: an absolute error.
    """

    name: ClassVar[str] = "sce"
    summary: ClassVar[str] = "cross-entropy plus its reverse, which is bounded"
    paper: ClassVar[str] = "Wang et al., 2019"

    alpha: float = 0.1
    """weight of cross-entropy, which learns; 6 for the 100 classes of CIFAR-100"""
    beta: float = 1.0
    """weight of its reverse, which noise hardly moves; 0.1 for CIFAR-100"""
    log_zero: float = -4.0
    """A, what stands for the logarithm of 0"""

    def start(self, task: Task, ledger: Ledger) -> None:
        """Check the weights."""
        super().start(task, ledger)
        if not (self.alpha >= 0 and self.beta >= 0 and self.alpha + self.beta > 0):
            raise InputError(f"alpha is {self.alpha!r} and beta {self.beta!r}; give 0 or more, and not 0 for both")
        if not self.log_zero < 0:
            raise InputError(f"log_zero is {self.log_zero!r}; it stands for the logarithm of 0: give a negative number")

    def losses(self, logs: Tensor, labels: Tensor) -> Tensor:
        """Both, of the given label's probability."""
        log_given = of_label(logs, labels)
        return -self.alpha * log_given + self.beta * self.log_zero * log_given.expm1()
