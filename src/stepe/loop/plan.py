"""The plan: what an epoch trains on, and the one place that orders, shards and batches it."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from stepe.loop.randomness import Stream

# BatchNorm cannot train on one sample and is noisy on a few: a shorter tail is spread over other batches.
SHORTEST_TAIL = 8


@dataclass(frozen=True)
class Share:
    """One rank's part of a global batch."""

    step: int
    """position in the epoch"""
    index: Tensor
    """int64 sample indices"""
    weight: Tensor | None
    """one per index; ``None`` means all 1"""
    total_weight: float
    """weight of the global batch divided by the number of ranks.

    Dividing a rank's weighted sum by this, and averaging gradients over ranks as DDP does, gives the gradient of the
    weighted mean over the global batch, however unevenly it was cut.
    """
    progress: float
    """share of the run that is done before this batch; drives the learning rate"""
    size: int
    """samples in the global batch"""
    occurrence: Tensor | None = None
    """one per index: how often the sample came before in this epoch; ``None``: never"""


@dataclass(frozen=True)
class Plan:
    """The samples of one epoch, with their weights and targets."""

    epoch: int
    epochs: int
    kept: Tensor
    """bool, one per sample of the data set: whose given label is trusted this epoch"""
    seed: int
    trains: Tensor | None = None
    """bool, one per sample: what trains, where that is more than the kept samples (down-weighted or corrected ones)"""
    weight: Tensor | None = None
    """one per sample of the data set, or ``None``: all 1"""
    target: Tensor | None = None
    """one label, or one row of class probabilities, per sample; ``None``: the given labels"""
    length: int | None = None
    """how many samples to train on, where those that train are repeated to get there; ``None``: each comes once"""
    chance: Tensor | None = None
    """one per sample of the data set: how likely it is drawn, as a weighted sampler does; ``None``: each comes equally
    often"""
    drop_fraction: float = 0.0
    """rho_t, as asked for"""
    cut: float = float("inf")
    """the highest score that was kept"""
    nonfinite: int = 0
    shortfall: int = 0

    def order(self) -> Tensor:
        """Order the indices that train: a function of (seed, epoch, sample) alone."""
        training = torch.nonzero((self.kept if self.trains is None else self.trains).cpu()).squeeze(1)
        length = len(training) if self.length is None or len(training) == 0 else self.length
        if self.chance is not None:
            return self._drawn(training, length)
        # Whole passes, so that no sample comes again before all have come.
        passes = [
            Stream.named(self.seed, "order", self.epoch, number).shuffle(training)
            for number in range(math.ceil(length / max(1, len(training))))
        ]
        return torch.cat(passes)[:length] if passes else training

    def _drawn(self, training: Tensor, length: int) -> Tensor:
        """Draw so many with replacement, each sample as often as its chance says."""
        assert self.chance is not None
        until = self.chance.detach().cpu()[training].double().cumsum(0)
        if len(until) == 0 or not float(until[-1]) > 0:
            return training[:0]
        drawn = Stream.named(self.seed, "draw", self.epoch).bits(torch.arange(length))
        uniform = ((drawn >> 11) & ((1 << 53) - 1)).double() * 2.0**-53
        return training[torch.searchsorted(until, uniform * until[-1], right=True).clamp(max=len(until) - 1)]

    def batches(self, batch_size: int, *, rank: int = 0, world: int = 1) -> list[Share]:
        """Deal out this rank's share of every global batch of ``batch_size`` samples.

        Every sample that trains appears once over all ranks, or as often as the order has it. Ranks always get equally
        many shares; with fewer samples than ranks, a rank left without one gets a weight-0 filler so that nobody waits
        for it.
        """
        order = self.order()
        sizes = batch_sizes(len(order), batch_size, world)
        weight = None if self.weight is None else self.weight.detach().cpu()
        comes_again = self.length is not None or self.chance is not None
        occurrence = torch.split(occurrences(order), sizes) if comes_again and sizes else None
        shares = []
        for step, part in enumerate(torch.split(order, sizes) if sizes else ()):
            part_weight = None if weight is None else weight[part]
            # A batch that weighs nothing has a loss of 0, not 0 / 0.
            total = float(len(part)) if part_weight is None else float(part_weight.sum()) or 1.0
            mine = part[rank::world]
            mine_weight = None if part_weight is None else part_weight[rank::world]
            again = None if occurrence is None else occurrence[step][rank::world]
            if len(mine) == 0:
                mine, mine_weight = part[:1], torch.zeros(1)
                again = None if occurrence is None else occurrence[step][:1]
            progress = (self.epoch + step / len(sizes)) / self.epochs
            shares.append(Share(step, mine, mine_weight, total / world, progress, len(part), again))
        return shares

    @property
    def count(self) -> int:
        """How many samples :meth:`batches` covers."""
        training = int((self.kept if self.trains is None else self.trains).sum())
        return training if self.length is None or training == 0 else self.length


def occurrences(order: Tensor) -> Tensor:
    """Count, for each entry, how many equal ones came before.

    >>> occurrences(torch.tensor([4, 2, 4, 4, 2])).tolist()
    [0, 0, 1, 2, 1]
    """
    place = torch.argsort(order, stable=True)
    in_order = order[place]
    before = torch.empty_like(order)
    before[place] = torch.arange(len(order)) - torch.searchsorted(in_order, in_order)
    return before


def batch_sizes(count: int, batch_size: int, world: int = 1) -> list[int]:
    """Size the batches that cover ``count`` samples.

    Full batches, then the rest; a rest shorter than ``min(8, batch_size / 2)``, or than two for each rank, is spread
    one by one over the last batches, so that all but a few keep their size.

    >>> batch_sizes(300, 128), batch_sizes(258, 128)
    ([128, 128, 44], [129, 129])
    """
    full, tail = divmod(count, batch_size)
    sizes = [batch_size] * full
    if tail == 0:
        return sizes
    if full == 0 or tail >= max(min(SHORTEST_TAIL, batch_size / 2), min(2 * world, batch_size)):
        return [*sizes, tail]
    for extra in range(tail):
        sizes[-1 - extra % full] += 1
    return sizes
