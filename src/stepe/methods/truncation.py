"""Loss truncation: per-sample losses clipped at a fixed threshold (section 4.3, *Truncation*)."""

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import torch
from torch import Tensor

from stepe.errors import InputError
from stepe.loop.ledger import Ledger, Observation
from stepe.loop.selection import select
from stepe.loop.task import Batch, Forward, Task
from stepe.methods.base import Method
from stepe.methods.defaults import resolve_rho_max
from stepe.options import Option
from stepe.options.method import KnownRhoMax
from stepe.options.method import View as ViewOption


@dataclass
class Truncation(Method):
    """Train on ``mean(min(loss, tau))``; tau cuts off the top rho_max of the losses in an initial epoch.

    The paper takes tau before any training (``threshold="untrained"``), and collapses; after one epoch
    (``"first-epoch"``) it does not.
    """

    name: ClassVar[str] = "truncation"
    summary: ClassVar[str] = "per-sample losses clipped at a threshold fixed early"
    paper: ClassVar[str] = "Step-E, section 4.3"

    rho_max: KnownRhoMax = None
    threshold: Annotated[
        Literal["untrained", "first-epoch"],
        Option("When the losses are taken: before any training, as in the paper, or after one epoch."),
    ] = "untrained"
    view: ViewOption = "augmented"

    def resolved(self, task: Task) -> dict[str, Any]:
        """Name every option, with the share that follows from the noise rate."""
        return super().resolved(task) | {"rho_max": resolve_rho_max(self.rho_max, task.noise_rate)}

    def start(self, task: Task, ledger: Ledger) -> None:
        """Resolve rho_max; the threshold is open until its probe."""
        super().start(task, ledger)
        if self.threshold == "first-epoch" and task.epochs == 1:
            raise InputError("threshold='first-epoch' needs 2 epochs or more and this run has 1; use 'untrained'")
        rho_max = resolve_rho_max(self.rho_max, task.noise_rate)
        if rho_max is None:
            raise InputError(
                "rho_max is missing, and truncation cannot find it out: give the share of the labels that may be wrong "
                "(rho_max=0.2, or --rho-max 0.2), or noise_rate, from which it follows"
            )
        self._rho_max = rho_max
        self._tau = torch.tensor(float("inf"), device=task.device)

    def wants_probe(self, epoch: int) -> bool:
        """Ask once: before training, or after the first epoch."""
        return epoch == (0 if self.threshold == "untrained" else 1)

    def observe(self, epoch: int, seen: Observation, ledger: Ledger) -> None:
        """Take in a probe; the threshold is set from the one that was asked for."""
        super().observe(epoch, seen, ledger)
        if self.wants_probe(epoch):
            self._tau.fill_(select(ledger["loss"], self._rho_max).cut)

    def loss(self, forward: Forward, batch: Batch) -> Tensor:
        """Average min(loss, tau): the gradient of a clipped sample is zero."""
        losses = self.task.criterion(forward(batch.x), batch.target)
        return batch.mean(torch.minimum(losses, self._tau.to(losses)))

    def state_dict(self) -> dict[str, Any]:
        """Save rho_max and the threshold."""
        return {"rho_max": self._rho_max, "tau": self._tau}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take up a saved state."""
        self._rho_max = state["rho_max"]
        self._tau.copy_(state["tau"])
