"""How many samples an epoch drops: none in the warm-up, then a growing share (sections 3.3 and 3.4)."""

from collections.abc import Callable
from typing import Any

from stepe.beliefs.rate import Rate
from stepe.evidence.automatic import SETTLED, Automatic
from stepe.evidence.running_guess import RunningGuess
from stepe.loop.ledger import Ledger
from stepe.loop.schedule import Schedule
from stepe.loop.task import Task

MakeSchedule = Callable[[float, int], Schedule]
"""(rho_max, epochs of the warm-up) -> the share to drop in each epoch"""


class Dropping:
    """The warm-up and the ramp. Both may be found out in the run: what a probe teaches moves them."""

    def __init__(
        self,
        task: Task,
        automatic: Automatic,
        make_schedule: MakeSchedule,
        *,
        rho_max: float | None,
        warmup: int,
        rho_max_for: Callable[[Rate], float],
    ):
        self.task, self.automatic = task, automatic
        self.warmup = warmup
        self._make_schedule, self._rho_max_for = make_schedule, rho_max_for
        self._take(rho_max or 0.0)

    def _take(self, rho_max: float) -> None:
        self.rho_max = rho_max
        self.share = self._make_schedule(rho_max, self.warmup)

    def end_warmup(self, epoch: int, ledger: Ledger) -> None:
        """End the warm-up if its end is to be found out, and the losses have stopped falling."""
        if self.automatic and epoch < self.warmup and self.automatic.ends_warmup(epoch, ledger):
            self.warmup = epoch
            self._take(self.rho_max)

    def learn_rate(self, epoch: int, ledger: Ledger, guess: RunningGuess) -> None:
        """Once the warm-up is over, take the rate of wrong labels from the running guess.

        rho_max follows it, but for the last probe, after which nothing is dropped.
        """
        if epoch < self.warmup:
            return
        found = guess.learn_rate(ledger)
        self.automatic.settled = self.share.progress(epoch) >= SETTLED
        if self.automatic.finds_rate and epoch < self.task.epochs:
            self._take(self._rho_max_for(found))

    def state_dict(self) -> dict[str, Any]:
        """Save what was found out, and what it will be found out from."""
        return {"rho_max": self.rho_max, "warmup": self.warmup, "automatic": self.automatic.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take up a saved state."""
        self.warmup = state["warmup"]
        self.automatic.load_state_dict(state["automatic"])
        self._take(state["rho_max"])
