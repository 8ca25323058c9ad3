"""One-shot filtering: cut once, when the warm-up ends (section 4.3, *One-Shot*)."""

from dataclasses import dataclass
from typing import ClassVar

from stepe.loop.schedule import Schedule
from stepe.methods.defaults import Settings
from stepe.methods.eliminating import Eliminating, Parts


@dataclass
class OneShot(Eliminating):
    """Drop the top rho_max of the losses once, after the warm-up, and train on the rest.

    It probes once, so the ledger's scores stay as they were and every later epoch selects the same samples.
    """

    name: ClassVar[str] = "one-shot"
    summary: ClassVar[str] = "drop the top rho_max once, after the warm-up"
    paper: ClassVar[str] = "Step-E, section 4.3"

    def compose(self, settings: Settings) -> Parts:
        """Drop nothing, then all of it at once."""
        epochs = self.task.epochs
        return Parts(lambda rho_max, warmup: Schedule(rho_max, epochs, warmup, ramp_end=warmup))

    def wants_probe(self, epoch: int) -> bool:
        """Ask once, when the warm-up ends; where something is to be found out, before too."""
        return self.first_probe <= epoch <= self.warmup_epochs
