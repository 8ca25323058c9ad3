"""Networks that judge the samples on which they do not train.

A model that has learned its labels by heart agrees with them, right or wrong: to probe it with its own training samples
then says nothing. Here the samples are dealt to folds. For each fold a network trains on what is kept outside of it,
side by side with the main model, and judges the fold. What is dropped is dropped for these judges too.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch.optim import Optimizer

from stepe.engine.eager import EagerEngine
from stepe.engine.stack import stack_of
from stepe.engine.stack import train_steps as train_together
from stepe.engine.steps import Steps
from stepe.errors import InputError
from stepe.loop.ledger import Observation
from stepe.loop.plan import Plan
from stepe.loop.probe import among_classes
from stepe.methods import Method
from stepe.training.judging.base import Prober
from stepe.training.judging.folds import Answer, Dealt


class CrossFittedProber(Prober):
    """Has each sample judged by networks that do not train on it, one of every split."""

    def __init__(self, engines: Sequence[EagerEngine], dealt: Dealt):
        self.engines, self.dealt = engines, dealt
        self.unseen: float | None = None
        """share of the labels that the last probe contradicted, if it knew anything, until somebody has taken note"""

    @property
    def name(self) -> str:
        """The argument ``probe`` that asks for it."""
        return str(self.dealt.folds)

    def train_steps(self, plan: Plan, method: Method) -> Steps[None]:
        """Train each judge on what the plan trains on outside of its fold: small ones as one stack, others in turn."""
        parts = [self._part(position, plan) for position in range(len(self.engines))]
        if (stack := stack_of(self.engines, method)) is not None:
            yield from train_together(stack, self.engines, parts, method)
            return
        for engine, part in zip(self.engines, parts, strict=True):
            if part.count:
                yield from engine.train_steps(part, method)

    def _part(self, position: int, plan: Plan) -> Plan:
        """Take from a plan what a judge trains on."""
        outside = ~self.dealt.parts[position].to(plan.kept.device)
        return replace(
            plan,
            kept=plan.kept & outside,
            trains=None if plan.trains is None else plan.trains & outside,
            seed=self.engines[position].task.seed,
        )

    def probe(self, epoch: int, method: Method) -> Steps[Observation]:
        """Ask every judge for its own fold; probabilities are averaged over the splits."""
        answers: list[Answer] = []
        for part, engine in zip(self.dealt.parts, self.engines, strict=True):
            index = torch.nonzero(part).squeeze(1)
            seen = engine.probe(epoch, method.view, probabilities=True, only=index)
            yield engine.mark()
            if seen.probability is None or seen.prediction is None:
                raise InputError("a cross-fitted probe needs logits of shape (batch, classes) from the model")
            answers.append((among_classes(seen.probability.cpu(), self.dealt.classes), seen.prediction.cpu()))
        views = self.dealt.views(answers)
        self.unseen = views.contradicted if views.tell_something else None
        return views.observe()

    def contradicted(self, epoch: int, method: Method) -> Steps[float]:
        """Count the share of the labels that the judges predict differently, of those they train on."""
        wrong = total = 0
        for part, engine in zip(self.dealt.parts, self.engines, strict=True):
            outside = torch.nonzero(~part).squeeze(1)
            seen = engine.probe(epoch, method.view, only=outside)
            yield engine.mark()
            assert seen.prediction is not None
            wrong += int((seen.prediction.cpu() != engine.task.labels[outside]).sum())
            total += len(outside)
        return wrong / total

    def state_dict(self) -> dict[str, Any]:
        """Return the judges, with their optimizers."""
        return {
            "judges": [{"model": engine.model.state_dict(), "engine": engine.state_dict()} for engine in self.engines]
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take up the judges."""
        for engine, saved in zip(self.engines, state["judges"], strict=True):
            engine.model.load_state_dict(saved["model"])
            engine.load_state_dict(saved["engine"])


def lengthen_steps(optimizer: Optimizer, share: float) -> None:
    """Have a model that trains on a share of the samples come as far as one that trains on all of them.

    It takes fewer steps, and those of Adam and others with betas are as long as their rate, whatever the gradients:
    they become longer. SGD's grow with the gradients, and a larger rate may be one at which a model diverges.
    """
    for group in optimizer.param_groups:
        if "betas" in group:
            group["lr"] = group["lr"] / share  # not in place: a rate that is a tensor is everybody's
