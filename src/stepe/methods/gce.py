"""Generalised cross-entropy: between cross-entropy, which learns fast, and absolute error, which noise hardly moves.

Zhang and Sabuncu, *Generalized Cross Entropy Loss for Training Deep Neural Networks with Noisy Labels*, 2018, Eq. 6.
Their truncated variant, which also prunes between epochs, is not here: pruning by loss is what Step-E does.
"""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from stepe.errors import InputError
from stepe.loop.ledger import Ledger
from stepe.loop.task import Task
from stepe.methods.robust_loss import RobustLoss, of_label


@dataclass
class GeneralisedCrossEntropy(RobustLoss):
    """``(1 - p ** q) / q``, p being the probability of the given label: bounded, so no label can pull without end."""

    name: ClassVar[str] = "gce"
    summary: ClassVar[str] = "a bounded loss between cross-entropy and absolute error"
    paper: ClassVar[str] = "Zhang and Sabuncu, 2018"

    q: float = 0.7
    """towards 0 it is cross-entropy, at 1 the absolute error"""

    def start(self, task: Task, ledger: Ledger) -> None:
        """Check the exponent."""
        super().start(task, ledger)
        if not 0 < self.q <= 1:
            raise InputError(f"q is {self.q!r}; it must lie in (0, 1]: method='plain' is what it tends to at 0")

    def losses(self, logs: Tensor, labels: Tensor) -> Tensor:
        """By way of the logarithm, whose gradient does not explode where a probability is 0."""
        return -(self.q * of_label(logs, labels)).expm1() / self.q
