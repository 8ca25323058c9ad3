"""Step-E for estimators that are not trained by epochs: trees, support vectors, whatever has ``fit`` and ``predict``.

A round stands for an epoch. Each sample is judged by clones that never trained on it, fitted on what is kept outside of
its fold; the same method then selects what the next round's clones train on.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import clone
from sklearn.dummy import DummyClassifier
from sklearn.utils import _safe_indexing
from sklearn.utils.parallel import Parallel, delayed
from torch import Tensor

from stepe.loop.ledger import Observation
from stepe.training.judging.folds import Dealt, Folds
from stepe.training.session import Session

Floats = npt.NDArray[np.float64]


MEMORY = 0.5
"""of the running guess: judges that are fitted anew weigh as much as all that was said before"""


@dataclass(frozen=True)
class Member:
    """A classifier fitted on some of the rows, which may not have seen every class."""

    estimator: Any
    classes: npt.NDArray[Any]
    """all of them"""

    def probabilities(self, x: Any) -> Floats:
        """Give one column per class; it is 0 where a class was not seen."""
        found = np.zeros((len(_rows(x)), len(self.classes)))
        found[:, np.searchsorted(self.classes, self.estimator.classes_)] = _probabilities(self.estimator, x)
        return found


@dataclass(frozen=True)
class Rounds:
    """Everything that the rounds need to fit clones of an estimator."""

    estimator: Any
    x: Any
    y: npt.NDArray[Any]
    classes: npt.NDArray[Any]
    weight: Floats | None
    seed: int
    n_jobs: int | None = None

    def run(self, session: Session, folds: Folds) -> Tensor:
        """Judge and select, round by round; returns what is kept in the end. The session has one epoch more than
        rounds: its first trains the first judges, its last the final estimator.
        """
        task = session.task
        dealt = Dealt.by(folds, task.labels, task.classes, task.seed)
        kept = torch.ones(task.n, dtype=torch.bool)
        while session.epoch < task.epochs:
            if session.wants_probe():
                session.observe(session.epoch, self._probe(kept, dealt))
            kept = session.begin_epoch().kept
            session.end_epoch()
        return kept

    def _probe(self, kept: Tensor, dealt: Dealt) -> Observation:
        """Fit a judge for every fold, on what is kept outside of it."""
        found = Parallel(n_jobs=self.n_jobs)(
            delayed(self._judge)((kept & ~part).numpy(), part.numpy()) for part in dealt.parts
        )
        return dealt.views(
            (torch.from_numpy(each).float(), torch.from_numpy(each.argmax(1))) for each in found
        ).observe()

    def _judge(self, trained: npt.NDArray[np.bool_], asked: npt.NDArray[np.bool_]) -> Floats:
        if not trained.any():
            return np.full((int(asked.sum()), len(self.classes)), 1 / len(self.classes))
        return self.fit(trained).probabilities(_safe_indexing(self.x, np.flatnonzero(asked)))

    def fit(self, rows: npt.NDArray[np.bool_]) -> Member:
        """Fit a clone on some rows; where they are all of one class, which most classifiers refuse, a constant."""
        index = np.flatnonzero(rows)
        y = self.y[index]
        estimator = seeded_clone(self.estimator, self.seed) if (y != y[0]).any() else DummyClassifier()
        weight = {} if self.weight is None else {"sample_weight": self.weight[index]}
        estimator.fit(_safe_indexing(self.x, index), y, **weight)
        return Member(estimator, self.classes)


def seeded_clone(estimator: Any, seed: int) -> Any:
    """Clone an estimator; its random states follow from the seed where they are open."""
    fresh = clone(estimator)
    opened = [name for name, value in fresh.get_params().items() if value is None and _is_random_state(name)]
    return fresh.set_params(**dict.fromkeys(opened, seed))


def _is_random_state(name: str) -> bool:
    return name.rpartition("__")[2] == "random_state"


def _rows(x: Any) -> Any:
    return range(x.shape[0]) if hasattr(x, "shape") else x


def _probabilities(estimator: Any, x: Any) -> Floats:
    """Read what a classifier says of its own classes: probabilities, scores that grow with them, or names alone."""
    if hasattr(estimator, "predict_proba"):
        return np.asarray(estimator.predict_proba(x), dtype=np.float64)
    if hasattr(estimator, "decision_function"):
        score = np.asarray(estimator.decision_function(x), dtype=np.float64)
        score = np.stack([-score / 2, score / 2], axis=1) if score.ndim == 1 else score
        return np.asarray(torch.from_numpy(score).softmax(1).numpy())
    named: Floats = (estimator.predict(x)[:, None] == estimator.classes_[None, :]).astype(np.float64)
    return named
