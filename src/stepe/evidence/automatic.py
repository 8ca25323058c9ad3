"""What a run finds out for itself: when its warm-up should end, and how many labels are wrong.

No clean labels are needed, and no second training: both come from the probes of the warm-up and after.
"""

from dataclasses import asdict, dataclass
from typing import Any

from torch import Tensor

from stepe.beliefs.rate import Rate
from stepe.evidence.noise_rate import estimate_rate
from stepe.loop.ledger import JudgedBy, Ledger, Observation

SHORTEST_WARMUP = 3
"""epochs before which nothing is known"""
BETTER = 0.99
"""a loss that is not below so much of the best one has stopped falling"""
PATIENCE = 2
"""so many epochs in a row"""
SETTLED = 0.5
"""of the ramp, after which a model that judges what it trains on has settled; chosen on three runs of CIFAR-N, by their
true rates (docs/research/step-e-plus.md)"""


@dataclass
class Automatic:
    """What is to be found out, and what is known by now."""

    finds_rate: bool
    finds_warmup: bool
    estimate: Rate | None = None
    judged_by: JudgedBy = "itself"
    """who judged in the last probe"""
    unsure: float | None = None
    """share of the samples on which several judges differed in the last probe"""
    doubt: float | None = None
    """the largest such share since the warm-up: elimination makes models agree, rightly or not"""
    settled: bool = False
    """whether a model that judges what it trains on knows by now what it can know of the noise"""
    best_loss: float = float("inf")
    stalled: int = 0

    def __bool__(self) -> bool:
        return self.finds_rate or self.finds_warmup

    def note(self, seen: Observation) -> None:
        """Take in what a probe says about itself."""
        if (self.judged_by == "others") != (seen.judged_by == "others"):  # losses of another judge are others
            self.best_loss, self.stalled = float("inf"), 0
        self.judged_by = seen.judged_by
        self.unsure = None if seen.disagreed is None else float(seen.disagreed.double().mean())

    def ends_warmup(self, epoch: int, ledger: Ledger) -> bool:
        """Say whether the losses have stopped falling: from now on, out-of-fold, only noise would be learned."""
        loss = float(ledger["loss"].nanmean())
        self.stalled = 0 if loss < BETTER * self.best_loss else self.stalled + 1
        self.best_loss = min(self.best_loss, loss)
        return self.finds_warmup and epoch >= SHORTEST_WARMUP and self.stalled >= PATIENCE

    def rate(self, ledger: Ledger, labels: Tensor, *, refined: bool = False) -> Rate:
        """Return the share of wrong labels: what was learned of it, or else what the ledger says now."""
        return self._estimated(ledger, labels, refined=refined) if self.estimate is None else self.estimate

    def learn(self, ledger: Ledger, labels: Tensor, *, refined: bool = False) -> Rate:
        """Take the rate from the probe that just came in, to go by it until something better is known.

        Guesses that may know labels by heart are taken once, when the warm-up is over and something is known. Others
        get better and better; those of a model that trains on ``refined`` labels do until it has settled: what is kept
        by mistake is learned in the end.
        """
        leaning = refined and self.judged_by != "others"
        gets_better = not self.settled if leaning else self.judged_by != "itself"
        if self.estimate is None or gets_better or self.estimate.is_unknown:
            self.estimate = self._estimated(ledger, labels, refined=refined)
        self.doubt = self._largest_doubt()
        return self.estimate

    def _estimated(self, ledger: Ledger, labels: Tensor, *, refined: bool) -> Rate:
        leaning = refined and self.judged_by != "others"
        doubt = None if leaning else self._largest_doubt()
        return estimate_rate(ledger["guess"], labels, unsure=self.unsure, doubt=doubt, leaning=leaning)

    def _largest_doubt(self) -> float | None:
        return self.doubt if self.unsure is None else max(self.unsure, self.doubt or 0.0)

    def state_dict(self) -> dict[str, Any]:
        """Return all that was found out."""
        return asdict(self)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take up a saved state."""
        for name, value in state.items():
            setattr(self, name, Rate(**value) if name == "estimate" and value is not None else value)
