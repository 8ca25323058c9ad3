"""Self-paced learning: start from the easy samples and take in more, in the end all (section 4.3, *Self-Paced*)."""

from dataclasses import dataclass
from typing import ClassVar

from stepe.errors import InputError
from stepe.loop.ledger import Ledger
from stepe.loop.plan import Plan
from stepe.loop.task import Task, View
from stepe.methods.base import Method


@dataclass
class SelfPaced(Method):
    """Keep the lowest ``keep_start`` of the losses at first, growing linearly to all at ``reach`` of the run."""

    name: ClassVar[str] = "self-paced"
    summary: ClassVar[str] = "easy samples first, in the end all of them"
    paper: ClassVar[str] = "Kumar et al., 2010; Step-E, section 4.3"

    keep_start: float = 0.5
    reach: float = 0.5
    view: View = "augmented"

    def start(self, task: Task, ledger: Ledger) -> None:
        """Check the pace."""
        super().start(task, ledger)
        if not 0 < self.keep_start <= 1 or not 0 < self.reach <= 1:
            raise InputError(f"keep_start is {self.keep_start!r} and reach is {self.reach!r}; both must lie in (0, 1]")

    def keep_fraction(self, epoch: int) -> float:
        """Share of the samples that train in an epoch."""
        progress = min(1.0, epoch / (self.reach * self.task.epochs))
        return self.keep_start + (1 - self.keep_start) * progress

    def wants_probe(self, epoch: int) -> bool:
        """Always."""
        return True

    def plan(self, epoch: int, ledger: Ledger) -> Plan:
        """The samples with the lowest losses."""
        return self.keep_lowest(epoch, ledger["score"], 1 - self.keep_fraction(epoch))
