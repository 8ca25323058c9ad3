"""What Step-E and one-shot filtering share: a warm-up, a schedule of drop fractions, a selection by score."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from stepe.errors import InputError
from stepe.ledger import Ledger
from stepe.methods.base import Method, Task, View, resolve_warmup
from stepe.noise_rate import resolve_drop_max
from stepe.plan import Plan
from stepe.schedule import Schedule, check_epochs
from stepe.selection import Selection, select, soften


@dataclass
class Elimination(Method):
    """Keep the lowest 1 - rho_t of the scores; a subclass says when to probe and how rho_t grows."""

    rho_max: float | None = None
    """largest fraction ever dropped; ``None``: from the known noise rate"""
    warmup: int | None = None
    """epochs before anything is dropped; ``None``: a sixth of the run"""
    softness: float = 0.0
    """down-weight instead of dropping, with this temperature in units of loss; 0 drops"""
    min_keep: float = 0.0
    """share of every group (class, unless groups are given) that is never dropped; 0 is off"""
    view: View = "augmented"

    def start(self, task: Task, ledger: Ledger) -> None:
        """Resolve rho_max and the warm-up."""
        super().start(task, ledger)
        self.warmup_epochs = resolve_warmup(self.warmup, task.epochs)
        check_epochs(task.epochs, self.warmup_epochs)
        if not 0 <= self.min_keep <= 1:
            raise InputError(f"min_keep is {self.min_keep!r}; it must be a share in [0, 1]")
        if not self.softness >= 0:
            raise InputError(f"softness is {self.softness!r}; it must be 0 (drop) or a positive number of loss units")
        self._take_drop_max(resolve_drop_max(self.rho_max, task.noise_rate))

    def _take_drop_max(self, drop_max: float) -> None:
        self.drop_max = drop_max
        self.drop_fraction = self.schedule_for(drop_max)

    @abstractmethod
    def schedule_for(self, drop_max: float) -> Schedule:
        """How the drop fraction grows to ``drop_max``."""

    def scores(self, ledger: Ledger) -> Tensor:
        """What the selection ranks by."""
        return ledger["score"]

    def select(self, drop_fraction: float, ledger: Ledger) -> Selection:
        """The selection rule on the scores, with the group floor if one is set."""
        groups = self.task.labels if self.task.groups is None else self.task.groups
        return select(self.scores(ledger), drop_fraction, groups=groups.to(ledger.device), min_keep=self.min_keep)

    def plan(self, epoch: int, ledger: Ledger) -> Plan:
        """All samples in the warm-up, then those with the lowest scores."""
        if epoch < self.warmup_epochs:
            return super().plan(epoch, ledger)
        drop_fraction = self.drop_fraction(epoch)
        chosen = self.select(drop_fraction, ledger)
        weight = soften(self.scores(ledger), chosen, self.softness) if self.softness > 0 else None
        return Plan(
            epoch,
            self.task.epochs,
            chosen.kept,
            self.task.seed,
            trains=None if weight is None else weight > 0,
            weight=weight,
            drop_fraction=drop_fraction,
            cut=chosen.cut,
            nonfinite=int(torch.count_nonzero(~torch.isfinite(ledger["loss"]))),
            shortfall=chosen.shortfall,
        )

    def state_dict(self) -> dict[str, Any]:
        """The resolved rho_max."""
        return {"drop_max": self.drop_max}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the resolved rho_max."""
        self._take_drop_max(state["drop_max"])
