"""Training on blends of two samples, under the targets of both: mixup (Zhang et al., 2018), cutmix (Yun et al., 2019).

A wrong label is never seen alone, and is the harder to learn by heart.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from stepe.errors import InputError
from stepe.loop.ledger import read_rows
from stepe.loop.randomness import Stream
from stepe.loop.task import Batch, Forward, Task

Before = Callable[[Tensor], Tensor]
"""rows -> for each the row that it is blended with"""


class Blends:
    """Blends each sample of a batch with the one before it, which the epoch's random order has put there.

    What share each sample has of its blend is drawn before the epoch, so that a CUDA graph can hold the loss. Of
    pictures, a share ``cut`` is not blended: they get a window through which the other one is seen.
    """

    def __init__(self, task: Task, alpha: float, *, cut: float = 0.0, at_least_half: bool = False):
        self._task, self._alpha, self._cut, self._at_least_half = task, alpha, cut, at_least_half
        self.share = torch.ones(task.n, device=task.device)
        self.window = torch.zeros(task.n, 3, device=task.device) if cut else None
        """side (0: none), row and column of the centre, as shares of height and width"""

    def draw(self, epoch: int) -> None:
        """Draw the shares of an epoch from Beta(alpha, alpha); those of windows are uniform."""
        # The paper's formula has a share per pair; its code draws one for a whole batch.
        generator = np.random.default_rng(Stream.named(self._task.seed, "mixup", epoch).seed)
        share = generator.beta(self._alpha, self._alpha, self._task.n)
        draws = generator.random((4, self._task.n)) if self.window is not None else None
        if draws is not None:
            share = np.where(draws[0] < self._cut, draws[1], share)
        if self._at_least_half:
            share = np.maximum(share, 1 - share)
        if draws is not None and self.window is not None:
            side = np.where(draws[0] < self._cut, np.sqrt(1 - share), 0)
            self.window.copy_(torch.from_numpy(np.column_stack([side, draws[2], draws[3]])).float())
        self.share.copy_(torch.from_numpy(share).float())

    def loss(self, forward: Forward, batch: Batch) -> Tensor:
        """Average the losses of the blends under both targets, each by its share, and by its own sample's weight."""
        share = read_rows(self.share, batch.index)
        if self.window is None:
            blended = blend(batch.x, share, batch.before)
        else:
            blended, share = blend_and_cut(batch.x, share, read_rows(self.window, batch.index), batch.before)
        outputs = forward(blended)
        before = replace(batch, weight=None if batch.weight is None else batch.before(batch.weight))
        return batch.mean(share * self._task.criterion(outputs, batch.target)) + before.mean(
            (1 - share) * self._task.criterion(outputs, batch.before(batch.target))
        )

    def state_dict(self) -> dict[str, Any]:
        """Save the shares of the epoch."""
        return {"share": self.share} | ({} if self.window is None else {"window": self.window})

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take up a saved state."""
        self.share.copy_(state["share"])
        if self.window is not None:
            self.window.copy_(state["window"])


def one_before(values: Tensor) -> Tensor:
    """Put every row in the place of the next one, and the last in that of the first."""
    return values.roll(1, 0)


def blend(x: Any, share: Tensor, before: Before = one_before) -> Tensor:
    """Blend each sample of a batch, by its share, with the one before it (the last, for the first), by the rest.

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
    blended: Tensor = share * x + (1 - share) * before(x)
    return blended


def blend_and_cut(x: Any, share: Tensor, window: Tensor, before: Before = one_before) -> tuple[Tensor, Tensor]:
    """Put windows on the pictures before them into pictures, blend where there is none, and say what share each has."""
    if not isinstance(x, Tensor) or x.ndim != 4:
        raise InputError(
            "cutmix cuts windows into pictures, which are tensors of shape (n, channels, height, width): use cutmix=0"
        )
    height, width = x.shape[2:]
    side, row, column = window.unbind(1)

    def within(size: int, centre: Tensor) -> Tensor:
        pixels = torch.arange(size, device=x.device) + 0.5
        return 2 * (pixels - size * centre[:, None]).abs() < size * side[:, None]

    seen = within(height, row)[:, :, None] & within(width, column)[:, None, :]
    whole = side > 0
    blended = blend(x, torch.where(whole, torch.ones_like(share), share), before)
    shown = torch.where(seen[:, None], before(x).to(blended.dtype), blended)
    return shown, torch.where(whole, 1 - seen.to(share.dtype).mean((1, 2)), share)
