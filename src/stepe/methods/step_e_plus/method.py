"""Step-E+: the probe that says which labels to drop also says what to put in their place.

Each probe's probabilities go into a running guess, one row a sample. It ranks the labels; samples whose label is
dropped train on the guess instead, by how sure it is; kept labels are refined by it as the elimination proceeds. No
further pass over the data is needed. Every part can be switched off: with all of them off, this is Step-E.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

from stepe.errors import InputError
from stepe.loop.ledger import Ledger
from stepe.loop.task import Task
from stepe.methods.defaults import Settings
from stepe.methods.eliminating import Parts
from stepe.methods.parts.correction import check_takes_probabilities
from stepe.methods.parts.mixing import Blends
from stepe.methods.step_e import StepwiseElimination
from stepe.methods.step_e_plus.prior import align, check_prior, class_prior
from stepe.options import method as option

EPOCHS_BETWEEN_PROBES = 3
"""epochs between probes of a model that was seen not to learn by heart: a running guess of its own changes slowly"""


@dataclass
class StepEPlus(StepwiseElimination):
    """Run Step-E on averaged weights; its running guess corrects what is dropped and refines what is kept."""

    name: ClassVar[str] = "step-e-plus"
    summary: ClassVar[str] = "step-e, whose probe also corrects: dropped samples train on a running guess"
    paper: ClassVar[str] = "Step-E, and what the probe knows beyond it"
    needs_classes: ClassVar[bool] = True
    corrects: ClassVar[bool] = True

    average: option.Average = None
    prior: option.Prior = "none"
    correct: option.Correct = True
    refine: option.Refine = None
    mixup: option.Blend = 0.2
    cutmix: option.Cutmix = 0.0

    def start(self, task: Task, ledger: Ledger) -> None:
        """Resolve the options."""
        if self.cutmix and not self.mixup:
            raise InputError(f"cutmix is {self.cutmix}, a share of the blends, and mixup=0 has none")
        if self.softness and self.correct:
            raise InputError("softness trains on doubtful labels, and correct on guesses instead: choose one of them")
        super().start(task, ledger)
        check_prior(self.prior, task.classes)
        if self.correction is not None:
            check_takes_probabilities(task.criterion, task.classes, task.device)

    def compose(self, settings: Settings) -> Parts:
        """Add correction, blends and the prior to the stepwise elimination."""
        task = self.task
        return replace(
            super().compose(settings),
            align=lambda guess: align(guess, class_prior(self.prior, task.labels, task.classes)),
            correct=self.correct,
            mixing=Blends(task, self.mixup, cut=self.cutmix, at_least_half=True) if self.mixup else None,
        )

    @property
    def mixes_inputs(self) -> bool:  # type: ignore[override]
        """Whether blends are asked for."""
        return self.mixup > 0

    def wants_probe(self, epoch: int) -> bool:
        """Ask as Step-E does; less often once a model that did not learn by heart may judge for itself."""
        judges_itself = self.task.probe == "auto" and self.dropping.judged_by != "others"
        if epoch < self.warmup_epochs or not judges_itself:
            return super().wants_probe(epoch)
        return (epoch - self.warmup_epochs) % max(EPOCHS_BETWEEN_PROBES, self.probe_every) == 0
