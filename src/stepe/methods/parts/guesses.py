"""What is believed of the labels by the guesses of networks.

The probes of a run are not looks of which each begins anew: a network goes on from epoch to epoch, with fewer wrong
labels, and its running guess turns from one of the label into one of the true class. So it is one look at all times,
and what it still says of how labels go wrong is undone (:mod:`stepe.beliefs.believe`).
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from stepe.beliefs.belief import Belief
from stepe.beliefs.believe import believe
from stepe.beliefs.signal import recognised_classes
from stepe.loop.ledger import JudgedBy, Ledger
from stepe.loop.task import Task

Floats = npt.NDArray[Any]
Labels = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

EVIDENCE, HEARD = 1.0, 0.5
"""how much a label says for itself, to those who did not learn it by heart; and to a model that may have: some of it is
in the guess already. Chosen on seeds from 100 on (docs/step-e-plus.md)"""
POWERS = 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 8.0
"""to which guesses may be raised"""
ENOUGH, TINY = 5_000, 1e-9


@dataclass
class Guesses:
    """Reads the running guess of a ledger, and keeps what it says of each label."""

    task: Task
    align: Callable[[Tensor], Tensor] = lambda guess: guess
    """guesses -> guesses that agree with how often the classes occur"""
    recognised: Bools | None = None
    """of each class, whether networks told it from others as long as nothing was dropped; later ones agree with what
    they were taught"""

    def declare(self, ledger: Ledger) -> None:
        """Add the columns: the running guess, and how likely each label is right by it."""
        ledger.add_column("guess", torch.float16, float("nan"), width=self.task.classes, device=self.task.device)
        ledger.add_column("p_right", torch.float32, float("nan"))

    def of(self, ledger: Ledger) -> Tensor:
        """Return the probability of every class for every sample (n x classes)."""
        return self.align(ledger["guess"].float())

    def note(self, ledger: Ledger) -> None:
        """See which classes the guess recognises, as long as nothing was dropped."""
        if self.recognised is None or not bool(ledger["drop_count"].any()):
            self.recognised = recognised_by(ledger["guess"], self.task.labels)

    def believe(self, ledger: Ledger, judged_by: JudgedBy) -> Belief:
        """Say of each label how likely it is right, by the guess as it is now."""
        return believe_guess(self.task, self.of(ledger), judged_by, self.recognised)

    def learn(self, ledger: Ledger, judged_by: JudgedBy) -> Belief:
        """Believe what the latest probe says, and keep what that is of each label."""
        belief = self.believe(ledger, judged_by)
        ledger["p_right"] = torch.from_numpy(belief.p_right)
        return belief

    def scores(self, ledger: Ledger, *, by_belief: bool) -> Tensor:
        """Score how unlikely each label is: minus the logarithm of its probability, as believed or as guessed."""
        if by_belief:
            right = ledger["p_right"]
        else:
            guess = self.of(ledger)
            right = guess.gather(1, self.task.labels.to(guess.device)[:, None]).squeeze(1)
        return -right.clamp(min=torch.finfo(torch.float32).tiny).log().to(ledger.device)

    def state_dict(self) -> dict[str, Any]:
        """Save which classes were recognised."""
        return {"recognised": None if self.recognised is None else self.recognised.tolist()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take up a saved state."""
        self.recognised = None if state["recognised"] is None else np.array(state["recognised"], dtype=np.bool_)


def recognised_by(guess: Tensor, labels: Tensor) -> Bools:
    """Say of each class whether networks tell it from others; of none where they know nothing of the labels."""
    given, (guesses, known) = labels.cpu().numpy(), _as_array(guess)
    return recognised_classes(given[known], guesses[known])


def sharpened(guesses: Floats, labels: Labels) -> Floats:
    """Make guesses as sure as they may be: networks that learned for a few epochs know more than they dare to say.

    They are raised to the power under which the labels are likeliest, of which a part of the rows is enough.

    >>> sharpened(np.array([[0.6, 0.4]] * 4), np.array([0, 0, 0, 0])).round(2)[0].tolist()
    [0.96, 0.04]
    """
    rows = np.linspace(0, len(labels) - 1, min(ENOUGH, len(labels))).round().astype(np.int64)

    def likelihood(power: float) -> float:
        raised = _raised(guesses[rows], power)
        return float(np.log(np.maximum(raised[np.arange(len(rows)), labels[rows]], TINY)).mean())

    power = max(POWERS, key=likelihood)
    return guesses if power == 1 else _raised(guesses, power)


def _raised(guesses: Floats, power: float) -> Floats:
    raised: Floats = (guesses / guesses.max(1, keepdims=True)) ** power
    raised /= raised.sum(1, keepdims=True)
    return raised


def believe_guess(task: Task, guess: Tensor, judged_by: JudgedBy, recognised: Bools | None = None) -> Belief:
    """Make the belief of what networks guess. How many labels are wrong stays open where guesses tell nothing.

    Of a sample without a finite guess nothing is known, and people are advised to look at it.
    """
    labels, (guesses, known) = task.labels.cpu().numpy(), _as_array(guess)
    trusted = np.zeros(task.n, dtype=np.bool_) if task.trusted is None else task.trusted.cpu().numpy()
    learned, evidence = None if known.all() else known, HEARD if judged_by == "itself" else EVIDENCE
    recognised = recognised_by(guess, task.labels) if recognised is None else recognised
    guesses = sharpened(guesses, labels)
    belief = believe(labels, guesses, evidence=evidence, trusted=trusted, learned=learned, recognised=recognised)
    if learned is None:
        return belief
    return replace(
        belief,
        p_right=np.where(known | trusted, belief.p_right, np.nan),
        suggestion=np.where(known, belief.suggestion, -1),
        confidence=np.where(known, belief.confidence, np.nan),
        flagged=(belief.flagged & known) | (belief.has_signal & ~known & ~trusted),
    )


def _as_array(guess: Tensor) -> tuple[Floats, Bools]:
    """Return guesses, uniform where they are not finite, and where they are."""
    found = guess.detach().float().cpu().numpy()
    known = np.isfinite(found).all(1)
    return found if known.all() else np.where(known[:, None], found, np.float32(1 / found.shape[1])), known
