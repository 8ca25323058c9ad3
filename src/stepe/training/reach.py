"""The reach of the probe: whether a sample is judged by the model that trains on it.

A model that has learned its labels by heart agrees with them, right or wrong: probing it with its own training samples
then says nothing. A cross-fitted probe has every sample judged by models that never trained on it: the samples are
split into folds, a prober for each trains on what is kept outside of it, side by side with the main model, and judges
the fold. The elimination cleans the probers too.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from stepe.engine.eager import EagerEngine
from stepe.engine.stack import stack_of
from stepe.engine.stack import train_steps as train_together
from stepe.engine.steps import Steps
from stepe.errors import InputError
from stepe.evidence.noise_rate import has_learned
from stepe.loop.ledger import Observation
from stepe.loop.plan import Plan
from stepe.loop.probe import among_classes, judged
from stepe.loop.randomness import Stream
from stepe.methods.base import Method

BY_HEART = 0.05
"""who may contradict fewer of the labels it trains on than of unseen ones, by more than this part, learns by heart"""
AUTO = "2x2"
"""two independent splits into halves: the price of two trainings, and where both probers agree, more to trust"""


@dataclass(frozen=True)
class Folds:
    """How a cross-fitted probe splits the samples."""

    folds: int
    splits: int = 1

    @classmethod
    def parse(cls, text: str) -> "Folds":
        """``5``, or ``2x3``: three independent splits into two folds.

        >>> Folds.parse("2x3")
        Folds(folds=2, splits=3)
        """
        found = re.fullmatch(r"(\d+)(?:x(\d+))?", text)
        folds, splits = (int(found[1]), int(found[2] or 1)) if found else (0, 0)
        if folds < 2 or splits < 1:
            raise InputError(f"probe is 'cross:{text}'; write cross:5, or cross:2x2 for two splits into two folds")
        return cls(folds, splits)

    def deal(self, labels: Tensor, seed: int) -> Tensor:
        """The fold of every sample, a row per split; each class is spread evenly over the folds."""
        rows = []
        for split in range(self.splits):
            order = Stream.named(seed, "folds", split).shuffle(torch.arange(len(labels)))
            order = order[torch.argsort(labels[order], stable=True)]
            fold = torch.empty(len(labels), dtype=torch.int64)
            fold[order] = torch.arange(len(labels)) % self.folds
            rows.append(fold)
        return torch.stack(rows)


def learned_by_heart(trained: float, unseen: float, n: int) -> float:
    """By what part fewer labels are contradicted if they were trained on, at most: a standard error is added.

    >>> round(learned_by_heart(0.72, 0.75, n=10_000), 3), round(learned_by_heart(0.72, 0.75, n=100), 3)
    (0.048, 0.123)
    """
    error = ((trained * (1 - trained) + unseen * (1 - unseen)) / n) ** 0.5
    return (unseen - trained + error) / unseen if unseen else 0.0


class Reach(ABC):
    """Who judges the training samples."""

    @abstractmethod
    def train_steps(self, plan: Plan, method: Method) -> Steps[None]:
        """Train, beside the main model, whoever is needed for the next probe."""

    @abstractmethod
    def probe(self, epoch: int, method: Method) -> Steps[Observation]:
        """Judge all training samples under the given labels."""

    def settle(self, epoch: int, method: Method) -> Steps[None]:
        """Choose, if there is a choice and enough is known."""
        return
        yield

    @property
    @abstractmethod
    def name(self) -> str:
        """As a user writes it."""

    def findings(self) -> dict[str, Any]:
        """For the summary and the report."""
        return {"reach": self.name}

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint holds."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:  # noqa: B027 (no state is a valid state)
        """Take up a saved state."""


class InSample(Reach):
    """The model in training judges its own samples, as in the paper."""

    name = "in-sample"

    def __init__(self, engine: EagerEngine):
        self.engine = engine

    def train_steps(self, plan: Plan, method: Method) -> Steps[None]:
        """Nobody else has to train."""
        return
        yield

    def probe(self, epoch: int, method: Method) -> Steps[Observation]:
        """One pass over all samples."""
        seen = self.engine.probe(epoch, method.view, probabilities=method.needs_probabilities)
        yield self.engine.mark()
        return seen


class CrossFitted(Reach):
    """Each sample is judged by one prober of every split, none of which trains on it."""

    def __init__(self, engines: Sequence[EagerEngine], folds: Folds, dealt: Tensor):
        self.engines, self.folds, self.dealt = engines, folds, dealt
        self.unseen: float | None = None
        """share of the labels that the last probe contradicted, until somebody has taken note of it"""

    @property
    def name(self) -> str:
        """As a user writes it."""
        return f"cross:{self.folds.folds}x{self.folds.splits}"

    def train_steps(self, plan: Plan, method: Method) -> Steps[None]:
        """Each prober on what the plan trains on outside of its fold; small ones as one stack, others in turn."""
        parts = [self._part(position, plan) for position in range(len(self.engines))]
        if (stack := stack_of(self.engines, method)) is not None:
            yield from train_together(stack, self.engines, parts, method)
            return
        for engine, part in zip(self.engines, parts, strict=True):
            if part.count:
                yield from engine.train_steps(part, method)

    def _part(self, position: int, plan: Plan) -> Plan:
        """What of a plan a prober trains on."""
        split, fold = divmod(position, self.folds.folds)
        outside = (self.dealt[split] != fold).to(plan.kept.device)
        return replace(
            plan,
            kept=plan.kept & outside,
            trains=None if plan.trains is None else plan.trains & outside,
            seed=self.engines[position].task.seed,
        )

    def probe(self, epoch: int, method: Method) -> Steps[Observation]:
        """Every prober on its own fold; probabilities are averaged over the splits."""
        task = self.engines[0].task
        total = torch.zeros(task.n, task.classes)
        predictions = torch.zeros(self.folds.splits, task.n, dtype=torch.int64)
        for position, engine in enumerate(self.engines):
            split, fold = divmod(position, self.folds.folds)
            index = torch.nonzero(self.dealt[split] == fold).squeeze(1)
            seen = engine.probe(epoch, method.view, probabilities=True, only=index)
            yield engine.mark()
            if seen.probability is None or seen.prediction is None:
                raise InputError("a cross-fitted probe needs logits of shape (batch, classes) from the model")
            total[index] += among_classes(seen.probability.cpu(), task.classes)
            predictions[split, index] = seen.prediction.cpu()
        self.unseen = float((predictions != task.labels).double().mean())
        return judged(total / self.folds.splits, task.labels, (predictions != predictions[0]).any(0))

    def contradicted(self, epoch: int, method: Method) -> Steps[float]:
        """Share of the labels that the probers predict differently, of those they train on."""
        wrong = total = 0
        for position, engine in enumerate(self.engines):
            split, fold = divmod(position, self.folds.folds)
            outside = torch.nonzero(self.dealt[split] != fold).squeeze(1)
            seen = engine.probe(epoch, method.view, only=outside)
            yield engine.mark()
            assert seen.prediction is not None
            wrong += int((seen.prediction.cpu() != engine.task.labels[outside]).sum())
            total += len(outside)
        return wrong / total

    def state_dict(self) -> dict[str, Any]:
        """The probers, with their optimizers."""
        return {
            "probers": [{"model": engine.model.state_dict(), "engine": engine.state_dict()} for engine in self.engines]
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take up the probers."""
        for engine, saved in zip(self.engines, state["probers"], strict=True):
            engine.model.load_state_dict(saved["model"])
            engine.load_state_dict(saved["engine"])


class Watched(Reach):
    """Cross-fitted in the warm-up; then in-sample, if the model turns out not to learn its labels by heart."""

    def __init__(self, in_sample: InSample, cross: CrossFitted):
        self.in_sample, self.cross = in_sample, cross
        self.chosen: str | None = None
        self.contradicted: dict[str, float] = {}

    @property
    def _current(self) -> Reach:
        return self.in_sample if self.chosen == self.in_sample.name else self.cross

    @property
    def name(self) -> str:
        """Whichever it is by now."""
        return self._current.name

    def train_steps(self, plan: Plan, method: Method) -> Steps[None]:
        """The probers, as long as they are needed."""
        yield from self._current.train_steps(plan, method)

    def probe(self, epoch: int, method: Method) -> Steps[Observation]:
        """By whoever is in charge; who was chosen can be believed."""
        seen = yield from self._current.probe(epoch, method)
        return replace(seen, judged_by="cleared") if seen.judged_by == "itself" else seen

    def settle(self, epoch: int, method: Method) -> Steps[None]:
        """See whether the probers contradict the labels they train on as often as those they do not.

        If they surely do, they are let go halfway through the warm-up; when it is over, a choice is made. Few samples
        say little, and in doubt nobody judges for himself.
        """
        unseen, self.cross.unseen = self.cross.unseen, None  # what a probe of another epoch saw is out of date
        warmup = max(1, method.warmup_epochs)
        if self.chosen is not None or unseen is None or (epoch < warmup and epoch != (warmup + 1) // 2):
            return
        if not has_learned(1 - unseen, method.task.labels):
            return  # too early to tell
        trained = yield from self.cross.contradicted(epoch, method)
        limit = BY_HEART * min(1.0, epoch / warmup) ** 0.5  # what is learned by heart grows with time
        by_heart = learned_by_heart(trained, unseen, method.task.n) > limit
        if by_heart and epoch < warmup:
            return
        self.contradicted = {"trained": trained, "unseen": unseen}
        self.chosen = self.cross.name if by_heart else self.in_sample.name

    def findings(self) -> dict[str, Any]:
        """What was seen, and what follows."""
        return {"reach": self.name, "chosen": self.chosen is not None, "contradicted": self.contradicted}

    def state_dict(self) -> dict[str, Any]:
        """The choice, and the probers while they are needed."""
        state: dict[str, Any] = {"chosen": self.chosen, "contradicted": self.contradicted}
        return state | self._current.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take up the choice and the probers."""
        self.chosen, self.contradicted = state["chosen"], state["contradicted"]
        self._current.load_state_dict(state)
