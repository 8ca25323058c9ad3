"""Self-paced learning: start from the easy samples and take in more, in the end all (section 4.3, *Self-Paced*)."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

from stepe.loop.ledger import Ledger
from stepe.loop.plan import Plan
from stepe.methods.base import Method
from stepe.options import Option
from stepe.options.method import View as ViewOption


@dataclass
class SelfPaced(Method):
    """Keep the lowest ``keep_start`` of the losses at first, growing linearly to all at ``reach`` of the run."""

    name: ClassVar[str] = "self-paced"
    summary: ClassVar[str] = "easy samples first, in the end all of them"
    paper: ClassVar[str] = "Kumar et al., 2010; Step-E, section 4.3"

    keep_start: Annotated[float, Option("Share of the samples that is kept at first.", above=0, max=1)] = 0.5
    reach: Annotated[float, Option("Share of the run after which all are kept.", above=0, max=1)] = 0.5
    view: ViewOption = "augmented"

    def keep_fraction(self, epoch: int) -> float:
        """Return the share of the samples that train in an epoch."""
        progress = min(1.0, epoch / (self.reach * self.task.epochs))
        return self.keep_start + (1 - self.keep_start) * progress

    def wants_probe(self, epoch: int) -> bool:
        """Ask before every epoch."""
        return True

    def plan(self, epoch: int, ledger: Ledger) -> Plan:
        """Plan an epoch on the samples with the lowest losses."""
        return self.keep_lowest(epoch, ledger["score"], 1 - self.keep_fraction(epoch))
