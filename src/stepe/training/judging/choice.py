"""Choose who probes, by the name that ``probe`` has."""

import copy
from collections.abc import Callable
from dataclasses import replace

from torch import nn

from stepe.engine.eager import EagerEngine
from stepe.errors import InputError
from stepe.loop.randomness import Stream
from stepe.loop.task import Task
from stepe.training.judging.auto import AUTO, AutoProber
from stepe.training.judging.base import InSampleProber, Prober
from stepe.training.judging.cross_fitted import CrossFittedProber
from stepe.training.judging.folds import Dealt, Folds


def make_prober(
    probe: str,
    untrained: nn.Module,
    task: Task,
    make_engine: Callable[[nn.Module, Task, float], EagerEngine],
    engine: EagerEngine,
) -> Prober:
    """Make the prober that ``probe`` names; the judges start from ``untrained``.

    ``make_engine`` is told on what share of the samples a judge trains.
    """
    in_sample = InSampleProber(engine)
    if probe == in_sample.name:
        return in_sample
    if probe != "auto" and not probe.startswith("cross:"):
        raise InputError(f"probe is {probe!r}; choose in-sample, cross:5, cross:2x2 and the like, or auto")
    folds = AUTO if probe == "auto" else Folds.parse(probe)
    dealt = Dealt.by(folds, task.labels, task.classes, task.seed)
    seeds = [Stream.named(task.seed, "prober", position).seed for position in range(folds.judges)]
    share = 1 - 1 / folds.folds
    judges = [make_engine(copy.deepcopy(untrained), replace(task, seed=seed), share) for seed in seeds]
    cross = CrossFittedProber(judges, dealt)
    return AutoProber(in_sample, cross) if probe == "auto" else cross
