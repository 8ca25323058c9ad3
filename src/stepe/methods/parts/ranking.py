"""Which samples are dropped: those that look worst by some measure (section 3.3, step 2)."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from stepe.loop.ledger import Ledger
from stepe.loop.selection import Selection, protect, select, soften
from stepe.loop.task import Task
from stepe.methods.parts.guesses import Guesses

Score = Literal["loss", "guess", "posterior"]


@dataclass(frozen=True)
class Ranking:
    """Ranks the labels by suspicion, and keeps those that look best."""

    task: Task
    guesses: Guesses
    score: Score = "loss"
    """the loss, as in the paper; how unlikely the label is by the running guess; or by what is believed of it"""
    sticky: bool = False
    """whether what was dropped stays dropped"""
    min_keep: float = 0.0
    """share of every group that is never dropped"""

    def scores(self, ledger: Ledger) -> Tensor:
        """Score how suspicious each label is; a sticky drop is a score of infinity."""
        by_belief = self.score == "posterior"
        scores = ledger["score"] if self.score == "loss" else self.guesses.scores(ledger, by_belief=by_belief)
        return torch.where(ledger["dropped"], torch.inf, scores) if self.sticky else scores

    def select(self, scores: Tensor, drop_fraction: float, ledger: Ledger) -> Selection:
        """Keep the lowest scores of those that may be dropped, with the floor of each group if one is set."""
        groups = self.task.labels if self.task.groups is None and self.task.classes else self.task.groups
        scores, drop_fraction = protect(scores, drop_fraction, self.task.trusted)
        groups = None if groups is None else groups.to(ledger.device)
        return select(scores, drop_fraction, groups=groups, min_keep=self.min_keep)

    def weights(self, scores: Tensor, chosen: Selection, softness: float) -> Tensor:
        """Weigh the samples down instead of dropping them; trusted ones count in full."""
        weight = soften(scores, chosen, softness)
        trusted = self.task.trusted
        return weight if trusted is None else torch.where(trusted.to(weight.device), 1.0, weight)
