"""Mixup: train on blends of two samples, and on the labels of both.

Zhang et al., *mixup: Beyond Empirical Risk Minimization*, 2018, Eq. 2. What it does stands in
:mod:`stepe.methods.parts.mixing`.
"""

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from torch import Tensor

from stepe.loop.ledger import Ledger
from stepe.loop.task import Batch, Forward, Task
from stepe.methods.parts.mixing import Blends
from stepe.methods.plain import Plain
from stepe.options import Option


@dataclass
class Mixup(Plain):
    """Train plainly on blends."""

    name: ClassVar[str] = "mixup"
    summary: ClassVar[str] = "blends of two samples, under the labels of both"
    paper: ClassVar[str] = "Zhang et al., 2018"
    mixes_inputs = True

    alpha: Annotated[
        float,
        Option("A sample's share of its blend is drawn from Beta(alpha, alpha); smaller numbers blend less.", above=0),
    ] = 1.0

    def start(self, task: Task, ledger: Ledger) -> None:
        """Prepare the blends."""
        super().start(task, ledger)
        self._blends = Blends(task, self.alpha)

    def prepare(self, epoch: int) -> None:
        """Draw the shares of the blends."""
        self._blends.draw(epoch)

    def loss(self, forward: Forward, batch: Batch) -> Tensor:
        """Take the losses of the blends."""
        return self._blends.loss(forward, batch)

    def state_dict(self) -> dict[str, Any]:
        """Save the shares of the epoch."""
        return self._blends.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take up a saved state."""
        self._blends.load_state_dict(state)
