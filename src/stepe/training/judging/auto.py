"""The probe that a run chooses for itself: by others, until the model is seen not to learn its labels by heart."""

from dataclasses import replace
from typing import Any

from stepe.engine.steps import Steps
from stepe.loop.ledger import Observation
from stepe.loop.plan import Plan
from stepe.methods import Method
from stepe.run.record import Contradicted, ProbeFacts
from stepe.training.judging.base import InSampleProber, Prober
from stepe.training.judging.cross_fitted import CrossFittedProber
from stepe.training.judging.folds import Folds

BY_HEART = 0.05
"""a model that contradicts fewer of the labels it trains on than of others, by more than this part, learns by heart"""
AUTO = Folds(2, 2)
"""two independent splits into halves: the price of two trainings, and where both judges agree, more to trust"""


class AutoProber(Prober):
    """Probes by others in the warm-up; then in-sample, if the model turns out not to learn its labels by heart."""

    def __init__(self, in_sample: InSampleProber, cross: CrossFittedProber):
        self.in_sample, self.cross = in_sample, cross
        self.chosen: str | None = None
        self.contradicted: dict[str, float] = {}

    @property
    def _current(self) -> Prober:
        return self.in_sample if self.chosen == self.in_sample.name else self.cross

    @property
    def name(self) -> str:
        """The one of the two that probes by now."""
        return self._current.name

    def train_steps(self, plan: Plan, method: Method) -> Steps[None]:
        """Train the judges, as long as they are needed."""
        yield from self._current.train_steps(plan, method)

    def probe(self, epoch: int, method: Method) -> Steps[Observation]:
        """Probe by the one of the two that was chosen; a model that was chosen can be believed."""
        seen = yield from self._current.probe(epoch, method)
        return replace(seen, judged_by="cleared") if seen.judged_by == "itself" else seen

    def settle(self, epoch: int, method: Method) -> Steps[None]:
        """See whether the judges contradict the labels they train on as often as those they do not.

        If they surely do, they are let go halfway through the warm-up; when it is over, a choice is made. Few samples
        say little, and in doubt the model does not judge for itself.
        """
        unseen, self.cross.unseen = self.cross.unseen, None  # what a probe of another epoch saw is out of date
        warmup = max(1, method.warmup_epochs)
        if self.chosen is not None or unseen is None or (epoch < warmup and epoch != (warmup + 1) // 2):
            return
        trained = yield from self.cross.contradicted(epoch, method)
        limit = BY_HEART * min(1.0, epoch / warmup) ** 0.5  # what is learned by heart grows with time
        by_heart = learned_by_heart(trained, unseen, method.task.n) > limit
        if by_heart and epoch < warmup:
            return
        self.contradicted = {"trained": trained, "unseen": unseen}
        self.chosen = self.cross.name if by_heart else self.in_sample.name

    def findings(self) -> ProbeFacts:
        """Report what was seen, and what follows."""
        seen = Contradicted(**self.contradicted) if self.contradicted else None
        return ProbeFacts(self.name, self.chosen is not None, seen)

    def state_dict(self) -> dict[str, Any]:
        """Return the choice, and the judges while they are needed."""
        state: dict[str, Any] = {"chosen": self.chosen, "contradicted": self.contradicted}
        return state | self._current.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take up the choice and the judges."""
        self.chosen, self.contradicted = state["chosen"], state["contradicted"]
        self._current.load_state_dict(state)


def learned_by_heart(trained: float, unseen: float, n: int) -> float:
    """Bound the part by which fewer labels are contradicted once they are trained on: a standard error is added.

    >>> round(learned_by_heart(0.72, 0.75, n=10_000), 3), round(learned_by_heart(0.72, 0.75, n=100), 3)
    (0.048, 0.123)
    """
    error = ((trained * (1 - trained) + unseen * (1 - unseen)) / n) ** 0.5
    return (unseen - trained + error) / unseen if unseen else 0.0
