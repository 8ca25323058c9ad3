"""What to train on where labels are not believed, or not quite: the guess, instead of the label or beside it."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from stepe.errors import InputError
from stepe.loop.ledger import Ledger
from stepe.loop.plan import Plan
from stepe.loop.task import Task
from stepe.methods.parts.guesses import Guesses


def check_takes_probabilities(
    criterion: Callable[[Tensor, Tensor], Tensor], classes: int, device: torch.device
) -> None:
    """Refuse a criterion for class indices alone: it would fail only when the first label is corrected."""
    outputs, labels = torch.zeros(2, classes, device=device), torch.arange(2, device=device) % classes
    try:
        criterion(outputs, labels)
    except Exception:  # for outputs of another form: nothing can be said before there are some
        return
    try:
        losses = criterion(outputs, F.one_hot(labels, classes).float())
        problem = None if losses.shape == labels.shape else f"its losses then have the shape {tuple(losses.shape)}"
    except Exception as error:
        problem = f"it says: {error}"
    if problem:
        raise InputError(
            "corrected labels are probabilities, one row of them a sample, and the criterion takes class indices alone "
            f"({problem}): give one that takes both, as F.cross_entropy(..., reduction='none') does, or train without "
            "corrections, by correct=False and refine=0"
        )


def corrected(labels: Tensor, kept: Tensor, guess: Tensor, refine: float | Tensor) -> Tensor:
    """Make each sample a row of class probabilities: a kept label, by ``refine`` replaced by the guess; else the guess.

    >>> guess = torch.tensor([[0.2, 0.8], [0.3, 0.7]])
    >>> corrected(torch.tensor([0, 0]), torch.tensor([True, False]), guess, 0.5)
    tensor([[0.6000, 0.4000],
            [0.3000, 0.7000]])
    """
    given = F.one_hot(labels.to(guess.device), guess.shape[1]).to(guess.dtype)
    guess = torch.where(torch.isfinite(guess), guess, given)  # nothing else is known of it
    return torch.where(kept.to(guess.device)[:, None], torch.lerp(given, guess, refine), guess)


def confidence(kept: Tensor, guess: Tensor) -> Tensor:
    """Say how much each sample counts: a kept one fully, another as far as its guess is sure.

    >>> confidence(torch.tensor([True, False]), torch.tensor([[0.2, 0.8], [0.3, 0.7]]))
    tensor([1.0000, 0.7000])
    """
    return torch.where(kept.to(guess.device), 1.0, guess.amax(1).nan_to_num(nan=0.0))


@dataclass(frozen=True)
class Correction:
    """Trains dropped samples on the running guess, and refines kept labels by it."""

    task: Task
    guesses: Guesses
    correct: bool
    """whether the dropped train on the guess, by its confidence; else not at all"""
    refine: float
    """how much of a kept label the guess replaces once the ramp is done"""

    def carry_out(self, plan: Plan, ramp: float, ledger: Ledger) -> Plan:
        """Put other targets into a plan, and weights by how sure they are; ``ramp`` says how far up it the run is."""
        guess = self.guesses.of(ledger)
        believed = plan.kept if self.task.trusted is None else plan.kept & ~self.task.trusted.to(plan.kept.device)
        share = torch.where(believed, self.refine * ramp, 0.0).to(guess.device)[:, None]
        plan = replace(plan, target=corrected(self.task.labels, plan.kept, guess, share).to(ledger["guess"].dtype))
        if not self.correct:
            return plan
        weight = confidence(plan.kept, guess)
        return replace(plan, weight=weight, trains=(weight > 0).to(plan.kept.device))
