"""What :mod:`stepe.training.prune` trains: plain training on a part of the samples that was chosen beforehand."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from torch import Tensor

from stepe.beliefs.confident import prunable
from stepe.errors import InputError
from stepe.loop.ledger import Ledger, Observation
from stepe.loop.plan import Plan
from stepe.loop.probe import judged
from stepe.loop.task import Task
from stepe.methods.plain import Plain
from stepe.options import Option, check_fields


def plan_part(kept: Tensor, epoch: int, task: Task) -> Plan:
    """Plan an epoch on a part that stays the same."""
    return Plan(epoch, task.epochs, kept, task.seed, drop_fraction=float((~kept).double().mean()))


class Part(Plain):
    """Train plainly on some samples; the probe says how likely every class is to all of them."""

    name: ClassVar[str] = "part"
    summary: ClassVar[str] = "plain training on some of the samples"
    needs_classes: ClassVar[bool] = True
    needs_probabilities: bool = True

    def __init__(self, kept: Tensor):
        self.kept = kept

    def start(self, task: Task, ledger: Ledger) -> None:
        """Declare where the probabilities go."""
        super().start(task, ledger)
        ledger.add_column("guess", torch.float32, float("nan"), width=task.classes)

    def plan(self, epoch: int, ledger: Ledger) -> Plan:
        """Plan an epoch on the part."""
        return plan_part(self.kept, epoch, self.task)


@dataclass
class Pruned(Plain):
    """Confident learning (Northcutt et al., *Confident Learning*, 2021): prune by out-of-fold probabilities, then train
    anew on the rest.

    Two trainings, one after the other, so no method for ``fit`` alone: the recipe hands it ``guess``, the first's
    out-of-fold probabilities. They judge the labels in the end, too: the second training sees too few of them.
    """

    name: ClassVar[str] = "prune"
    summary: ClassVar[str] = "prunes by confident learning, out of fold, then trains anew on the rest"
    paper: ClassVar[str] = "Northcutt et al., 2021"
    needs_classes: ClassVar[bool] = True

    folds: Annotated[int, Option("Models that judge, each the samples that it was not trained on.", min=2)] = 5

    def __post_init__(self) -> None:
        self.guess: Tensor | None = None
        check_fields(self)  # before the first of its trainings

    def start(self, task: Task, ledger: Ledger) -> None:
        """Prune; labels that were checked stay."""
        super().start(task, ledger)
        if self.guess is None:
            raise InputError(
                "'prune' trains twice, so fit() alone cannot do it: use stepe.training.prune.prune, or "
                "stepe clean --method prune"
            )
        self._judged = judged(self.guess, task.labels)
        pruned = torch.from_numpy(prunable(self.guess.double().numpy(), task.labels.numpy()))
        self._kept = ~pruned if task.trusted is None else ~pruned | task.trusted

    def plan(self, epoch: int, ledger: Ledger) -> Plan:
        """Plan an epoch on all but the pruned."""
        return plan_part(self._kept, epoch, self.task)

    def observe(self, epoch: int, seen: Observation, ledger: Ledger) -> None:
        """Take in what models said that did not train on the labels."""
        super().observe(epoch, self._judged, ledger)
