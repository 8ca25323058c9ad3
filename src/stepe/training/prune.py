"""Prune by confident learning, then train on the rest: what people do with cleanlab, in one call."""

import time
from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from stepe.methods.pruned import Part, Pruned
from stepe.samples.given_labels import check_labels, read_labels
from stepe.training.building import Result
from stepe.training.fit import fit
from stepe.training.judging.folds import Dealt, Folds

ABOUT_THE_SECOND = {"run", "resume", "checkpoint_every", "observers", "test", "truth", "trusted", "groups"}
"""arguments of ``fit`` that the models which only judge do without"""


def prune(
    make_model: Callable[[], nn.Module], data: Any, labels: Any = None, *, folds: int = 5, seed: int = 0, **options: Any
) -> Result:
    """Train ``folds`` models, each to judge the samples it has not seen; prune; train one on the rest.

    ``make_model`` makes an untrained model, the same each time; ``options`` are those of :func:`stepe.fit`. A resumed
    run judges anew, to the same end.
    """
    if isinstance(data, tuple) and len(data) == 2:
        data, labels = data[0], data[1] if labels is None else labels
    given = check_labels(read_labels(data) if labels is None else labels, len(data))
    method, started = Pruned(folds), time.perf_counter()
    method.guess = out_of_fold(make_model, data, given, folds=folds, seed=seed, **options)
    method.seconds_before = time.perf_counter() - started
    return fit(make_model(), data, given, method=method, seed=seed, **options)


def out_of_fold(
    make_model: Callable[[], nn.Module], data: Any, labels: Tensor, *, folds: int = 5, seed: int = 0, **options: Any
) -> Tensor:
    """How likely every class is to every sample (n x classes), by a model that was trained without it."""
    options = {name: value for name, value in options.items() if name not in ABOUT_THE_SECOND}
    dealt = Dealt.by(Folds(folds), labels, int(labels.max()) + 1, seed)
    answers = []
    for part in dealt.parts:
        judge = fit(make_model(), data, labels, method=Part(~part), seed=seed, **options)
        guess = judge.ledger["guess"][part]
        answers.append((guess, guess.argmax(1)))
    return dealt.views(answers).probability
