"""What the options of Step-E and of Step-E+ stand for, given the data: one place for all defaults."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from torch import Tensor

from stepe.beliefs.belief import Belief
from stepe.beliefs.believe import DOUBTED
from stepe.beliefs.rate import CAP, CAP_OF_ESTIMATE, check_rate, rho_max_from_rate
from stepe.errors import InputError
from stepe.loop.ledger import TRUST_MEMORY
from stepe.loop.schedule import check_drop_fraction, check_epochs, default_warmup
from stepe.loop.task import Task
from stepe.methods.parts.ranking import Score

AVERAGE, MEMORY, REFINE, USUAL_LENGTH = 0.85, 0.85, 0.5, 60
"""the defaults of Step-E+, in runs of so many epochs. A guess that forgets faster follows every whim of the model that
trains on the sample; one that is slower falls behind, the more so in shorter runs"""
RAMP_END = 0.6
"""share of a run of Step-E+ after which the ramp ends: the corrections need time to be learned"""
RAMP_END_WITH_WINDOWS = 0.8
"""pictures with windows take longer to learn, and what is dropped is best known late"""


@dataclass(frozen=True)
class Settings:
    """The options of Step-E or Step-E+, resolved."""

    rho_max: float | None
    """``None``: it is found out in the run"""
    warmup: int
    """epochs of the warm-up; the most, where its end is found out"""
    score: Score
    keeps_guess: bool
    """whether anything is made of the running guess"""
    guess_memory: float
    """how much of the running guess is left when the next probe comes in"""
    guess_starts_early: bool
    """whether guesses are averaged from the middle of the warm-up, and not from its end"""
    memory: float
    probe_every: int
    ramp_end: int | None
    """the epoch in which the ramp ends; ``None``: the schedule's own"""
    average: float
    refine: float

    def guess_starts(self, warmup: int) -> int:
        """Return the epoch from which guesses are averaged: what a model thought before is not worth remembering."""
        return (warmup + 1) // 2 if self.guess_starts_early else warmup

    def first_probe(self, warmup: int, *, finds_out: bool) -> int:
        """Return the epoch before which no probe is needed; to find something out, the warm-up is probed too."""
        first = 1 if finds_out else warmup
        return min(first, self.guess_starts(warmup)) if self.keeps_guess and self.guess_starts_early else first


def resolve(options: Any, task: Task) -> Settings:
    """Say what every option of an eliminating method stands for, given the data.

    Step-E+ is Step-E with parts of its own (``average``, ``refine``, ``correct``...); where a method lacks such an
    option, the part is off.
    """
    corrects, itself = options.corrects, task.probe == "in-sample"

    def part(name: str, default: float) -> float:
        asked = getattr(options, name, 0.0)
        return default if asked is None else asked

    probe_every = getattr(options, "probe_every", 1)
    warmup = resolve_warmup(options.warmup, task.epochs)
    rho_max = resolve_rho_max(options.rho_max, task.noise_rate, rho_max_as_known if corrects else rho_max_from_rate)
    score: Score = options.score
    if options.score == "auto":
        by_posterior = rho_max is None or not itself
        score = "posterior" if by_posterior else "guess" if corrects else "loss"
    # Guesses out of fold come from several models: averaged weights and refined labels were of no use to them.
    refine = part("refine", REFINE if itself else 0.0)
    usual = MEMORY if itself else MEMORY ** (USUAL_LENGTH * probe_every / task.epochs)
    ramp_end = getattr(options, "ramp_end", None)
    if corrects and ramp_end is None and options.schedule == "auto":
        ramp_end = max(warmup, round((RAMP_END_WITH_WINDOWS if options.cutmix else RAMP_END) * task.epochs))
    return Settings(
        rho_max=rho_max,
        warmup=warmup,
        score=score,
        keeps_guess=score != "loss" or rho_max is None or getattr(options, "correct", False) or refine > 0,
        guess_memory=part("guess_memory", usual if corrects else TRUST_MEMORY),
        guess_starts_early=corrects,
        memory=getattr(options, "memory", 0.0),
        probe_every=probe_every,
        ramp_end=ramp_end,
        average=part("average", AVERAGE if itself else 0.0),
        refine=refine,
    )


def check(options: Any, task: Task) -> None:
    """Refuse options that the data does not allow."""
    check_epochs(task.epochs, resolve_warmup(options.warmup, task.epochs))
    if task.kind != "classes":
        _check_not_about_classes(options, task)


def _check_not_about_classes(options: Any, task: Task) -> None:
    """Refuse what is found out by comparing classes, where labels are none."""
    if resolve(options, task).rho_max is None:
        raise InputError(
            f"how many labels are wrong can be estimated for classes alone, and these are {task.kind}: give rho_max, "
            "the largest share to drop, or noise_rate, the share that is wrong"
        )
    if options.score in ("guess", "posterior") or task.probe != "in-sample":
        raise InputError(
            f"a running guess and a cross-fitted probe need classes, and these labels are {task.kind}: use "
            "score='loss' and probe='in-sample'"
        )
    if options.min_keep > 0 and task.groups is None:
        raise InputError(f"min_keep protects classes, and these labels are {task.kind}: give groups too")


def resolve_rho_max(
    rho_max: float | Literal["auto"] | None,
    noise_rate: float | None,
    rule: Callable[[float], float] | None = None,
) -> float | None:
    """rho_max as the user gave it, or by a rule from a known noise rate; ``None`` if it is to be found out."""
    if rho_max == "auto" or (rho_max is None and noise_rate is None):
        return None
    if rho_max is not None:
        check_drop_fraction(rho_max)
        return float(rho_max)
    assert noise_rate is not None
    return (rule or rho_max_from_rate)(noise_rate)


def rho_max_as_known(rate: float) -> float:
    """Drop as many as are wrong, as Step-E+ does: of what it drops in vain, little is lost."""
    return min(CAP_OF_ESTIMATE, check_rate(rate))


def rho_max_by(belief: Belief, labels: Tensor) -> float:
    """Return the most to drop by what is believed: the doubted labels of all classes that are recognised.

    Never more than half: where most labels look wrong, a model rather explains too little.
    """
    doubted = (belief.p_right < DOUBTED) & belief.recognised[labels.cpu().numpy()]
    return min(CAP, float(doubted.mean()))


def resolve_warmup(warmup: int | Literal["auto"] | None, epochs: int) -> int:
    """Return the warm-up a user gave, or a sixth of the run, as in the paper: the longest that ``auto`` takes."""
    return default_warmup(epochs) if warmup is None or isinstance(warmup, str) else warmup
