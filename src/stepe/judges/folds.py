"""Any classifier of scikit-learn as a judge: every row is judged by clones that were fitted without its block."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import clone
from sklearn.utils import _safe_indexing
from sklearn.utils.parallel import Parallel, delayed
from sklearn.utils.validation import has_fit_parameter

from stepe.judges.base import Floats, Settings, View
from stepe.judges.blocks import Blocks, Frequencies
from stepe.judges.likelihood import Fit, logarithm, sample_of_rows, softmax, tempered


@dataclass(frozen=True)
class InFolds:
    """A judge by a classifier in folds of whole blocks, dealt anew in each repeat.

    A classifier learns labels: of a soft target it is told the likeliest class, with a weight as large as that class's
    probability, if it takes weights. The rest of the target is lost; judges by regression see all of it.
    """

    name: str
    classifier: Any
    rows: Any
    """an array, a sparse matrix or a DataFrame: whatever the classifier reads"""
    blocks: Blocks
    folds: int = 5
    repeats: int = 1
    seed: int = 0
    jobs: int | None = None
    """clones that are fitted at once; by default one after another"""

    def look(self, weights: Floats, targets: Floats, settings: Settings | None = None) -> View:
        """Fit a clone for every fold, on the rows that count outside of it."""
        mean = np.zeros_like(targets)
        for repeat in range(self.repeats):
            fold = self._deal(repeat)
            parts = [(number, np.flatnonzero(fold == number)) for number in range(self.folds)]
            parts = [(number, asked) for number, asked in parts if len(asked)]
            found = Parallel(n_jobs=self.jobs or 1)(
                delayed(self._ask)(asked, weights * (fold != number), targets, repeat) for number, asked in parts
            )
            for (_, asked), said in zip(parts, found, strict=True):
                mean[asked] += said
        mean /= self.repeats
        if settings is None:
            some = sample_of_rows(weights, targets.shape[1])
            fit = Fit(logarithm(mean[some]), weights[some], targets[some])
            settings = {"temperature": fit.best_temperature()}
        return View(tempered(mean, settings["temperature"], out=mean), settings)

    def _deal(self, repeat: int) -> npt.NDArray[np.int64]:
        """Deal each row a fold: blocks in random order, so that folds get as many rows."""
        order = np.random.default_rng((self.seed, repeat)).permutation(self.blocks.count)
        before = np.cumsum(self.blocks.sizes[order]) - self.blocks.sizes[order]
        fold = np.empty(self.blocks.count, dtype=np.int64)
        fold[order] = np.minimum(before * self.folds // max(1, len(self.blocks.number)), self.folds - 1)
        return fold[self.blocks.number]

    def _ask(self, asked: npt.NDArray[np.int64], weights: Floats, targets: Floats, repeat: int) -> Floats:
        """Ask a clone about rows that it was not fitted on; a class that it did not see gets its frequency."""
        seen = np.flatnonzero(weights)
        labels = targets[seen].argmax(1)
        found = Frequencies(self.blocks, weights, targets).around(asked)
        classes = np.unique(labels)
        if len(classes) < 2:  # most classifiers refuse a single class
            return found
        fitted = seeded_clone(self.classifier, self.seed + repeat)
        sure = weights[seen] * targets[seen].max(1)
        weighted = {"sample_weight": sure} if has_fit_parameter(fitted, "sample_weight") else {}
        fitted.fit(_safe_indexing(self.rows, seen), labels, **weighted)
        share = found[:, classes].sum(1, keepdims=True)
        found[:, classes] = probabilities(fitted, _safe_indexing(self.rows, asked)) * share
        return found


def seeded_clone(estimator: Any, seed: int) -> Any:
    """Clone an estimator; its random states, those of its parts too, follow from the seed where they are open."""
    fresh = clone(estimator)
    opened = [name for name, value in fresh.get_params().items() if value is None and _is_random_state(name)]
    return fresh.set_params(**dict.fromkeys(opened, seed))


def _is_random_state(name: str) -> bool:
    return name.rpartition("__")[2] == "random_state"


def probabilities(classifier: Any, rows: Any) -> Floats:
    """Read what a classifier says of its own classes: probabilities, scores that grow with them, or names alone."""
    if hasattr(classifier, "predict_proba"):
        return np.asarray(classifier.predict_proba(rows), dtype=np.float64)
    if hasattr(classifier, "decision_function"):
        score = np.asarray(classifier.decision_function(rows), dtype=np.float64)
        return softmax(np.stack([-score / 2, score / 2], axis=1) if score.ndim == 1 else score)
    named: Floats = (classifier.predict(rows)[:, None] == classifier.classes_[None, :]).astype(np.float64)
    return named
