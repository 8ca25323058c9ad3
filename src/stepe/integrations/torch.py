"""Step-E inside a training loop of your own.

.. code-block:: python

    cleaner = stepe.StepE(train, epochs=60, rho_max=0.45)
    loader = cleaner.loader(batch_size=128, num_workers=4)
    for epoch in cleaner.epochs(model):       # probes and selects
        for x, y in loader:                   # your loop, untouched
            ...
    cleaner.issues.to_csv("issues.csv")
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Sampler, WeightedRandomSampler

from stepe.errors import InputError, RunError
from stepe.integrations.core import BatchForward, Cleaner, Probing
from stepe.integrations.heard import Heard
from stepe.loop.labels import with_residuals
from stepe.loop.plan import Plan, Share, batch_sizes
from stepe.loop.probe import check_losses
from stepe.loop.randomness import Stream
from stepe.loop.ranks import Ranks
from stepe.methods import Batch, Forward
from stepe.samples.given_labels import as_tensor
from stepe.samples.samples import DatasetSamples, Draw, DrawnDataset, draws
from stepe.training.building import check_batch_size

ITERATE_INSIDE = "no epoch is on; iterate over the loader inside `for epoch in cleaner.epochs(model):`"


class StepE(Cleaner):  # noqa: D101 (the base class says it all)
    __doc__ = Cleaner.__doc__

    is_on = False
    """whether an epoch is being trained"""
    share: Share | None = None
    """the batch that :meth:`loader` gave last"""
    awaits_loss = False
    """whether :meth:`loss` has to be called before the next batch"""

    @cached_property
    def _heard(self) -> Heard:
        return Heard()

    # -- Epochs -------------------------------------------------------------------------------------------------

    def epochs(
        self,
        model: nn.Module | None = None,
        *,
        forward: BatchForward | None = None,
        probe_batch_size: int = 512,
        probe_loader: DataLoader[Any] | None = None,
    ) -> Iterator[int]:
        """Yields the epochs; before each, probes the model if the method asks and selects what to train on.

        Args:
            model: what is trained; without it, the losses given to :meth:`reduce` stand in for the probe.
            forward: turns (model, batch) into one loss per sample, or into (losses, logits), if the criterion of
                ``model(x)`` is not yours.
            probe_loader: your own, for the probe; it must read all samples in their order.
        """
        how = Probing(forward, probe_batch_size, probe_loader)
        if self.samples is None and model is not None and probe_loader is None:
            raise InputError(
                "a stream cannot be probed: leave the model out of epochs() and train on "
                "cleaner.reduce(losses, index), which learns from the training losses"
            )

        def observe(epoch: int) -> None:
            self._listen(epoch) if model is None else self.probe(model, epoch, how)

        try:
            while self.epoch < self.task.epochs:
                self.skip = self.done
                self.begin_epoch(observe)
                self.is_on = True
                yield self.epoch
                self.end_epoch()
        finally:
            self.is_on, self.share = False, None
        observe(self.task.epochs)  # the last word on every sample

    def _listen(self, epoch: int) -> None:
        if self._heard.empty():
            raise RunError(
                "no losses were heard to choose samples by; call cleaner.reduce(losses, index) on every batch, with a "
                "warm-up of at least one epoch, or give epochs(model) the model to probe"
            )
        heard = with_residuals(self._heard.observation(self.ledger), self.task.labels)
        self.method.observe(epoch, heard, self.ledger)

    @property
    def progress(self) -> float:
        """Share of the run that was done before this batch: for learning rates of your own."""
        return self.epoch / self.task.epochs if self.share is None else self.share.progress

    # -- Batches ------------------------------------------------------------------------------------------------

    def loader(self, batch_size: int, *, weights: Any = None, **options: Any) -> "PlannedLoader":
        """A ``DataLoader`` over the samples this epoch keeps; options pass through.

        Make it once. Every kept sample comes once an epoch, in an order and with random draws of its own, however
        many workers there are. Under torchrun each process gets its share of every batch: ``batch_size`` counts all
        of them together.

        Args:
            weights: one per sample: how likely it is drawn, as by a ``WeightedRandomSampler``, of which an existing
                one may be given as ``sampler=``. Dropped samples are not drawn.
        """
        weights, options = _take_weights(weights, options)
        if options.get("num_workers", 0) > 0:
            options.setdefault("persistent_workers", True)
        samples = self._samples()
        self.samples = DatasetSamples(samples.dataset, samples.plain, **options)
        return PlannedLoader(self, self._sampler(batch_size, weights), **options)

    def batch_sampler(self, batch_size: int, *, weights: Any = None) -> "PlanSampler":
        """Batches of sample indices, for a ``DataLoader(dataset, batch_sampler=...)`` of your own."""
        self._samples()
        if self.has_own_loss:
            raise InputError(
                f"method {self.method.name!r} does more than choose samples; take the batches from cleaner.loader(), "
                "and train on cleaner.loss(model, x)"
            )
        return self._sampler(batch_size, weights)

    def _sampler(self, batch_size: int, weights: Any) -> "PlanSampler":
        chance = None if weights is None else _check_chance(weights, self.task.n)
        return PlanSampler(self, check_batch_size(batch_size, self.task.n), chance)

    def _samples(self) -> DatasetSamples:
        if self.samples is None:
            raise InputError(
                "a stream has no batches of ours: train on yours, and turn their losses into one by "
                "cleaner.reduce(losses, index)"
            )
        return self.samples

    # -- Losses -------------------------------------------------------------------------------------------------

    def loss(self, forward: Forward, x: Any) -> Tensor:
        """The method's loss of the batch that :meth:`loader` just gave, whose inputs are ``x``.

        For methods that change more than the choice of samples, and for exact gradients where processes have uneven
        shares of a batch: ``cleaner.loss(model, x)`` in place of ``F.cross_entropy(model(x), y)``.
        """
        if self.share is None or self.plan is None:
            raise RunError(
                "there is no batch to take the loss of; call cleaner.loss() inside of a loop over its loader"
            )
        self.awaits_loss = False
        device, share, target = _device_of(x), self.share, self.plan.target
        y = self.task.labels[share.index].to(device)
        batch = Batch(
            x=x,
            y=y,
            target=y if target is None else target[share.index.to(target.device)].to(device),
            index=share.index.to(device),
            weight=None if share.weight is None else share.weight.to(device),
            total_weight=share.total_weight,
        )
        return self.method.loss(forward, batch)

    def reduce(self, losses: Tensor, index: Any, *, logits: Tensor | None = None) -> Tensor:
        """The mean loss of the kept samples of a batch; dropped ones count nothing.

        For streams and loaders that cannot be told which samples to give. The losses are remembered by sample index
        and take the place of the probe, at the price of a forward pass over dropped samples.

        Args:
            losses: one per sample, with their gradients.
            index: which samples they are: 0..n-1, the same in every epoch.
            logits: if at hand, for suggested labels in the issues.
        """
        if not self.is_on or self.plan is None:
            raise RunError("no epoch is on; call cleaner.reduce() inside `for epoch in cleaner.epochs():`")
        if self.plan.target is not None or self.method.has_own_loss:
            raise InputError(
                f"method {self.method.name!r} trains on other losses than those of the given labels: choose another, "
                "such as step-e; or give a map-style data set and train on cleaner.loss(model, x) over cleaner.loader()"
            )
        index = as_tensor(index).to(torch.int64)
        check_losses(losses, len(index) if index.ndim == 1 else 1)
        if bool(((index < 0) | (index >= self.task.n)).any()):
            raise InputError(
                f"sample {int(index.max())} is not one of 0..{self.task.n - 1}; an index is a sample's name"
            )
        on_host = index.cpu()
        labels = None if self._unnamed else self.task.labels[on_host].to(losses.device)
        tells = {} if logits is None else self.task.read(logits, labels, self.method.needs_probabilities)
        self._heard.add(losses, index, tells)
        weight = self.plan.kept.cpu()[on_host].to(losses.device, losses.dtype)
        if self.plan.weight is not None:
            weight = self.plan.weight.cpu()[on_host].to(losses)
        # Of all processes together, so that averaged gradients are those of one process.
        total = Ranks.current().mean(weight.sum())
        self.done += 1
        return torch.where(weight > 0, weight * losses, 0).sum() / torch.where(total > 0, total, 1)

    # -- Saving and going on ------------------------------------------------------------------------------------

    def state_dict(self, *, batches: int | None = None, over: bool | None = None) -> dict[str, Any]:
        """Everything needed to go on, also from the middle of an epoch: numbers, text and tensors.

        Save it beside the model and the optimizer, after a step or after an epoch. After the last batch of an epoch,
        what you do at its end counts as done. Of a stream, save it between epochs, and in each process its own.

        Args:
            batches: how many batches of the epoch are trained, if they come from a loader of your own, which may have
                fetched more of them ahead; :meth:`loader` counts for itself.
            over: whether the epoch is over, its end included; by default, if all of its batches are trained.
        """
        return super().state_dict(batches=batches, over=over) | {"heard": self._heard.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a saved state; of a stream, each process from its own."""
        super().load_state_dict(state)
        self._heard.load_state_dict(state["heard"])


class PlannedLoader(DataLoader[Any]):
    """A ``DataLoader`` over a plan, which knows how far the loop has come."""

    def __init__(self, cleaner: StepE, sampler: "PlanSampler", **options: Any):
        dataset = DrawnDataset(cleaner._samples().dataset)
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

    def __init__(self, cleaner: StepE, batch_size: int, chance: Tensor | None = None):
        self.cleaner, self.batch_size, self.chance = cleaner, batch_size, chance
        self.with_draws = False
        self.lent = False
        """whether the loader that this belongs to may be taken apart, by a framework that knows what it does"""
        self._begun: list[Share] | None = None

    def __len__(self) -> int:
        plan = self._plan()
        count = self.cleaner.task.n if plan is None else plan.count
        return len(batch_sizes(count, self.batch_size, Ranks.current().world))

    def begin(self) -> list[Share]:
        """What is to come, of this epoch; the next iterator gives it."""
        plan, cleaner = self._plan(), self.cleaner
        if plan is None or not cleaner.is_on:
            raise RunError(ITERATE_INSIDE)
        self._begun = cleaner.shares(self.batch_size, plan)[cleaner.skip :]
        cleaner.skip = 0
        return self._begun

    def __iter__(self) -> Iterator[Any]:
        if self.with_draws and self._begun is None and not self.lent:
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


def _take_weights(weights: Any, options: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """An existing weighted sampler is its weights; any other would choose the samples beside the plan."""
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


def _check_chance(weights: Any, n: int) -> Tensor:
    found = as_tensor(weights).double().cpu()
    if found.shape != (n,) or not bool((torch.isfinite(found) & (found >= 0)).all()) or not float(found.sum()) > 0:
        raise InputError(
            f"weights have shape {tuple(found.shape)}; give one finite number a sample ({n}), none negative, not all 0"
        )
    return found


def _device_of(x: Any) -> torch.device:
    """Where the first tensor of a batch lies."""
    if isinstance(x, Tensor):
        return x.device
    inner = x.values() if isinstance(x, dict) else x if isinstance(x, list | tuple) else ()
    return next((_device_of(value) for value in inner), torch.device("cpu"))
