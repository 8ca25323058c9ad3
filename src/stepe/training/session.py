"""The session: what every training shares, in any loop. It begins each epoch, ends it, and keeps the history.

A loop asks :meth:`Session.wants_probe`, hands what it saw to :meth:`Session.observe`, trains on the plan that
:meth:`Session.begin_epoch` gives, and calls :meth:`Session.end_epoch`. After the last epoch it probes once more.
"""

import math
import time
from dataclasses import asdict, replace
from typing import Any

import torch
from torch import Tensor

from stepe.errors import RunError
from stepe.loop.labels import with_residuals
from stepe.loop.ledger import Ledger, Observation
from stepe.loop.plan import Plan
from stepe.methods import Method, Task

Row = dict[str, Any]
"""one line of the history"""


class Session:
    """A training as its loop sees it: a method that learns from probes and plans epochs, and what came of it so far."""

    def __init__(self, task: Task, method: Method, ledger: Ledger):
        self.task, self.method, self.ledger = task, method, ledger
        self.history: list[Row] = []
        self.plan: Plan | None = None
        """what the current epoch trains on; ``None`` before the first, between epochs, and after the last"""
        self._row: Row = {}
        self._started = time.perf_counter()

    @property
    def epoch(self) -> int:
        """The epoch that is on, or comes next."""
        return len(self.history)

    def wants_probe(self) -> bool:
        """Say whether the next epoch begins with a probe; the seconds of that epoch count from here."""
        self._started = time.perf_counter()
        self._row = {"epoch": self.epoch, "probed": self.method.wants_probe(self.epoch)}
        return bool(self._row["probed"])

    def observe(self, epoch: int, seen: Observation) -> None:
        """Take in what a probe before an epoch, or after the last, has seen."""
        if not bool(torch.isfinite(seen.loss).any()):
            raise RunError(diverged(f"every loss is NaN or infinite before epoch {epoch}"))
        self.method.observe(epoch, with_residuals(seen, self.task.labels), self.ledger)

    def begin_epoch(self) -> Plan:
        """Plan the epoch, and write down which samples it drops."""
        probe_seconds = time.perf_counter() - self._started
        plan = weighted(self.method.plan(self.epoch, self.ledger), self.task.weight)
        if not bool((plan.kept if plan.trains is None else plan.trains).any()):
            raise RunError(f"epoch {self.epoch} would train on nothing; lower rho_max (it dropped everything)")
        self.method.prepare(self.epoch)
        kept = int(plan.kept.sum())
        self._row |= {
            "drop_fraction": plan.drop_fraction,
            "kept": kept,
            "dropped": self.task.n - kept,
            **asdict(self.ledger.record_selection(plan.kept)),
            "cut": plan.cut if math.isfinite(plan.cut) else None,
            "nonfinite": plan.nonfinite,
            "shortfall": plan.shortfall,
            "probe_seconds": probe_seconds,
        }
        self.plan = plan
        return plan

    def end_epoch(self, **measured: Any) -> Row:
        """Write the epoch into the history, with what its loop measured; the row may be added to."""
        row = self._row | measured | {"seconds": time.perf_counter() - self._started}
        self.history.append(row)
        self.plan = None
        return row


def weighted(plan: Plan, weight: Tensor | None) -> Plan:
    """Have the samples of a plan count as much as their owner says, besides what the method says."""
    if weight is None:
        return plan
    return replace(plan, weight=weight if plan.weight is None else plan.weight * weight.to(plan.weight.device))


def diverged(what: str) -> str:
    """Say that a training diverged, and what helps."""
    return f"{what}; lower the learning rate, or look for NaN and infinite values in the inputs"
