"""Margins: samples whose label loses to another class over the first half of the run are left out of the second.

Pleiss et al., *Identifying Mislabeled Data using the Area Under the Margin Ranking*, 2020. A single late loss goes
stale as labels are learned by heart; a mean over the training does not. The authors find their threshold by giving some
samples a class of their own, which takes a network with one more output, and train anew without what lies below it;
here the threshold is 0, or follows from the noise rate, and the training goes on.
"""

from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar

import torch
from torch import Tensor

from stepe.beliefs.rate import CAP
from stepe.loop.ledger import Ledger, Observation, read_rows, write_rows
from stepe.loop.plan import Plan
from stepe.loop.probe import margins
from stepe.loop.task import Batch, Forward, Task
from stepe.methods.defaults import resolve_rho_max
from stepe.methods.plain import Plain
from stepe.methods.robust_loss import check_logits
from stepe.options import Option


@dataclass
class Margins(Plain):
    """Score by the mean margin (logit of the label minus the largest other logit) over the training steps."""

    name: ClassVar[str] = "margins"
    summary: ClassVar[str] = "leaves out the samples whose margin was low over the first half (AUM)"
    paper: ClassVar[str] = "Pleiss et al., 2020"
    needs_classes: ClassVar[bool] = True

    rho_max: Annotated[
        float | None,
        Option(
            "Share of the samples that is left out.",
            default="`noise_rate` and a margin where that is known, else the samples whose mean margin is negative",
            min=0,
            below=1,
        ),
    ] = None
    until: Annotated[
        float,
        Option(
            "Share of the run over which margins are measured; the paper stops before the learning rate falls, at "
            "half. 1 ranks only.",
            above=0,
            max=1,
        ),
    ] = 0.5

    def resolved(self, task: Task) -> dict[str, Any]:
        """Name every option, with the share that follows from the noise rate."""
        return super().resolved(task) | {"rho_max": resolve_rho_max(self.rho_max, task.noise_rate)}

    def start(self, task: Task, ledger: Ledger) -> None:
        """Declare the sum of the margins and their number, where the loss is computed."""
        super().start(task, ledger)
        self._rho_max = resolve_rho_max(self.rho_max, task.noise_rate)
        self.warmup_epochs = max(1, round(self.until * task.epochs))
        self._margins = ledger.add_column("margins", torch.float32, 0.0, width=2, device=task.device)
        # A number on the device: a graph holds the loss of both halves.
        self._measuring = torch.ones((), device=task.device)

    def written_columns(self) -> list[Tensor]:
        """Return the margins."""
        return [self._margins]

    def plan(self, epoch: int, ledger: Ledger) -> Plan:
        """Plan an epoch on all samples, then on those whose margins were not too low."""
        if epoch < self.warmup_epochs:
            return super().plan(epoch, ledger)
        scores = self._scores(ledger)
        # Where most margins are negative, hardly anything was learned: they are no reason to leave everything out.
        share = min(CAP, float((scores > 0).double().mean())) if self._rho_max is None else self._rho_max
        return self.keep_lowest(epoch, scores, share)

    def prepare(self, epoch: int) -> None:
        """Measure margins in the first half."""
        self._measuring.fill_(float(epoch < self.warmup_epochs))

    def loss(self, forward: Forward, batch: Batch) -> Tensor:
        """Take the criterion's loss; the margins are measured by the way."""
        outputs = forward(batch.x)
        check_logits(outputs, self.task)
        margin = margins(outputs.detach(), batch.y)
        new = self._measuring.to(margin) * torch.stack([margin, torch.ones_like(margin)], 1)
        write_rows(self._margins, batch.index, read_rows(self._margins, batch.index) + new)
        return batch.mean(self.task.criterion(outputs, batch.target))

    def observe(self, epoch: int, seen: Observation, ledger: Ledger) -> None:
        """Take in the probe, but judge the labels by their margins in training, before they were learned by heart."""
        margin = -self._scores(ledger)
        super().observe(epoch, replace(seen, margin=margin, given_probability=margin.sigmoid()), ledger)
        ledger["score"] = -margin

    def _scores(self, ledger: Ledger) -> Tensor:
        total, times = ledger["margins"].to(ledger.device).unbind(1)
        return -total / times.clamp(min=1)

    def state_dict(self) -> dict[str, Any]:
        """Save which half it is, for runs that are taken up within an epoch."""
        return {"measuring": self._measuring}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take up a saved state."""
        self._measuring.copy_(state["measuring"])
