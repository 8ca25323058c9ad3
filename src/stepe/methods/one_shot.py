"""One-shot filtering: cut once, when the warm-up ends (section 4.3, *One-Shot*)."""

from dataclasses import dataclass
from typing import ClassVar

from stepe.loop.schedule import Schedule
from stepe.methods.elimination import Elimination


@dataclass
class OneShot(Elimination):
    """Drop the top rho_max of the losses once, after the warm-up, and train on the rest.

    It probes once, so the ledger's scores stay as they were and every later epoch selects the same samples.
    """

    name: ClassVar[str] = "one-shot"
    summary: ClassVar[str] = "drop the top rho_max once, after the warm-up"
    paper: ClassVar[str] = "Step-E, section 4.3"

    def schedule_for(self, drop_max: float) -> Schedule:
        """Nothing, then all of it at once."""
        return Schedule(drop_max, self.task.epochs, self.warmup_epochs, ramp_end=self.warmup_epochs)

    def wants_probe(self, epoch: int) -> bool:
        """Once, when the warm-up ends; where something is to be found out, before too."""
        return self.first_probe <= epoch <= self.warmup_epochs
