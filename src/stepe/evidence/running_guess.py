"""The running guess: what the probes say of every class of every sample, and what follows from it for the labels."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from stepe.beliefs.rate import UNKNOWN, Rate
from stepe.evidence.automatic import Automatic
from stepe.evidence.posterior import Posterior, beyond_doubt, of_labels, shows_by_label, with_evidence
from stepe.evidence.telling import telling
from stepe.loop.ledger import Ledger
from stepe.loop.task import Task


@dataclass(frozen=True)
class RunningGuess:
    """Reads the running guess of a ledger."""

    task: Task
    automatic: Automatic
    leans: bool
    """whether the model trains on labels that are half replaced by this guess"""
    by_guess: bool
    """whether the guess alone says how likely labels are, and not how labels go wrong too"""
    align: Callable[[Tensor], Tensor]
    """guesses -> guesses that agree with how often the classes occur"""

    def declare(self, ledger: Ledger) -> None:
        """Add the columns of the guess."""
        task = self.task
        ledger.add_column("guess", torch.float16, float("nan"), width=task.classes, device=task.device)
        if task.probe != "in-sample":
            ledger.add_column("shows", torch.float32, float("nan"))

    def remember_shows(self, ledger: Ledger, memory: float) -> None:
        """Remember which inputs show something of a class.

        Only others can tell: what a model has learned by heart, it is sure of. So a run whose model comes to judge for
        itself goes by what was seen until then.
        """
        if "shows" in ledger.columns and self.automatic.judged_by == "others":
            ledger.remember("shows", telling(ledger["guess"], self.task.labels), memory)

    def of(self, ledger: Ledger) -> Tensor:
        """Return the probability of every class for every sample (n x classes)."""
        return self.align(ledger["guess"].float())

    def learn_rate(self, ledger: Ledger) -> Rate:
        """Take the rate of wrong labels from the probe that just came in."""
        return self.automatic.learn(ledger, self.task.labels, refined=self.leans)

    def rate(self, ledger: Ledger) -> Rate | None:
        """Return the known rate, or the estimate; ``None`` where neither says anything."""
        found, known = self.automatic.rate(ledger, self.task.labels, refined=self.leans), self.task.noise_rate
        if self.automatic.finds_rate:
            return found
        if known is not None:
            return Rate(known, known, known, min(known, found.unrelated))
        return None if found.is_unknown else found

    def scores(self, ledger: Ledger, *, by_posterior: bool) -> Tensor:
        """Score how unlikely each label is: minus the logarithm of its probability."""
        guess = self.of(ledger)
        if by_posterior:
            right = self._right(*with_evidence(guess, self.task.labels, self.rate(ledger) or UNKNOWN), ledger)
        else:
            right = self.probability_given(guess, ledger)
        return -right.clamp(min=torch.finfo(torch.float32).tiny).log().to(ledger.device)

    def posterior(self, ledger: Ledger) -> Posterior | None:
        """Return what is held of the samples in the end, by how labels go wrong too: there is time for that."""
        rate = self.rate(ledger)
        if rate is None:
            return None
        guess = self.of(ledger)
        if self.by_guess:
            likely, right = guess, self.probability_given(guess, ledger)
        else:
            likely, evidence = with_evidence(guess, self.task.labels, rate)
            right = self._right(likely, evidence, ledger)
        return Posterior(rate, likely.to(ledger.device), right.to(ledger.device), self.shows(ledger))

    def beyond_doubt(self, scores: Tensor, recognised: Tensor) -> Tensor:
        """Say which samples the guess cannot call wrong."""
        return beyond_doubt(scores, recognised, self.task.labels)

    def shows(self, ledger: Ledger) -> Tensor | None:
        """P(the input shows anything of a class), where that is known (``stepe.evidence.telling``)."""
        return ledger["shows"].nan_to_num(nan=1.0) if "shows" in ledger.columns else None

    def probability_given(self, guess: Tensor, ledger: Ledger) -> Tensor:
        """Return the probability of each sample's label, by the guess."""
        return self._right(guess, of_labels(guess, self.task.labels), ledger)

    def _right(self, likely: Tensor, evidence: Tensor, ledger: Ledger) -> Tensor:
        """Return P(label is right), given how likely classes and labels are; where nothing shows, it is 0."""
        right = of_labels(likely, self.task.labels)
        if (shows := self.shows(ledger)) is None:
            return right
        shows = shows.to(right.device)
        if self.automatic.judged_by != "others":  # a model that trains on a label expects it, whatever the input shows
            return right * shows
        return right * shows_by_label(shows, evidence, self.task.labels)
