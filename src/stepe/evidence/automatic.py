"""What a run finds out for itself: when its warm-up should end, and how many labels are wrong.

No clean labels are needed, and no second training: both come from the probes of the warm-up and after.
"""

from dataclasses import asdict, dataclass
from typing import Any

from torch import Tensor

from stepe.beliefs.rate import Rate
from stepe.evidence.noise_rate import estimate_rate
from stepe.loop.ledger import Ledger, Observation

SHORTEST_WARMUP = 3
"""epochs before which nothing is known"""
BETTER = 0.99
"""a loss that is not below so much of the best one has stopped falling"""
PATIENCE = 2
"""so many epochs in a row"""
SETTLED = 0.5
"""of the ramp, after which a model that judges what it trains on has settled; chosen on three runs of CIFAR-N, by their
true rates (docs/step-e-plus.md)"""


@dataclass
class Automatic:
    """What is to be found out, and what is known by now."""

    finds_rate: bool
    finds_warmup: bool
    estimate: Rate | None = None
    unspoilt: bool = False
    """whether the last probe came from models that have not learned the labels by heart"""
    unsure: float | None = None
    """share of the samples on which several probers differed in the last probe"""
    doubt: float | None = None
    """the largest such share since the warm-up: elimination makes models agree, rightly or not"""
    is_new: bool = False
    """whether a probe came in of which nothing was made yet"""
    settled: bool = False
    """whether a model that judges what it trains on knows by now what it can know of the noise"""
    best_loss: float = float("inf")
    stalled: int = 0

    def __bool__(self) -> bool:
        return self.finds_rate or self.finds_warmup

    def note(self, seen: Observation) -> None:
        """What a probe says about itself."""
        if (self.unsure is None) != (seen.unsure is None):  # losses of another judge are others
            self.best_loss, self.stalled = float("inf"), 0
        self.is_new, self.unspoilt = True, seen.unspoilt
        self.unsure = None if seen.unsure is None else float(seen.unsure.double().mean())

    def ends_warmup(self, epoch: int, ledger: Ledger) -> bool:
        """Whether the losses have stopped falling: from now on, out-of-fold, only noise would be learned."""
        loss = float(ledger["loss"].nanmean())
        self.stalled = 0 if loss < BETTER * self.best_loss else self.stalled + 1
        self.best_loss = min(self.best_loss, loss)
        return self.finds_warmup and epoch >= SHORTEST_WARMUP and self.stalled >= PATIENCE

    def rate(self, ledger: Ledger, labels: Tensor, *, refined: bool = False) -> Rate:
        """The share of wrong labels. Asking leaves no trace: whoever only looks must not change what is trained.

        Guesses that may be spoilt are taken once, when the warm-up is over and something is known: later, labels are
        learned by heart. Others get better and better; those of a model that trains on ``refined`` labels do until
        it has settled: what is kept by mistake is learned in the end.
        """
        leaning = refined and self.unsure is None
        if self.estimate is not None:
            gets_better = not self.settled if leaning else self.unspoilt
            if not (self.is_new and (gets_better or self.estimate.is_unknown)):
                return self.estimate
        doubt = None if leaning else self._largest_doubt()
        return estimate_rate(ledger["guess"], labels, unsure=self.unsure, doubt=doubt, leaning=leaning)

    def take(self, ledger: Ledger, labels: Tensor, *, refined: bool = False) -> Rate:
        """The same, to be gone by until something better is known."""
        self.estimate = self.rate(ledger, labels, refined=refined)
        self.doubt, self.is_new = self._largest_doubt(), False
        return self.estimate

    def _largest_doubt(self) -> float | None:
        return self.doubt if self.unsure is None else max(self.unsure, self.doubt or 0.0)

    def state_dict(self) -> dict[str, Any]:
        """All of it."""
        return asdict(self)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take it up again."""
        for name, value in state.items():
            setattr(self, name, Rate(**value) if name == "estimate" and value is not None else value)
