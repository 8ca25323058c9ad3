"""Step-E+: the probe that says which labels to drop also says what to put in their place.

Each probe's probabilities go into a running guess, one row a sample. It ranks the labels; samples whose label is
dropped train on the guess instead, by how sure it is; kept labels are refined by it as the elimination proceeds. No
further pass over the data is needed. Every part can be switched off: with all of them off, this is Step-E.
"""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from stepe.errors import InputError
from stepe.loop.ledger import Ledger
from stepe.loop.plan import Plan
from stepe.loop.task import Batch, Forward, Task
from stepe.methods.mixing import Blends
from stepe.methods.step_e import StepwiseElimination
from stepe.methods.step_e_plus.correction import check_takes_probabilities, confidence, corrected
from stepe.methods.step_e_plus.prior import Prior, align, check_prior, class_prior

SELDOM = 3
"""epochs between probes of a model that was seen not to learn by heart: a running guess of its own changes slowly"""


@dataclass
class StepEPlus(StepwiseElimination):
    """Step-E on averaged weights, whose running guess corrects what is dropped and refines what is kept."""

    name: ClassVar[str] = "step-e-plus"
    summary: ClassVar[str] = "step-e, whose probe also corrects: dropped samples train on a running guess"
    paper: ClassVar[str] = "Step-E, and what the probe knows beyond it"
    needs_classes: ClassVar[bool] = True
    drops_a_margin: ClassVar[bool] = False
    """what is dropped in vain trains on its guess"""

    average: float | None = None
    """epochs over which weights are averaged for the model that is probed and tested; 0: off; ``None``: 0.85 where
    that model judges the samples it trains on, off where others judge them (``probe``)"""
    guess_memory: float | None = None
    """how much of the running guess is left when the next probe comes in; ``None``: 0.85 where the model judges the
    samples it trains on; of others' guesses, which need no such caution, so much after a sixtieth of the run"""
    prior: Prior = "none"
    """how often the classes occur, to which guesses are aligned (``stepe.methods.step_e_plus.prior``)"""
    correct: bool = True
    """train the dropped samples on the guess, by its confidence; else not at all"""
    refine: float | None = None
    """how much of a kept label the guess replaces once the ramp is done; ``None``: half of it where the model judges
    the samples it trains on, else nothing"""
    mixup: float = 0.2
    """train on blends of two samples, shares drawn from Beta(mixup, mixup), the larger for the first; 0: off"""
    cutmix: float = 0.0
    """of pictures: the share of those that have a window on another one instead of being blended with it"""

    def start(self, task: Task, ledger: Ledger) -> None:
        """Resolve the options."""
        self._check_options()
        super().start(task, ledger)
        self.averaging = self.settings.average
        check_prior(self.prior, task.classes)
        if self.correct or self.settings.refine:
            check_takes_probabilities(task.criterion, task.classes, task.device)
        self._blends = Blends(task, self.mixup, cut=self.cutmix, at_least_half=True) if self.mixup else None

    def _check_options(self) -> None:
        for name in ("average", "mixup"):
            number = getattr(self, name)
            if number is not None and not number >= 0:
                raise InputError(f"{name} is {number!r}; it must be 0 (off) or positive")
        for name in ("refine", "guess_memory", "cutmix"):
            number = getattr(self, name)
            if number is not None and not 0 <= number <= 1:
                raise InputError(f"{name} is {number!r}; it must be a share in [0, 1]")
        if self.cutmix and not self.mixup:
            raise InputError(f"cutmix is {self.cutmix}, a share of the blends, and mixup=0 has none")
        if self.softness and self.correct:
            raise InputError("softness trains on doubtful labels, and correct on guesses instead: choose one of them")

    @property
    def mixes_inputs(self) -> bool:  # type: ignore[override]
        """Whether blends are asked for."""
        return self.mixup > 0

    def wants_probe(self, epoch: int) -> bool:
        """As asked for; less often once a model that was watched may judge for itself."""
        judges_itself = self.task.probe == "auto" and self.automatic.judged_by != "others"
        if epoch < self.warmup_epochs or not judges_itself:
            return super().wants_probe(epoch)
        return (epoch - self.warmup_epochs) % max(SELDOM, self.probe_every) == 0

    def align(self, guess: Tensor) -> Tensor:
        """By the prior that was asked for."""
        return align(guess, class_prior(self.prior, self.task.labels, self.task.classes))

    def prepare(self, epoch: int) -> None:
        """Draw the shares of the blends."""
        if self._blends is not None:
            self._blends.draw(epoch)

    def plan(self, epoch: int, ledger: Ledger) -> Plan:
        """Given labels in the warm-up; then kept ones, refined, and guesses for the others."""
        plan, refine = super().plan(epoch, ledger), self.settings.refine
        if epoch < self.warmup_epochs or not (self.correct or refine):
            return plan
        guess, ramp = self.guess.of(ledger), self.drop_fraction.progress(epoch)
        believed = plan.kept if self.task.trusted is None else plan.kept & ~self.task.trusted.to(plan.kept.device)
        share = torch.where(believed, refine * ramp, 0.0).to(guess.device)[:, None]
        plan = replace(plan, target=corrected(self.task.labels, plan.kept, guess, share).to(ledger["guess"].dtype))
        if not self.correct:
            return plan
        weight = confidence(plan.kept, guess)
        if (shows := self.guess.shows(ledger)) is not None:  # whoever learns a guess about nothing is soon sure of it
            weight = torch.where(plan.kept.to(weight.device), weight, weight * shows.to(weight.device))
        return replace(plan, weight=weight, trains=(weight > 0).to(plan.kept.device))

    @property
    def stacks(self) -> bool:
        """Blends keep to their batch; whoever overrides the loss has to say whether theirs does."""
        return type(self).loss is StepEPlus.loss

    def loss(self, forward: Forward, batch: Batch) -> Tensor:
        """The criterion under the plan's targets, of blends where there are any."""
        if batch.target.is_floating_point():
            batch = replace(batch, target=batch.target.float())
        return super().loss(forward, batch) if self._blends is None else self._blends.loss(forward, batch)

    def state_dict(self) -> dict[str, Any]:
        """With the shares of the blends."""
        blends = {} if self._blends is None else {"blends": self._blends.state_dict()}
        return super().state_dict() | blends

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore them."""
        super().load_state_dict(state)
        if self._blends is not None:
            self._blends.load_state_dict(state["blends"])
