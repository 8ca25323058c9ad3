"""The prober: what the loop of :func:`stepe.fit` asks of the part that probes the samples."""

from abc import ABC, abstractmethod
from typing import Any

from stepe.engine.eager import EagerEngine
from stepe.engine.steps import Steps
from stepe.loop.ledger import Observation
from stepe.loop.plan import Plan
from stepe.methods import Method
from stepe.run.record import ProbeFacts


class Prober(ABC):
    """Probes the training samples, and trains whatever that takes beside the main model."""

    @property
    @abstractmethod
    def name(self) -> str:
        """The argument ``probe`` that asks for it."""

    @abstractmethod
    def train_steps(self, plan: Plan, method: Method) -> Steps[None]:
        """Train, beside the main model, the networks that the next probe needs."""

    @abstractmethod
    def probe(self, epoch: int, method: Method) -> Steps[Observation]:
        """Judge all training samples under the given labels."""

    def settle(self, epoch: int, method: Method) -> Steps[None]:
        """Choose who judges from now on, if there is a choice and enough is known."""
        return
        yield

    def findings(self) -> ProbeFacts:
        """Report who judged, for the summary."""
        return ProbeFacts(self.name)

    def state_dict(self) -> dict[str, Any]:
        """Return what a checkpoint holds."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:  # noqa: B027 (no state is a valid state)
        """Take up a saved state."""


class InSampleProber(Prober):
    """Has the model in training judge its own samples, as in the paper."""

    name = "in-sample"

    def __init__(self, engine: EagerEngine):
        self.engine = engine

    def train_steps(self, plan: Plan, method: Method) -> Steps[None]:
        """Train nobody: the main model is trained anyway."""
        return
        yield

    def probe(self, epoch: int, method: Method) -> Steps[Observation]:
        """Pass once over all samples."""
        seen = self.engine.probe(epoch, method.view, probabilities=method.needs_probabilities)
        yield self.engine.mark()
        return seen
