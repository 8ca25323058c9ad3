"""Training on blends of two samples, under the targets of both: mixup (Zhang et al., 2018), for methods that want it.

A wrong label is never seen alone, and is the harder to learn by heart.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from stepe.errors import InputError
from stepe.ledger import read_rows
from stepe.methods.base import Batch, Forward, Task
from stepe.randomness import Stream


class Blends:
    """Each sample of a batch is blended with the one before it, which the epoch's random order has put there.

    What share each sample has of its blend is drawn before the epoch, so that a CUDA graph can hold the loss.
    """

    def __init__(self, task: Task, alpha: float, *, at_least_half: bool = False):
        self._task, self._alpha, self._at_least_half = task, alpha, at_least_half
        self.share = torch.ones(task.n, device=task.device)

    def draw(self, epoch: int) -> None:
        """Draw the shares of an epoch from Beta(alpha, alpha)."""
        # The paper's formula has a share per pair; its code draws one for a whole batch.
        generator = np.random.default_rng(Stream.named(self._task.seed, "mixup", epoch).seed)
        share = generator.beta(self._alpha, self._alpha, self._task.n)
        if self._at_least_half:
            share = np.maximum(share, 1 - share)
        self.share.copy_(torch.from_numpy(share).float())

    def loss(self, forward: Forward, batch: Batch) -> Tensor:
        """The losses of the blends under both targets, each by its share, and by its own sample's weight."""
        share = read_rows(self.share, batch.index)
        outputs = forward(blend(batch.x, share))
        before = replace(batch, weight=None if batch.weight is None else batch.weight.roll(1, 0))
        return batch.mean(share * self._task.criterion(outputs, batch.target)) + before.mean(
            (1 - share) * self._task.criterion(outputs, batch.target.roll(1, 0))
        )

    def state_dict(self) -> dict[str, Any]:
        """The shares of the epoch."""
        return {"share": self.share}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore them."""
        self.share.copy_(state["share"])


def blend(x: Any, share: Tensor) -> Tensor:
    """Each sample of a batch by its share, and the one before it (the last, for the first) by the rest.

    >>> blend(torch.tensor([[0.0], [8.0]]), torch.tensor([0.5, 0.75]))
    tensor([[4.],
            [6.]])
    """
    if not isinstance(x, Tensor) or not (x.is_floating_point() or x.dtype == torch.uint8):
        found = str(x.dtype).removeprefix("torch.") + "s" if isinstance(x, Tensor) else f"a {type(x).__name__}"
        raise InputError(
            f"mixup blends inputs, which must be a tensor of numbers or of pixels, and these are {found}: for "
            "texts, codes and inputs of several parts choose another method, or step-e-plus with mixup=0"
        )
    x = x if x.is_floating_point() else x.float()
    share = share.to(x.dtype).reshape(-1, *[1] * (x.ndim - 1))
    blended: Tensor = share * x + (1 - share) * x.roll(1, 0)
    return blended
