"""The elimination schedule: epoch -> drop fraction (section 3.4 of the paper, Eq. 2). Pure numbers.

Every schedule is 0 in the warm-up, never decreases, and never exceeds ``rho_max``.
Epochs count from 0, so the last epoch of Eq. 2 drops ``rho_max * (T - 1 - W) / (T - W)``.
"""

import itertools
from collections.abc import Callable
from dataclasses import dataclass

from stepe.errors import InputError

# Below this many epochs Eq. 2 spends most of them far under rho_max; the default ramp then ends early.
SHORT_RUN = 15

Shape = Callable[[float], float]


def linear(progress: float) -> float:
    """Rise as the ramp of Eq. 2 does."""
    return progress


NAMES = ("auto", "linear", "early", "proportional")


@dataclass(frozen=True)
class Schedule:
    """Warm-up at 0, then a ramp to ``rho_max``.

    ``ramp_end`` is the epoch that first reaches ``rho_max``; ``None`` is the paper's T, one past the last epoch.

    >>> schedule = Schedule(rho_max=0.4, epochs=6, warmup=2)
    >>> [round(schedule(epoch), 2) for epoch in range(6)]
    [0.0, 0.0, 0.0, 0.1, 0.2, 0.3]
    """

    rho_max: float
    epochs: int
    warmup: int
    shape: Shape = linear
    ramp_end: int | None = None

    def __call__(self, epoch: int) -> float:
        """Return the drop fraction rho_t of an epoch."""
        return self.rho_max * self.progress(epoch)

    def progress(self, epoch: int) -> float:
        """Say how far up the ramp an epoch is, from 0 to 1."""
        if epoch < self.warmup:
            return 0.0
        end = self.epochs if self.ramp_end is None else self.ramp_end
        if epoch >= end:
            return 1.0
        # In this order NaN comes through, and is refused.
        return min(max(self.shape((epoch - self.warmup) / (end - self.warmup)), 0.0), 1.0)


def make_schedule(
    shape: "str | Shape | Schedule", *, rho_max: float, epochs: int, warmup: int, ramp_end: int | None = None
) -> Schedule:
    """Build a schedule from a name, a function of the ramp's progress, or a ready one.

    Names are ``linear``, ``early``, a linear ramp that is done halfway between warm-up and the end, and
    ``proportional``, one that takes as long as the warm-up; ``auto`` is ``linear`` (Eq. 2), but ``early`` for runs
    shorter than about 15 epochs.
    """
    check_epochs(epochs, warmup)
    check_drop_fraction(rho_max)
    if isinstance(shape, Schedule):
        if shape.rho_max > rho_max:
            raise InputError(f"the schedule goes up to {shape.rho_max:.4g}, above rho_max, {rho_max:.4g}; lower it")
        _check_fractions(shape, epochs)
        return shape
    if shape == "auto":
        shape = "early" if epochs < SHORT_RUN and ramp_end is None else "linear"
    if shape == "early":
        # Without a warm-up the first epoch still drops nothing: its model is untrained.
        shape, ramp_end = "linear", max(warmup + (epochs - warmup) // 2, 1) if ramp_end is None else ramp_end
    if shape == "proportional":
        # A model that soon learns noise by heart has a short warm-up, if it ends by itself, and a short ramp too.
        shape, ramp_end = "linear", min(max(2 * warmup, 1), epochs) if ramp_end is None else ramp_end
    if isinstance(shape, str):
        if shape != "linear":
            raise InputError(
                f"unknown schedule {shape!r}; choose one of {', '.join(NAMES)}, or give a function of the progress, "
                "from 0 to 1"
            )
        shape = linear
    if ramp_end is not None and not warmup <= ramp_end <= epochs:
        raise InputError(
            f"the ramp ends at epoch {ramp_end}; it must end between the warm-up ({warmup}) and the last ({epochs})"
        )
    schedule = Schedule(rho_max, epochs, warmup, shape, ramp_end)
    _check_fractions(schedule, epochs)
    return schedule


def _check_fractions(schedule: Schedule, epochs: int) -> None:
    fractions = [schedule(epoch) for epoch in range(epochs)]
    for epoch, fraction in enumerate(fractions):
        if not 0 <= fraction < 1:
            raise InputError(f"the schedule gives {fraction!r} at epoch {epoch}; a drop fraction lies in [0, 1)")
    for epoch, (before, after) in enumerate(itertools.pairwise(fractions)):
        if before > after:
            raise InputError(
                f"the schedule falls from {before:.4g} to {after:.4g} at epoch {epoch + 1}; it must never decrease"
            )


def default_warmup(epochs: int) -> int:
    """Take a sixth of the run, the paper's share (10 of 60)."""
    return min(max(1, round(epochs / 6)), epochs - 1)


def check_epochs(epochs: int, warmup: int) -> None:
    """Refuse runs with no epoch, or none after the warm-up."""
    if isinstance(epochs, bool) or not isinstance(epochs, int) or epochs < 1:
        raise InputError(f"epochs is {epochs!r}; it must be a whole number, at least 1")
    if isinstance(warmup, bool) or not isinstance(warmup, int) or warmup < 0:
        raise InputError(f"warm-up is {warmup!r}; it must be a whole number, at least 0")
    if warmup >= epochs:
        raise InputError(
            f"warm-up is {warmup} of {epochs} epochs, so nothing would ever be dropped; "
            f"use a warm-up below {epochs}, or more epochs"
        )


def check_drop_fraction(rho_max: float) -> None:
    """Refuse fractions outside [0, 1)."""
    if isinstance(rho_max, bool) or not isinstance(rho_max, int | float) or not 0 <= rho_max < 1:
        raise InputError(f"rho_max is {rho_max!r}; it must be a number in [0, 1), for example 0.2")
