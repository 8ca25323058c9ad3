"""What Step-E and one-shot filtering share: a warm-up, a schedule of drop fractions, a selection by score."""

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from stepe.beliefs.rate import UNKNOWN, Rate
from stepe.errors import InputError
from stepe.evidence.automatic import SETTLED, Automatic
from stepe.evidence.noise_rate import drop_max_from_rate, hardly_recognised, resolve_drop_max
from stepe.evidence.posterior import Belief, beyond_doubt, of_labels, shows_by_label, with_evidence
from stepe.evidence.telling import telling
from stepe.loop.ledger import TRUST_MEMORY, Ledger, Observation
from stepe.loop.plan import Plan
from stepe.loop.probe import among_classes
from stepe.loop.schedule import Schedule, check_epochs
from stepe.loop.selection import Selection, protect, select, soften
from stepe.methods.base import Method, Task, View, resolve_warmup

SCORES = ("auto", "loss", "guess", "posterior")


@dataclass
class Elimination(Method):
    """Keep the lowest 1 - rho_t of the scores; a subclass says when to probe and how rho_t grows."""

    cross_fits: ClassVar[bool] = True
    remembers = TRUST_MEMORY
    """how much of the running guess is left when the next probe comes in"""
    warmup_share: ClassVar[float] = 1 / 6
    """of the run, where the warm-up is not given"""

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
        self.warmup_epochs = resolve_warmup(self.warmup, task.epochs, self.warmup_share)
        check_epochs(task.epochs, self.warmup_epochs)
        if not 0 <= self.min_keep <= 1:
            raise InputError(f"min_keep is {self.min_keep!r}; it must be a share in [0, 1]")
        if not self.softness >= 0:
            raise InputError(f"softness is {self.softness!r}; it must be 0 (drop) or a positive number of loss units")
        if self.score not in SCORES:
            raise InputError(f"score is {self.score!r}; choose one of {', '.join(SCORES)}")
        drop_max = resolve_drop_max(self.rho_max, task.noise_rate, self.drop_max_for)
        self.automatic = Automatic(finds_rate=drop_max is None, finds_warmup=self.warmup == "auto")
        if self.automatic and self.warmup_epochs < 1:
            raise InputError(
                "how much to drop is found out in the warm-up, and there is none: train for 2 epochs or more, the "
                "first of them a warm-up, or give rho_max"
            )
        if task.kind != "classes":
            self._check_targets(drop_max)
        self.ranks_by = self.resolve_score()
        self.needs_probabilities = self.keeps_guess
        if self.needs_probabilities:
            ledger.add_column("guess", torch.float16, float("nan"), width=task.classes, device=task.device)
            if task.reach != "in-sample":
                ledger.add_column("shows", torch.float32, float("nan"))
        if task.trusted is not None:
            ledger["trusted"] = task.trusted
        self._take_drop_max(0.0 if drop_max is None else drop_max)

    def _check_targets(self, drop_max: float | None) -> None:
        """What is found out by comparing classes cannot be, where labels are none."""
        if drop_max is None:
            raise InputError(
                f"how many labels are wrong can be estimated for classes alone, and these are {self.task.kind}: give "
                "rho_max, the largest share to drop, or noise_rate, the share that is wrong"
            )
        if self.score in ("guess", "posterior") or self.task.reach != "in-sample":
            raise InputError(
                f"a running guess and a cross-fitted probe need classes, and these labels are {self.task.kind}: use "
                "score='loss' and probe='in-sample'"
            )
        if self.min_keep > 0 and self.task.groups is None:
            raise InputError(f"min_keep protects classes, and these labels are {self.task.kind}: give groups too")

    def resolve_score(self) -> str:
        """What ``auto`` stands for."""
        if self.score != "auto":
            return self.score
        return "posterior" if self.automatic.finds_rate or self.task.reach != "in-sample" else "loss"

    @property
    def keeps_guess(self) -> bool:
        """Whether anything is made of the running guess."""
        return self.ranks_by != "loss" or self.automatic.finds_rate

    def drop_max_for(self, rate: float | Rate) -> float:
        """The most to drop, with so many labels wrong: a margin more, as in the paper."""
        return rate.drop_max if isinstance(rate, Rate) else drop_max_from_rate(rate)

    def _take_drop_max(self, drop_max: float) -> None:
        self.drop_max = drop_max
        self.drop_fraction = self.schedule_for(drop_max)

    @property
    def first_probe(self) -> int:
        """The epoch before which no probe is needed; where something is to be found out, the warm-up is probed too."""
        return 1 if self.automatic else self.warmup_epochs

    @property
    def remembers_from(self) -> int:
        """The epoch from which guesses are averaged: what a model thought before is not worth remembering."""
        return self.warmup_epochs

    @property
    def smoothing(self) -> float:
        """How much the losses remember earlier probes."""
        return 0.0

    @property
    def interval(self) -> int:
        """Epochs from one probe to the next."""
        return 1

    def observe(self, seen: Observation, ledger: Ledger) -> None:
        """Take in a probe, and what it says about itself."""
        if self.needs_probabilities and seen.probability is None:
            raise InputError(
                "rho_max='auto' and the running guess need logits of shape (batch, classes) from the model; "
                "give rho_max as a number"
            )
        if seen.probability is not None:
            seen = replace(seen, probability=among_classes(seen.probability, self.task.classes))
        learned = self.interval * int(ledger["times_probed"].max()) >= self.remembers_from - self.first_probe
        memory = self.remembers if learned else 0.0
        ledger.record_probe(seen, memory=self.smoothing, trust_memory=memory)
        self.automatic.note(seen)
        if "shows" in ledger.columns and seen.unsure is not None:
            # Not by who trains on it: what a model has learned by heart, it is sure of. So a run whose model comes to
            # judge for itself goes by what was seen until then.
            ledger.remember("shows", telling(ledger["guess"], self.task.labels), memory)

    def adapt(self, epoch: int, ledger: Ledger) -> None:
        """End the warm-up if it is time; when it is over, take what the last probe says of the noise, and set rho_max
        by it where that is to be found out.
        """
        if self.automatic and epoch < self.warmup_epochs and self.automatic.ends_warmup(epoch, ledger):
            self.warmup_epochs = epoch
            self._take_drop_max(self.drop_max)
        unknown = self.automatic.finds_rate or self.task.noise_rate is None or self.ranks_by == "posterior"
        if epoch < self.warmup_epochs or not (self.needs_probabilities and unknown):
            return
        found = self.automatic.take(ledger, self.task.labels, refined=self.refines)
        self.automatic.settled = self.drop_fraction.progress(epoch) >= SETTLED
        if self.automatic.finds_rate:
            self._take_drop_max(self.drop_max_for(found))

    @property
    def refines(self) -> bool:
        """Whether kept labels give way to the guess."""
        return False

    def estimate(self, ledger: Ledger) -> Rate:
        """What the guesses say of the noise."""
        return self.automatic.rate(ledger, self.task.labels, refined=self.refines)

    def noise(self, ledger: Ledger) -> Rate | None:
        """The known rate, or the estimate: the margin above it is for the training alone."""
        if not self.needs_probabilities:
            return None
        found, known = self.estimate(ledger), self.task.noise_rate
        if self.automatic.finds_rate:
            return found
        if known is not None:
            return Rate(known, known, known, min(known, found.unrelated))
        return None if found.is_unknown else found

    def findings(self, ledger: Ledger) -> dict[str, Any]:
        """The noise rate, where it was found out, what was done about it, and the classes that cannot be judged."""
        found: dict[str, Any] = {"rho_max": self.drop_max, "warmup": self.warmup_epochs}
        if self.automatic.finds_rate:
            found["noise_rate"] = self.estimate(ledger).to_json()
        if self.needs_probabilities and (hardly := hardly_recognised(ledger["guess"], self.task.labels)):
            found["hardly_recognised"] = hardly
        return found

    @abstractmethod
    def schedule_for(self, drop_max: float) -> Schedule:
        """How the drop fraction grows to ``drop_max``."""

    def scores(self, ledger: Ledger) -> Tensor:
        """What the selection ranks by."""
        if self.ranks_by == "loss":
            return ledger["score"]
        guess = self.guess(ledger)
        if self.ranks_by == "posterior":
            right = self._right(*with_evidence(guess, self.task.labels, self.noise(ledger) or UNKNOWN), ledger)
        else:
            right = self.probability_given(guess, ledger)
        return -right.clamp(min=torch.finfo(torch.float32).tiny).log().to(ledger.device)

    def probability_given(self, guess: Tensor, ledger: Ledger) -> Tensor:
        """Of each sample's label, by the guess."""
        return self._right(guess, of_labels(guess, self.task.labels), ledger)

    def _right(self, likely: Tensor, evidence: Tensor, ledger: Ledger) -> Tensor:
        """P(label is right), given how likely the classes are, and labels were: of nothing, no label is right."""
        right = of_labels(likely, self.task.labels)
        if (shows := self.shows(ledger)) is None:
            return right
        shows = shows.to(right.device)
        if self.automatic.unsure is None:  # who trains on a label expects it, whatever the input shows
            return right * shows
        return right * shows_by_label(shows, evidence, self.task.labels)

    def shows(self, ledger: Ledger) -> Tensor | None:
        """P(the input shows anything of a class), where that is known (``stepe.evidence.telling``)."""
        return ledger["shows"].nan_to_num(nan=1.0) if "shows" in ledger.columns else None

    def believes(self, ledger: Ledger) -> Belief | None:
        """By the posterior, for advice has time to think, unless ranking by the guess was asked for."""
        noise = self.noise(ledger)
        if noise is None:
            return None
        guess = self.guess(ledger)
        if self.score == "guess":
            likely, right = guess, self.probability_given(guess, ledger)
        else:
            likely, evidence = with_evidence(guess, self.task.labels, noise)
            right = self._right(likely, evidence, ledger)
        return Belief(noise, likely.to(ledger.device), right.to(ledger.device), self.shows(ledger))

    def guess(self, ledger: Ledger) -> Tensor:
        """What the running guess says of every sample (n x classes)."""
        return ledger["guess"].float()

    def select(self, drop_fraction: float, ledger: Ledger) -> Selection:
        """The selection rule on the scores of those that may be dropped, with the group floor if one is set."""
        groups = self.task.labels if self.task.groups is None and self.task.classes else self.task.groups
        scores, trusted = self.scores(ledger), self.task.trusted
        if self.automatic.finds_rate:
            cleared = beyond_doubt(scores, ledger["guess"], self.task.labels)
            trusted = cleared if trusted is None else cleared | trusted.to(cleared.device)
        scores, drop_fraction = protect(scores, drop_fraction, trusted)
        groups = None if groups is None else groups.to(ledger.device)
        return select(scores, drop_fraction, groups=groups, min_keep=self.min_keep)

    def plan(self, epoch: int, ledger: Ledger) -> Plan:
        """All samples in the warm-up, then those with the lowest scores."""
        if self.automatic.is_new:
            self.adapt(epoch, ledger)
            self.automatic.is_new = False
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

    def state_dict(self) -> dict[str, Any]:
        """What was resolved, and what it will be resolved from."""
        return {"drop_max": self.drop_max, "warmup": self.warmup_epochs, "automatic": self.automatic.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore it."""
        self.warmup_epochs = state["warmup"]
        self.automatic.load_state_dict(state["automatic"])
        self._take_drop_max(state["drop_max"])
