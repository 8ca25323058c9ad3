"""Step-E, Stepwise Elimination: the paper's method (sections 3.3 and 3.4)."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from stepe.errors import InputError
from stepe.loop.ledger import Ledger
from stepe.loop.schedule import Schedule, Shape, make_schedule
from stepe.loop.task import Task
from stepe.methods.elimination import Elimination


@dataclass
class StepwiseElimination(Elimination):
    """Each epoch after the warm-up, probe all samples, keep the lowest 1 - rho_t, train on those.

    A drop is not for ever: a sample comes back when its score does, unless ``sticky``.
    """

    name: ClassVar[str] = "step-e"
    summary: ClassVar[str] = "drop the samples with the highest losses, a few more each epoch"
    paper: ClassVar[str] = "Step-E, sections 3.3 and 3.4"

    schedule: str | Shape = "auto"
    """how rho_t grows: auto (Eq. 2; ends early in short runs), linear, early, proportional (as long as the warm-up),
    or a function"""
    ramp_end: int | None = None
    """epoch at which rho_max is reached; ``None``: the schedule's own"""
    memory: float = 0.0
    """score <- memory * score + (1 - memory) * loss: how much the score remembers earlier probes"""
    sticky: bool = False
    """what was dropped stays dropped, as the paper's section 2.3 words it"""
    probe_every: int = 1
    """epochs from one probe to the next: scores get older, and epochs cheaper; Step-E+ takes no fewer than 3 where a
    model was watched (``probe="auto"``) and may judge for itself"""

    def start(self, task: Task, ledger: Ledger) -> None:
        """Resolve the options."""
        if not 0 <= self.memory < 1:
            raise InputError(f"memory is {self.memory!r}; it must lie in [0, 1)")
        if not isinstance(self.probe_every, int) or self.probe_every < 1:
            raise InputError(f"probe_every is {self.probe_every!r}; it must be a whole number of epochs, at least 1")
        super().start(task, ledger)

    def schedule_for(self, drop_max: float) -> Schedule:
        """The stepwise elimination schedule."""
        return make_schedule(
            self.schedule,
            drop_max=drop_max,
            epochs=self.task.epochs,
            warmup=self.warmup_epochs,
            ramp_end=self.settings.ramp_end,
        )

    def wants_probe(self, epoch: int) -> bool:
        """After the warm-up, and where something is to be found out, before too; every so many epochs."""
        return epoch >= self.first_probe and (epoch - self.first_probe) % self.probe_every == 0

    def scores(self, ledger: Ledger) -> Tensor:
        """A sticky drop is a score of infinity."""
        scores = super().scores(ledger)
        return torch.where(ledger["dropped"], torch.inf, scores) if self.sticky else scores
