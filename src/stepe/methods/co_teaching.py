"""Co-teaching: two networks, and each trains on the samples of a batch that the other finds easy.

Han et al., *Co-teaching: Robust Training of Deep Neural Networks with Extremely Noisy Labels*, 2018, Algorithm 1. A
network that chooses for itself confirms its own mistakes; two that started differently make different ones.
"""

from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from stepe.beliefs.belief import Belief
from stepe.beliefs.rate import CAP_OF_ESTIMATE, Rate
from stepe.errors import InputError
from stepe.loop.ledger import Ledger, Observation, read_rows
from stepe.loop.plan import Plan
from stepe.loop.probe import among_classes, check_losses
from stepe.loop.randomness import Stream
from stepe.loop.schedule import check_drop_fraction, default_warmup
from stepe.loop.task import Batch, Forward, Task
from stepe.methods.parts.contradiction import believe_contradictions
from stepe.methods.parts.guesses import believe_guess
from stepe.methods.plain import Plain
from stepe.models.pair import Pair, redrawn
from stepe.options import Option

ROUNDING = 1e-4
"""error of a share in single precision, which is all that some devices have, times the samples of a batch"""


@dataclass
class CoTeaching(Plain):
    """Train each network, in epoch T, on the ``1 - min(T / T_k, 1) * tau`` of a batch with the smallest losses of the
    other one. Both see every sample, so nothing counts as dropped.
    """

    name: ClassVar[str] = "co-teaching"
    summary: ClassVar[str] = "two networks choose the samples with small losses for each other"
    paper: ClassVar[str] = "Han et al., 2018"
    networks: ClassVar[int] = 2

    rho_max: Annotated[
        float | Literal["auto"] | None,
        Option(
            "Share of a batch that is left out in the end: tau; auto: it is estimated once, after a sixth of the run.",
            default="`noise_rate` where that is known, else auto",
            min=0,
            below=1,
        ),
    ] = None
    ramp: Annotated[int, Option("Epochs until that share is reached: T_k.", min=1)] = 10

    def resolved(self, task: Task) -> dict[str, Any]:
        """Name every option, with the share that follows from the noise rate."""
        known = task.noise_rate if self.rho_max is None else self.rho_max
        return super().resolved(task) | {"rho_max": "auto" if known is None else known}

    def start(self, task: Task, ledger: Ledger) -> None:
        """Resolve tau, if it is known."""
        super().start(task, ledger)
        known = self.resolved(task)["rho_max"]
        if known == "auto":
            self.needs_probabilities, self._tau = True, 0.0
        else:
            check_drop_fraction(known)
            self.needs_probabilities, self._tau = False, known
        if self.needs_probabilities and task.kind != "classes":
            raise InputError(
                f"how many labels are wrong can be estimated for classes alone, and these are {task.kind}: give "
                "rho_max, the share to leave out, or noise_rate, the share that is wrong"
            )
        self._estimate: Rate | None = None
        self._forgotten = torch.zeros((), device=task.device)
        self._trusted = None if task.trusted is None else task.trusted.to(task.device)

    def network(self, model: nn.Module) -> nn.Module:
        """Pair the model with a second one that starts from other weights; a pair stays as it is."""
        if isinstance(model, Pair):
            return model
        return Pair(model, redrawn(model, Stream.named(self.task.seed, "second network")))

    def trained(self, network: nn.Module) -> nn.Module:
        """Return the first of the two."""
        assert isinstance(network, Pair)
        return network.first

    def wants_probe(self, epoch: int) -> bool:
        """Ask, to estimate tau, after a sixth of the run and, where that says nothing, again."""
        return self._is_open and epoch >= max(1, default_warmup(self.task.epochs))

    @property
    def _is_open(self) -> bool:
        return self.needs_probabilities and (self._estimate is None or self._estimate.is_unknown)

    def observe(self, epoch: int, seen: Observation, ledger: Ledger) -> None:
        """Take in a probe, and estimate tau if that is still open."""
        super().observe(epoch, seen, ledger)
        if not self._is_open:
            return
        if seen.probability is None:
            raise InputError("rho_max='auto' needs logits of shape (batch, classes); give rho_max as a number")
        guess = among_classes(seen.probability, self.task.classes)
        self._estimate = believe_guess(self.task, guess, seen.judged_by).rate
        self._tau = min(CAP_OF_ESTIMATE, self._estimate.rate)

    def plan(self, epoch: int, ledger: Ledger) -> Plan:
        """Plan an epoch on all samples; each batch leaves a part of them out."""
        return replace(super().plan(epoch, ledger), drop_fraction=self._share_forgotten(epoch))

    def prepare(self, epoch: int) -> None:
        """Put how many of a batch to leave out where a graph can read it."""
        self._forgotten.fill_(self._share_forgotten(epoch))

    def _share_forgotten(self, epoch: int) -> float:
        return self._tau * min(1.0, epoch / self.ramp)

    def loss(self, forward: Forward, batch: Batch) -> Tensor:
        """Add the losses of both networks, each on what the other has chosen: their weights have nothing in common, so
        each gets the gradient of its own. Under torchrun, they choose in each process's share of a batch.
        """
        outputs, n = forward(batch.x), len(batch.y)
        if len(outputs) != 2 * n:
            raise InputError(
                f"co-teaching trains a pair of networks, and {n} samples gave {len(outputs)} outputs instead of "
                f"{2 * n}; in a loop of your own, train model = cleaner.method.network(model)"
            )
        first, second = (self._losses(part, batch) for part in torch.split(outputs, n))
        return self._mean_of_chosen(first, by=second, batch=batch) + self._mean_of_chosen(second, by=first, batch=batch)

    def _losses(self, outputs: Tensor, batch: Batch) -> Tensor:
        losses = self.task.criterion(outputs, batch.target)
        check_losses(losses, len(batch.y))
        return losses

    def _mean_of_chosen(self, losses: Tensor, *, by: Tensor, batch: Batch) -> Tensor:
        """Average the losses that the other network has chosen."""
        trusted = None if self._trusted is None else read_rows(self._trusted, batch.index)
        chosen = small_losses(by, self._forgotten.to(by.device), trusted)
        # A loss that was not chosen counts nothing, even where it is infinite (0 * inf is NaN).
        return batch.mean(losses.masked_fill(~chosen, 0)) * len(losses) / chosen.sum()

    def make_belief(self, ledger: Ledger) -> Belief:
        """Make the belief with the rate that tau comes from."""
        return believe_contradictions(ledger, self.task, found=self._estimate)

    def findings(self) -> dict[str, Any]:
        """Return tau, as the largest share that was left out."""
        return {"rho_max": self._tau}

    def state_dict(self) -> dict[str, Any]:
        """Save tau, where it comes from, and the epoch's share of it."""
        estimate = None if self._estimate is None else self._estimate.to_json()
        return {"tau": self._tau, "estimate": estimate, "forgotten": self._forgotten}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take up a saved state."""
        self._tau = state["tau"]
        self._estimate = None if state["estimate"] is None else Rate(**state["estimate"])
        self._forgotten.copy_(state["forgotten"])


def small_losses(losses: Tensor, forgotten: Tensor, trusted: Tensor | None = None) -> Tensor:
    """Say which losses of a batch are small: all but the ``forgotten`` share; of equal ones, the earlier.

    ``trusted`` ones are among them. By rank, because a graph cannot hold a choice whose size depends on the data.

    >>> small_losses(torch.tensor([0.1, 2.0, 0.3, float("nan")]), torch.tensor(0.5))
    tensor([ True, False,  True, False])
    """
    losses = losses.detach()
    count = len(losses) - torch.floor(forgotten * len(losses) + ROUNDING)
    if trusted is not None:
        losses = losses.masked_fill(trusted, -torch.inf)
        count = torch.maximum(count, trusted.sum())
    rank = torch.argsort(torch.argsort(losses, stable=True), stable=True)
    return rank < count
