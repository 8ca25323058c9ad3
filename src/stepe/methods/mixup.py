"""Mixup: train on blends of two samples, and on the labels of both.

Zhang et al., *mixup: Beyond Empirical Risk Minimization*, 2018, Eq. 2. A wrong label is never seen alone, and is the
harder to learn by heart.
"""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from stepe.errors import InputError
from stepe.ledger import Ledger, read_rows
from stepe.methods.base import Batch, Forward, Task
from stepe.methods.plain import Plain
from stepe.plan import Plan
from stepe.randomness import Stream


@dataclass
class Mixup(Plain):
    """Each sample of a batch is blended with the one before it, which the epoch's random order has put there."""

    name: ClassVar[str] = "mixup"
    summary: ClassVar[str] = "blends of two samples, under the labels of both"
    paper: ClassVar[str] = "Zhang et al., 2018"
    mixes_inputs: ClassVar[bool] = True

    alpha: float = 1.0
    """a sample's share of its blend is drawn from Beta(alpha, alpha); smaller blends less"""

    def start(self, task: Task, ledger: Ledger) -> None:
        """Check alpha."""
        super().start(task, ledger)
        if not self.alpha > 0:
            raise InputError(f"alpha is {self.alpha!r}; it must be positive: method='plain' is training without mixup")
        self._share = torch.ones(task.n, device=task.device)

    def plan(self, epoch: int, ledger: Ledger) -> Plan:
        """All samples; what share each has of its blend is drawn beforehand, so that a graph can hold the loss."""
        # The paper's formula has a share per pair; its code draws one for a whole batch.
        draw = np.random.default_rng(Stream.named(self.task.seed, "mixup", epoch).seed)
        self._share.copy_(torch.from_numpy(draw.beta(self.alpha, self.alpha, self.task.n)).float())
        return super().plan(epoch, ledger)

    def loss(self, forward: Forward, batch: Batch) -> Tensor:
        """The losses of the blend under both labels, each by its share."""
        share = read_rows(self._share, batch.index)
        outputs = forward(blend(batch.x, share))
        before = None if batch.weight is None else batch.weight.roll(1, 0)
        return batch.mean(share * self.task.criterion(outputs, batch.target)) + replace(batch, weight=before).mean(
            (1 - share) * self.task.criterion(outputs, batch.target.roll(1, 0))
        )

    def state_dict(self) -> dict[str, Any]:
        """The shares of the epoch."""
        return {"share": self._share}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore them."""
        self._share.copy_(state["share"])


def blend(x: Any, share: Tensor) -> Tensor:
    """Each sample of a batch by its share, and the one before it (the last, for the first) by the rest.

    >>> blend(torch.tensor([[0.0], [8.0]]), torch.tensor([0.5, 0.75]))
    tensor([[4.],
            [6.]])
    """
    if not isinstance(x, Tensor) or not (x.is_floating_point() or x.dtype == torch.uint8):
        found = str(x.dtype).removeprefix("torch.") + "s" if isinstance(x, Tensor) else f"a {type(x).__name__}"
        raise InputError(
            f"mixup blends inputs, which must be a tensor of numbers or of pixels, and these are {found}: choose "
            "another method for texts, codes and inputs of several parts"
        )
    x = x if x.is_floating_point() else x.float()
    share = share.to(x.dtype).reshape(-1, *[1] * (x.ndim - 1))
    blended: Tensor = share * x + (1 - share) * x.roll(1, 0)
    return blended
