"""Which samples are dropped: those that look worst by some measure (section 3.3, step 2)."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from stepe.evidence.believe import recognised_classes
from stepe.evidence.running_guess import RunningGuess
from stepe.loop.ledger import Ledger
from stepe.loop.selection import Selection, protect, select, soften
from stepe.loop.task import Task

Score = Literal["loss", "guess", "posterior"]


@dataclass(frozen=True)
class Ranking:
    """Ranks the labels by suspicion, and keeps those that look best."""

    task: Task
    guess: RunningGuess
    score: Score = "loss"
    """the loss, as in the paper; how unlikely the label is by the running guess; or by how labels go wrong as well"""
    sticky: bool = False
    """whether what was dropped stays dropped"""
    min_keep: float = 0.0
    """share of every group that is never dropped"""
    clears: bool = False
    """whether labels are kept that the guess cannot call wrong, because it hardly recognises their class"""

    def scores(self, ledger: Ledger) -> Tensor:
        """Score how suspicious each label is; a sticky drop is a score of infinity."""
        by_guess = self.score != "loss"
        scores = self.guess.scores(ledger, by_posterior=self.score == "posterior") if by_guess else ledger["score"]
        return torch.where(ledger["dropped"], torch.inf, scores) if self.sticky else scores

    def select(self, scores: Tensor, drop_fraction: float, ledger: Ledger) -> Selection:
        """Keep the lowest scores of those that may be dropped, with the floor of each group if one is set."""
        groups = self.task.labels if self.task.groups is None and self.task.classes else self.task.groups
        trusted = self.task.trusted
        if self.clears:
            cleared = self.guess.beyond_doubt(scores, recognised_classes(ledger, self.task.labels))
            trusted = cleared if trusted is None else cleared | trusted.to(cleared.device)
        scores, drop_fraction = protect(scores, drop_fraction, trusted)
        groups = None if groups is None else groups.to(ledger.device)
        return select(scores, drop_fraction, groups=groups, min_keep=self.min_keep)

    def weights(self, scores: Tensor, chosen: Selection, softness: float) -> Tensor:
        """Weigh the samples down instead of dropping them; trusted ones count in full."""
        weight = soften(scores, chosen, softness)
        trusted = self.task.trusted
        return weight if trusted is None else torch.where(trusted.to(weight.device), 1.0, weight)
