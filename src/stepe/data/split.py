"""The hold-out: a share of every class; samples that belong together stay on one side."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from stepe.errors import InputError
from stepe.loop.draws import Draws
from stepe.options.layout import HOLD_OUT, MOST_HELD_OUT

WINDOW = 32
"""groups that are looked at for the next to hold out"""


def hold_out(
    labels: npt.NDArray[np.int64], share: float = HOLD_OUT, together: Sequence[str] | None = None
) -> npt.NDArray[np.bool_]:
    """Choose the samples to hold out. The choice does not depend on the run's seed, so that runs can be compared.

    Args:
        labels: the class number of each sample.
        share: how much of each class is held out: at least one sample, unless the class has no other. 0 holds nothing
            out.
        together: for each sample, the name of the group (a patient, a user) that is held out as a whole or not at all;
            a sample with an empty name is alone.
    """
    if not 0 <= share <= MOST_HELD_OUT:
        raise InputError(f"holdout is {share!r}; it must be a share from 0 (none) to {MOST_HELD_OUT}")
    chosen = np.zeros(len(labels), dtype=bool)
    if share == 0:
        return chosen
    order = Draws.named(0, "split").shuffle(np.arange(len(labels)))
    if together is not None:
        return _hold_out_groups(labels, share, together, order)
    order = order[np.argsort(labels[order], kind="stable")]  # class by class
    size = np.bincount(labels)
    place = np.arange(len(labels)) - np.repeat(np.cumsum(size) - size, size)
    wanted = np.minimum(np.maximum(1, np.round(share * size)), size - 1)
    chosen[order[place < np.repeat(wanted, size)]] = True
    return chosen


def _hold_out_groups(
    labels: npt.NDArray[np.int64], share: float, together: Sequence[str], order: npt.NDArray[np.int64]
) -> npt.NDArray[np.bool_]:
    """Hold out group by group, of the next few always the one that brings the classes nearest to their share."""
    members: dict[str, list[int]] = {}
    for sample in order.tolist():
        members.setdefault(together[sample] or f"\0{sample}", []).append(sample)
    waiting = [(group, *np.unique(labels[group], return_counts=True)) for group in members.values()]
    size = np.bincount(labels).astype(np.float64)
    wanted, held = share * size, np.zeros(len(size))
    chosen = np.zeros(len(labels), dtype=bool)

    def gain(classes: npt.NDArray[np.int64], count: npt.NDArray[np.int64]) -> float:
        before, after = held[classes], held[classes] + count
        if (after >= size[classes]).any():  # nothing of a class would be left to train on
            return 0.0
        nearer = np.square(before - wanted[classes]) - np.square(after - wanted[classes])
        return float((nearer / size[classes]).sum())

    while waiting:
        gains = [gain(classes, count) for _, classes, count in waiting[:WINDOW]]
        best = int(np.argmax(gains))
        if gains[best] <= 0:
            del waiting[:WINDOW]
            continue
        group, classes, count = waiting.pop(best)
        held[classes] += count
        chosen[group] = True
    if not chosen.any():
        raise InputError(
            f"{len(members)} groups cannot be split so that every class stays in training; hold nothing out "
            "(--holdout 0), or split by a column with more values"
        )
    return chosen
