"""Prune by confident learning, then train on the rest: what people do with cleanlab, in one call."""

import time
from collections.abc import Callable
from typing import Any

from torch import Tensor

from stepe.methods import Method
from stepe.methods.pruned import Part, Pruned
from stepe.samples.given_labels import check_labels
from stepe.training.building import Result
from stepe.training.judging.folds import Dealt, Folds

Train = Callable[[Method], Result]
"""trains a new model by a method: ``lambda method: stepe.fit(make_model(), x, y, method=method)``"""


def prune(
    train: Train, labels: Any, *, method: Pruned | None = None, seed: int = 0, judge: Train | None = None
) -> Result:
    """Train judges, each on all folds but the one that it judges; prune; train a model on the rest.

    ``judge`` trains the judges, where that is less than what ``train`` does for the last model: they need no test data
    and no run folder. A resumed run judges anew, to the same end.
    """
    given = check_labels(labels, len(labels))
    method, started = method or Pruned(), time.perf_counter()
    method.guess = out_of_fold(judge or train, given, folds=method.folds, seed=seed)
    method.seconds_before = time.perf_counter() - started
    return train(method)


def out_of_fold(train: Train, labels: Tensor, *, folds: int = 5, seed: int = 0) -> Tensor:
    """Tell how likely every class is to every sample (n x classes), by a model that was trained without it."""
    dealt = Dealt.by(Folds(folds), labels, int(labels.max()) + 1, seed)
    guesses = (train(Part(~part)).ledger["guess"][part] for part in dealt.parts)
    return dealt.views((guess, guess.argmax(1)) for guess in guesses).probability
