"""What Step-E and one-shot filtering share: a warm-up, a schedule of drop fractions, a selection by score."""

from abc import abstractmethod
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from stepe.beliefs.belief import Belief
from stepe.beliefs.rate import Rate
from stepe.errors import InputError
from stepe.evidence.automatic import SETTLED, Automatic
from stepe.evidence.believe import believe, recognised_classes
from stepe.evidence.running_guess import RunningGuess
from stepe.loop.ledger import TRUST_MEMORY, Ledger, Observation
from stepe.loop.plan import Plan
from stepe.loop.probe import among_classes
from stepe.loop.schedule import Schedule
from stepe.loop.selection import Selection, protect, select, soften
from stepe.loop.task import Task, View
from stepe.methods.base import Method
from stepe.methods.settings import Settings, check, drop_max_for, resolve


@dataclass
class Elimination(Method):
    """Keep the lowest 1 - rho_t of the scores; a subclass says when to probe and how rho_t grows."""

    cross_fits: ClassVar[bool] = True
    remembers = TRUST_MEMORY
    """how much of the running guess is left when the next probe comes in"""
    drops_a_margin: ClassVar[bool] = True
    """whether a few more are dropped than are wrong, as in the paper"""

    rho_max: float | Literal["auto"] | None = None
    """largest fraction ever dropped; ``None``: from the known noise rate; without one, ``auto``: found out"""
    warmup: int | Literal["auto"] | None = None
    """epochs before anything is dropped; ``None``: a sixth of the run; ``auto``: until nothing is learned but noise"""
    score: Literal["auto", "loss", "guess", "posterior"] = "auto"
    """what is ranked: the latest loss, as in the paper; that of the running guess; or how unlikely the label is by the
    guess and by how labels go wrong (``stepe.evidence.posterior``). ``auto``: the last where rho_max is found out or
    the probe is cross-fitted, else the loss"""
    softness: float = 0.0
    """down-weight instead of dropping, with this temperature in units of loss; 0 drops"""
    min_keep: float = 0.0
    """share of every group (class, unless groups are given) that is never dropped; 0 is off"""
    view: View = "augmented"

    def start(self, task: Task, ledger: Ledger) -> None:
        """Resolve rho_max and the warm-up, as far as they are known."""
        super().start(task, ledger)
        check(self, task)
        self.settings: Settings = resolve(self, task)
        self.warmup_epochs = self.settings.warmup
        self.automatic = Automatic(finds_rate=self.settings.rho_max is None, finds_warmup=self.warmup == "auto")
        if self.automatic and self.warmup_epochs < 1:
            raise InputError(
                "how much to drop is found out in the warm-up, and there is none: train for 2 epochs or more, the "
                "first of them a warm-up, or give rho_max"
            )
        if task.kind != "classes":
            self._check_targets()
        self.needs_probabilities = self.settings.keeps_guess
        self.guess = RunningGuess(task, self.automatic, self.settings.refine > 0, self.score == "guess", self.align)
        if self.needs_probabilities:
            self.guess.declare(ledger)
        if task.trusted is not None:
            ledger["trusted"] = task.trusted
        self._take_drop_max(self.settings.rho_max or 0.0)

    def _check_targets(self) -> None:
        """What is found out by comparing classes cannot be, where labels are none."""
        if self.automatic.finds_rate:
            raise InputError(
                f"how many labels are wrong can be estimated for classes alone, and these are {self.task.kind}: give "
                "rho_max, the largest share to drop, or noise_rate, the share that is wrong"
            )
        if self.score in ("guess", "posterior") or self.task.probe != "in-sample":
            raise InputError(
                f"a running guess and a cross-fitted probe need classes, and these labels are {self.task.kind}: use "
                "score='loss' and probe='in-sample'"
            )
        if self.min_keep > 0 and self.task.groups is None:
            raise InputError(f"min_keep protects classes, and these labels are {self.task.kind}: give groups too")

    def align(self, guess: Tensor) -> Tensor:
        """Put guesses right by how often the classes occur, where that is known."""
        return guess

    @abstractmethod
    def schedule_for(self, drop_max: float) -> Schedule:
        """How the drop fraction grows to ``drop_max``."""

    def _take_drop_max(self, drop_max: float) -> None:
        self.drop_max = drop_max
        self.drop_fraction = self.schedule_for(drop_max)

    @property
    def first_probe(self) -> int:
        """The epoch before which no probe is needed."""
        return self.settings.first_probe(self.warmup_epochs, finds_out=bool(self.automatic))

    # -- What a probe teaches -------------------------------------------------------------------------------------

    def observe(self, epoch: int, seen: Observation, ledger: Ledger) -> None:
        """Take in a probe; then end the warm-up if it is time, and take what the probe says of the noise."""
        if self.needs_probabilities and seen.probability is None:
            raise InputError(
                "rho_max='auto' and the running guess need logits of shape (batch, classes) from the model; "
                "give rho_max as a number"
            )
        if seen.probability is not None:
            seen = replace(seen, probability=among_classes(seen.probability, self.task.classes))
        unlearned = self.settings.guess_starts(self.warmup_epochs) - self.first_probe
        learned = self.settings.probe_every * int(ledger["times_probed"].max()) >= unlearned
        memory = self.settings.guess_memory if learned else 0.0
        ledger.record_probe(seen, memory=self.settings.memory, trust_memory=memory)
        self.automatic.note(seen)
        self.guess.remember_shows(ledger, memory)
        self._end_warmup(epoch, ledger)
        self._learn_rate(epoch, ledger)

    def _end_warmup(self, epoch: int, ledger: Ledger) -> None:
        if self.automatic and epoch < self.warmup_epochs and self.automatic.ends_warmup(epoch, ledger):
            self.warmup_epochs = epoch
            self._take_drop_max(self.drop_max)

    def _learn_rate(self, epoch: int, ledger: Ledger) -> None:
        """When the warm-up is over; rho_max follows, but for the last probe, after which nothing is dropped."""
        unknown = self.automatic.finds_rate or self.task.noise_rate is None or self.settings.score == "posterior"
        if epoch < self.warmup_epochs or not (self.needs_probabilities and unknown):
            return
        found = self.guess.learn_rate(ledger)
        self.automatic.settled = self.drop_fraction.progress(epoch) >= SETTLED
        if self.automatic.finds_rate and epoch < self.task.epochs:
            self._take_drop_max(drop_max_for(found, margin=self.drops_a_margin))

    # -- What an epoch trains on ----------------------------------------------------------------------------------

    def scores(self, ledger: Ledger) -> Tensor:
        """What the selection ranks by."""
        if self.settings.score == "loss":
            return ledger["score"]
        return self.guess.scores(ledger, by_posterior=self.settings.score == "posterior")

    def select(self, drop_fraction: float, ledger: Ledger) -> Selection:
        """The selection rule on the scores of those that may be dropped, with the group floor if one is set."""
        groups = self.task.labels if self.task.groups is None and self.task.classes else self.task.groups
        scores, trusted = self.scores(ledger), self.task.trusted
        if self.automatic.finds_rate:
            cleared = self.guess.beyond_doubt(scores, recognised_classes(ledger, self.task.labels))
            trusted = cleared if trusted is None else cleared | trusted.to(cleared.device)
        scores, drop_fraction = protect(scores, drop_fraction, trusted)
        groups = None if groups is None else groups.to(ledger.device)
        return select(scores, drop_fraction, groups=groups, min_keep=self.min_keep)

    def plan(self, epoch: int, ledger: Ledger) -> Plan:
        """All samples in the warm-up, then those with the lowest scores."""
        if epoch < self.warmup_epochs:
            return super().plan(epoch, ledger)
        drop_fraction = self.drop_fraction(epoch)
        chosen = self.select(drop_fraction, ledger)
        weight = self._weights(ledger, chosen) if self.softness > 0 else None
        return Plan(
            epoch,
            self.task.epochs,
            chosen.kept,
            self.task.seed,
            trains=None if weight is None else weight > 0,
            weight=weight,
            drop_fraction=drop_fraction,
            cut=chosen.cut,
            nonfinite=int(torch.count_nonzero(~torch.isfinite(ledger["loss"]))),
            shortfall=chosen.shortfall,
        )

    def _weights(self, ledger: Ledger, chosen: Selection) -> Tensor:
        weight = soften(self.scores(ledger), chosen, self.softness)
        trusted = self.task.trusted
        return weight if trusted is None else torch.where(trusted.to(weight.device), 1.0, weight)

    # -- What was found out ---------------------------------------------------------------------------------------

    def believes(self, ledger: Ledger) -> Belief:
        """By the posterior, unless ranking by the guess was asked for."""
        if not self.needs_probabilities:
            return super().believes(ledger)
        posterior = self.guess.posterior(ledger)
        found: Rate | None = posterior.rate if posterior is not None and self.automatic.finds_rate else None
        return believe(ledger, self.task, posterior, found=found)

    def findings(self) -> dict[str, Any]:
        """How much was dropped at most, and how long the warm-up was."""
        return {"rho_max": self.drop_max, "warmup": self.warmup_epochs}

    def resolved(self, task: Task) -> dict[str, Any]:
        """Every option by name, with what ``None`` and ``auto`` stand for; ``auto`` remains where runs find out."""
        told = asdict(resolve(self, task))
        known = {name: told[name] for name in self.options() if name in told and told[name] is not None}
        if self.warmup == "auto":
            known["warmup"] = "auto"
        return super().resolved(task) | {"rho_max": "auto"} | known

    def state_dict(self) -> dict[str, Any]:
        """What was resolved, and what it will be resolved from."""
        return {"drop_max": self.drop_max, "warmup": self.warmup_epochs, "automatic": self.automatic.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore it."""
        self.warmup_epochs = state["warmup"]
        self.automatic.load_state_dict(state["automatic"])
        self._take_drop_max(state["drop_max"])
