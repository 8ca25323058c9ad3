"""The plan: what an epoch trains on, and the one place that orders, shards and batches it."""

from dataclasses import dataclass

import torch
from torch import Tensor

from stepe.randomness import Stream

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
    drop_fraction: float = 0.0
    """rho_t, as asked for"""
    cut: float = float("inf")
    """the highest score that was kept"""
    nonfinite: int = 0
    shortfall: int = 0

    def order(self) -> Tensor:
        """The indices that train, in this epoch's order: a function of (seed, epoch, sample) alone."""
        training = torch.nonzero((self.kept if self.trains is None else self.trains).cpu()).squeeze(1)
        return Stream.named(self.seed, "order", self.epoch).shuffle(training)

    def batches(self, batch_size: int, *, rank: int = 0, world: int = 1) -> list[Share]:
        """This rank's share of every global batch of ``batch_size`` samples.

        Every sample that trains appears exactly once over all ranks. Ranks always get equally many shares; with fewer
        samples than ranks, a rank left without one gets a weight-0 filler so that nobody waits for it.
        """
        order = self.order()
        sizes = batch_sizes(len(order), batch_size, world)
        weight = None if self.weight is None else self.weight.detach().cpu()
        shares = []
        for step, part in enumerate(torch.split(order, sizes) if sizes else ()):
            part_weight = None if weight is None else weight[part]
            # A batch that weighs nothing has a loss of 0, not 0 / 0.
            total = float(len(part)) if part_weight is None else float(part_weight.sum()) or 1.0
            mine = part[rank::world]
            mine_weight = None if part_weight is None else part_weight[rank::world]
            if len(mine) == 0:
                mine, mine_weight = part[:1], torch.zeros(1)
            progress = (self.epoch + step / len(sizes)) / self.epochs
            shares.append(Share(step, mine, mine_weight, total / world, progress))
        return shares


def batch_sizes(count: int, batch_size: int, world: int = 1) -> list[int]:
    """Sizes of the batches that cover ``count`` samples.

    Full batches, then the rest; a rest shorter than ``min(8, batch_size / 2)`` (or 2, or the number of ranks) is
    spread one by one over the last batches, so that all but a few keep their size.

    >>> batch_sizes(300, 128), batch_sizes(258, 128)
    ([128, 128, 44], [129, 129])
    """
    full, tail = divmod(count, batch_size)
    sizes = [batch_size] * full
    if tail == 0:
        return sizes
    if full == 0 or tail >= max(min(SHORTEST_TAIL, batch_size / 2), min(2, batch_size), world):
        return [*sizes, tail]
    for extra in range(tail):
        sizes[-1 - extra % full] += 1
    return sizes
