"""How many samples an epoch drops: none in the warm-up, then a growing share (sections 3.3 and 3.4)."""

from collections.abc import Callable
from typing import Any

from stepe.loop.ledger import JudgedBy, Ledger
from stepe.loop.schedule import Schedule

MakeSchedule = Callable[[float, int], Schedule]
"""(rho_max, epochs of the warm-up) -> the share to drop in each epoch"""

SHORTEST_WARMUP = 3
"""epochs before which nothing is known"""
BETTER = 0.99
"""a loss that is not below so much of the best one has stopped falling"""
PATIENCE = 2
"""so many epochs in a row"""


class Dropping:
    """The warm-up and the ramp. Both may be found out in the run: what a probe teaches moves them."""

    def __init__(
        self,
        make_schedule: MakeSchedule,
        *,
        rho_max: float | None,
        warmup: int,
        finds_warmup: bool,
    ):
        self.warmup, self.finds_rate, self.finds_warmup = warmup, rho_max is None, finds_warmup
        self._make_schedule = make_schedule
        self.judged_by: JudgedBy = "itself"
        self._best_loss, self._stalled = float("inf"), 0
        self.take(rho_max or 0.0)

    def take(self, rho_max: float) -> None:
        """Drop so many at most from now on."""
        self.rho_max = rho_max
        self.share = self._make_schedule(rho_max, self.warmup)

    def end_warmup(self, epoch: int, ledger: Ledger, judged_by: JudgedBy) -> None:
        """End the warm-up, if its end is to be found out, once the losses have stopped falling.

        From then on, of samples that their judges have not seen, only noise would be learned.
        """
        if (self.judged_by == "others") != (judged_by == "others"):  # losses of another judge are others
            self._best_loss, self._stalled = float("inf"), 0
        self.judged_by = judged_by
        if not self.finds_warmup or epoch >= self.warmup:
            return
        loss = float(ledger["loss"].nanmean())
        self._stalled = 0 if loss < BETTER * self._best_loss else self._stalled + 1
        self._best_loss = min(self._best_loss, loss)
        if epoch >= SHORTEST_WARMUP and self._stalled >= PATIENCE:
            self.warmup = epoch
            self.take(self.rho_max)

    def state_dict(self) -> dict[str, Any]:
        """Save what was found out, and what it will be found out from."""
        names = ("warmup", "rho_max", "judged_by", "_best_loss", "_stalled")
        return {name.removeprefix("_"): getattr(self, name) for name in names}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take up a saved state."""
        self.warmup, self.judged_by = state["warmup"], state["judged_by"]
        self._best_loss, self._stalled = state["best_loss"], state["stalled"]
        self.take(state["rho_max"])
