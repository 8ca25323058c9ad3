"""What Step-E, one-shot filtering and Step-E+ have in common: their options, and how their parts work together."""

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from stepe.beliefs.belief import Belief
from stepe.beliefs.rate import Rate
from stepe.errors import InputError
from stepe.loop.ledger import Ledger, Observation
from stepe.loop.plan import Plan
from stepe.loop.probe import among_classes
from stepe.loop.task import Batch, Forward, Task
from stepe.methods.base import Method
from stepe.methods.defaults import Settings, check, resolve, rho_max_by
from stepe.methods.parts.correction import Correction
from stepe.methods.parts.dropping import Dropping, MakeSchedule
from stepe.methods.parts.guesses import Guesses
from stepe.methods.parts.mixing import Blends
from stepe.methods.parts.ranking import Ranking
from stepe.options import method as option


@dataclass(frozen=True)
class Parts:
    """The parts that set one eliminating method apart from another."""

    make_schedule: MakeSchedule
    sticky: bool = False
    align: Callable[[Tensor], Tensor] = lambda guess: guess
    """guesses -> guesses that agree with how often the classes occur"""
    correct: bool = False
    mixing: Blends | None = None


@dataclass
class Eliminating(Method):
    """Keep the lowest 1 - rho_t of the scores. A subclass says what it is composed of, and when it wants a probe."""

    cross_fits: ClassVar[bool] = True
    corrects: ClassVar[bool] = False
    """whether what is dropped may train on a running guess, so that little is lost by dropping in vain"""

    rho_max: option.RhoMax = None
    warmup: option.Warmup = None
    score: option.Score = "auto"
    softness: option.Softness = 0.0
    min_keep: option.MinKeep = 0.0
    guess_memory: option.GuessMemory = None
    view: option.View = "augmented"

    @abstractmethod
    def compose(self, settings: Settings) -> Parts:
        """Say what the method is made of, once its options are resolved."""

    def start(self, task: Task, ledger: Ledger) -> None:
        """Resolve the options, and put the parts together."""
        super().start(task, ledger)
        check(self, task)
        settings = self.settings = resolve(self, task)
        parts = self.compose(settings)
        self.dropping = Dropping(
            parts.make_schedule,
            rho_max=settings.rho_max,
            warmup=settings.warmup,
            finds_warmup=self.warmup == "auto",
        )
        if self.finds_out and settings.warmup < 1:
            raise InputError(
                "how much to drop is found out in the warm-up, and there is none: train for 2 epochs or more, the "
                "first of them a warm-up, or give rho_max"
            )
        self.needs_probabilities, self.averaging = settings.keeps_guess, settings.average
        self.guesses = Guesses(task, parts.align)
        if self.needs_probabilities:
            self.guesses.declare(ledger)
        if task.trusted is not None:
            ledger["trusted"] = task.trusted
        self.ranking = Ranking(task, self.guesses, settings.score, parts.sticky, self.min_keep)
        corrects = parts.correct or settings.refine > 0
        self.correction = Correction(task, self.guesses, parts.correct, settings.refine) if corrects else None
        self.mixing = parts.mixing

    @property
    def warmup_epochs(self) -> int:  # type: ignore[override]
        """Epochs before anything is dropped, as far as is known by now."""
        return self.dropping.warmup

    @property
    def finds_out(self) -> bool:
        """Whether the run finds out for itself how much to drop, or when to begin."""
        return self.dropping.finds_rate or self.dropping.finds_warmup

    @property
    def first_probe(self) -> int:
        """The epoch before which no probe is needed."""
        return self.settings.first_probe(self.warmup_epochs, finds_out=self.finds_out)

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
        self.dropping.end_warmup(epoch, ledger, seen.judged_by)
        if self.needs_probabilities:
            self.guesses.note(ledger)
        finds_rate, by_belief = self.dropping.finds_rate, self.settings.score == "posterior"
        if finds_rate or by_belief:
            belief = self.guesses.learn(ledger, seen.judged_by)
            if finds_rate and self.warmup_epochs <= epoch < self.task.epochs:  # after the last probe nothing is dropped
                self.dropping.take(rho_max_by(belief, self.task.labels))

    # -- What an epoch trains on ----------------------------------------------------------------------------------

    def scores(self, ledger: Ledger) -> Tensor:
        """Score how suspicious each label is: what the selection ranks by."""
        return self.ranking.scores(ledger)

    def plan(self, epoch: int, ledger: Ledger) -> Plan:
        """Plan an epoch on all samples in the warm-up, and on those with the lowest scores after it."""
        if epoch < self.warmup_epochs:
            return super().plan(epoch, ledger)
        drop_fraction, scores = self.dropping.share(epoch), self.scores(ledger)
        chosen = self.ranking.select(scores, drop_fraction, ledger)
        weight = self.ranking.weights(scores, chosen, self.softness) if self.softness > 0 else None
        plan = Plan(
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
        if self.correction is None:
            return plan
        return self.correction.carry_out(plan, self.dropping.share.progress(epoch), ledger)

    def prepare(self, epoch: int) -> None:
        """Draw what inputs are blended with."""
        if self.mixing is not None:
            self.mixing.draw(epoch)

    # -- How a batch becomes a loss -------------------------------------------------------------------------------

    @property
    def has_own_loss(self) -> bool:
        """Whether training takes more than choosing samples: blends, other targets, weights."""
        overridden = type(self).loss is not Eliminating.loss
        return overridden or self.mixing is not None or self.correction is not None or self.softness > 0

    @property
    def stacks(self) -> bool:
        """Whether no other loss takes the place of this one: blends keep to their batch, but another loss may not."""
        return type(self).loss is Eliminating.loss

    def loss(self, forward: Forward, batch: Batch) -> Tensor:
        """Take the criterion under the plan's targets, of blends where there are any."""
        if batch.target.dtype == torch.float16:  # guesses are kept in half precision
            batch = replace(batch, target=batch.target.float())
        return super().loss(forward, batch) if self.mixing is None else self.mixing.loss(forward, batch)

    # -- What was found out ---------------------------------------------------------------------------------------

    def make_belief(self, ledger: Ledger) -> Belief:
        """Make the belief of what is guessed, where that is kept; a rate that is known is not found out."""
        if not self.needs_probabilities:
            return super().make_belief(ledger)
        belief, known = self.guesses.believe(ledger, self.dropping.judged_by), self.task.noise_rate
        if self.dropping.finds_rate:
            return belief
        rate = belief.rate if known is None else Rate(known, known, known)
        return replace(belief, rate=rate, rate_was_found=False)

    def findings(self) -> dict[str, Any]:
        """Tell how much was dropped at most, and how long the warm-up was."""
        return {"rho_max": self.dropping.rho_max, "warmup": self.warmup_epochs}

    def resolved(self, task: Task) -> dict[str, Any]:
        """Name every option with what ``None`` and ``auto`` stand for; ``auto`` remains where runs find out."""
        told = asdict(resolve(self, task))
        known = {name: told[name] for name in self.options() if name in told and told[name] is not None}
        if self.warmup == "auto":
            known["warmup"] = "auto"
        return super().resolved(task) | {"rho_max": "auto"} | known

    def state_dict(self) -> dict[str, Any]:
        """Save what was found out, and the shares of the blends."""
        blends = {} if self.mixing is None else {"blends": self.mixing.state_dict()}
        return self.dropping.state_dict() | self.guesses.state_dict() | blends

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take up a saved state."""
        self.dropping.load_state_dict(state)
        self.guesses.load_state_dict(state)
        if self.mixing is not None:
            self.mixing.load_state_dict(state["blends"])
