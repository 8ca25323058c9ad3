"""Generalised cross-entropy: between cross-entropy, which learns fast, and absolute error, which noise hardly moves.

Zhang and Sabuncu, *Generalized Cross Entropy Loss for Training Deep Neural Networks with Noisy Labels*, 2018, Eq. 6.
Their truncated variant, which also prunes between epochs, is not here: pruning by loss is what Step-E does.
"""

from dataclasses import dataclass
from typing import Annotated, ClassVar

from torch import Tensor

from stepe.methods.robust_loss import RobustLoss, of_label
from stepe.options import Option


@dataclass
class GeneralisedCrossEntropy(RobustLoss):
    """Train by ``(1 - p ** q) / q``, p being the given label's probability: bounded, so no label pulls without end."""

    name: ClassVar[str] = "gce"
    summary: ClassVar[str] = "a bounded loss between cross-entropy and absolute error"
    paper: ClassVar[str] = "Zhang and Sabuncu, 2018"

    q: Annotated[
        float,
        Option(
            "Towards 0 it is cross-entropy (for which take `method` plain), at 1 the absolute error.", above=0, max=1
        ),
    ] = 0.7

    def losses(self, logs: Tensor, labels: Tensor) -> Tensor:
        """Go by way of the logarithm, whose gradient does not explode where a probability is 0."""
        return -(self.q * of_label(logs, labels)).expm1() / self.q
