"""Learning rates that follow the run's progress, not the number of steps, which shrinks with the kept set."""

import math
from collections.abc import Callable
from typing import Any

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

RateShape = Callable[[float], float]
"""progress of the run in [0, 1] -> factor of the first learning rate"""


def cosine(progress: float) -> float:
    """Let the rate fall to zero along a cosine."""
    return (1 + math.cos(math.pi * progress)) / 2


def constant(progress: float) -> float:
    """Keep the first rate throughout."""
    return 1.0


class ProgressRate:
    """Sets each step's rate from a function of progress."""

    def __init__(self, optimizer: Optimizer, shape: RateShape):
        self.optimizer = optimizer
        self.shape = shape
        self.first = [group["lr"] for group in optimizer.param_groups]

    def before_step(self, progress: float) -> None:
        """Set the rate."""
        for group, first in zip(self.optimizer.param_groups, self.first, strict=True):
            group["lr"] = first * self.shape(progress)

    def after_step(self, progress: float) -> None:
        """Do nothing."""

    def state_dict(self) -> dict[str, Any]:
        """Return the first rates."""
        return {"first": self.first}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the first rates."""
        self.first = state["first"]


class TorchRate:
    """Keeps a torch scheduler in pace with the run.

    The scheduler was built for ``total`` steps: one an epoch, or one for each step of epochs of full length. It is
    advanced in proportion to progress, so that it ends where it should although epochs get shorter.
    """

    def __init__(self, scheduler: LRScheduler, total: int, *, last: int | None = None):
        self.scheduler, self.total, self.done = scheduler, total, 0
        # The last step of OneCycleLR and its like is the one before the run ends.
        self.last = total - 1 if last is None else last

    def before_step(self, progress: float) -> None:
        """Do nothing."""

    def after_step(self, progress: float) -> None:
        """Catch up with the run."""
        while self.done < min(math.floor(progress * self.total + 1e-9), self.last):
            self.scheduler.step()
            self.done += 1

    def state_dict(self) -> dict[str, Any]:
        """Return the scheduler's state and how often it stepped."""
        return {"scheduler": self.scheduler.state_dict(), "done": self.done}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore both."""
        self.scheduler.load_state_dict(state["scheduler"])
        self.done = state["done"]


Rate = ProgressRate | TorchRate
