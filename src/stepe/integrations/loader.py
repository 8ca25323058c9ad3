"""The batches of a plan for somebody's own loop: a ``DataLoader`` that follows it, and the sampler under it."""

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Sampler, WeightedRandomSampler

from stepe.errors import InputError, RunError
from stepe.loop.plan import Plan, Share, batch_sizes
from stepe.loop.processes import Ranks
from stepe.loop.randomness import Stream
from stepe.samples.given_labels import as_tensor
from stepe.samples.samples import Draw, DrawnDataset, draws

if TYPE_CHECKING:
    from stepe.integrations.torch import StepE

ITERATE_INSIDE = "no epoch is on; iterate over the loader inside `for epoch in cleaner.epochs(model):`"


class PlannedLoader(DataLoader[Any]):
    """A ``DataLoader`` over a plan, which knows how far the loop has come."""

    def __init__(self, cleaner: "StepE", sampler: "PlanSampler", **options: Any):
        dataset = DrawnDataset(cleaner.drawable().dataset)
        sampler.with_draws = True
        # A generator of its own, so that iterating does not advance the global one.
        super().__init__(dataset, batch_sampler=sampler, generator=torch.Generator(), **options)
        self._cleaner, self.planned = cleaner, sampler

    def __iter__(self) -> Any:
        cleaner = self._cleaner
        shares = self.planned.begin()
        cleaner.done, cleaner.awaits_loss = shares[0].step if shares else 0, False
        for share, batch in zip(shares, super().__iter__(), strict=True):
            self._check_loss()
            cleaner.share, cleaner.awaits_loss = share, cleaner.has_own_loss
            cleaner.done = share.step + 1
            yield batch
        self._check_loss()

    def _check_loss(self) -> None:
        if self._cleaner.awaits_loss:
            raise InputError(
                f"method {self._cleaner.method.name!r} does more than choose samples: train on cleaner.loss(model, x) "
                "instead of a loss of your own"
            )


class PlanSampler(Sampler[Any]):
    """Carries out the current plan of a :class:`StepE`: this process's share of every batch."""

    def __init__(self, cleaner: "StepE", batch_size: int, chance: Tensor | None = None):
        self.cleaner, self.batch_size, self.chance = cleaner, batch_size, chance
        self.with_draws = False
        self.may_be_remade = False
        """whether the loader that this belongs to may be taken apart, by a framework that knows what it does"""
        self._begun: list[Share] | None = None

    def __len__(self) -> int:
        plan = self._plan()
        count = self.cleaner.task.n if plan is None else plan.count
        return len(batch_sizes(count, self.batch_size, Ranks.current().world))

    def begin(self) -> list[Share]:
        """Return what is to come of this epoch; the next iterator gives it."""
        plan, cleaner = self._plan(), self.cleaner
        if plan is None or not cleaner.is_on:
            raise RunError(ITERATE_INSIDE)
        self._begun = cleaner.shares(self.batch_size, plan)[cleaner.skip :]
        cleaner.skip, cleaner.gave_batches = 0, True
        return self._begun

    def __iter__(self) -> Iterator[Any]:
        if self.with_draws and self._begun is None and not self.may_be_remade:
            raise RunError(
                "another loader was made of cleaner.loader(), and batches would be shared out twice; leave it out of "
                "accelerator.prepare(): it needs no preparing"
            )
        shares, self._begun = self._begun if self._begun is not None else self.begin(), None
        for share in shares:
            yield self._draws(share) if self.with_draws else share.index.tolist()

    def _plan(self) -> Plan | None:
        plan, cleaner = self.cleaner.plan, self.cleaner
        if plan is None or self.chance is None:
            return plan
        count = cleaner.task.n if cleaner.length == "full" else int(plan.kept.sum())
        return replace(plan, chance=self.chance, length=count)

    def _draws(self, share: Share) -> list[Draw]:
        assert self.cleaner.plan is not None
        stream = Stream.named(self.cleaner.task.seed, "augment", self.cleaner.plan.epoch)
        if share.occurrence is None:
            return draws(share.index, stream)
        # A sample that comes again draws anew.
        keys = stream.bits(share.index + self.cleaner.task.n * share.occurrence)
        return [(index, key, False) for index, key in zip(share.index.tolist(), keys.tolist(), strict=True)]


def take_weights(weights: Any, options: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Take the weights of a weighted sampler; any other sampler would choose samples beside the plan."""
    sampler = options.get("sampler")
    if sampler is None:
        return weights, options
    rest = {name: value for name, value in options.items() if name != "sampler"}
    if not isinstance(sampler, WeightedRandomSampler) or not sampler.replacement or weights is not None:
        raise InputError(
            f"leave the loader option sampler={type(sampler).__name__} out: batches follow the plan, which shuffles "
            "them and deals them out under torchrun; a WeightedRandomSampler with replacement, or weights=, goes "
            "together with it, and others work through cleaner.reduce(losses, index)"
        )
    return sampler.weights, rest


def check_chance(weights: Any, n: int) -> Tensor:
    """Take how likely each sample is drawn, as one finite number each."""
    found = as_tensor(weights).double().cpu()
    if found.shape != (n,) or not bool((torch.isfinite(found) & (found >= 0)).all()) or not float(found.sum()) > 0:
        raise InputError(
            f"weights have shape {tuple(found.shape)}; give one finite number a sample ({n}), none negative, not all 0"
        )
    return found
