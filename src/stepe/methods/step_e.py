"""Step-E, Stepwise Elimination: the paper's algorithm as one function, then the method that runs it everywhere.

:func:`step_e` is what the paper says, line by line, and what the tests hold :class:`StepwiseElimination` to. The class
is the same algorithm in answers to the questions that engines and loops ask, with what the paper left open as options.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from stepe.loop.schedule import make_schedule
from stepe.methods.defaults import Settings
from stepe.methods.eliminating import Eliminating, Parts
from stepe.options import method as option


def step_e(
    probe: Callable[[], Tensor], train: Callable[[Tensor], None], n: int, *, epochs: int, warmup: int, rho_max: float
) -> Tensor:
    """Train on labels of which up to ``rho_max`` are wrong; return which samples the last epoch kept.

    ``probe()`` gives the loss of each of the n samples under the model as it is (theta in the paper), ``train(kept)``
    trains that model for one epoch on the kept samples (those whose gamma is 1).
    """
    kept = torch.ones(n, dtype=torch.bool)
    # 3.2: minimise J over theta and gamma in turn, once an epoch.
    for epoch in range(epochs):
        # 3.4, warm-up: no sample is dropped, so that the model learns a rough decision boundary.
        if epoch >= warmup:
            # 3.4, Eq. 2: rho_t grows linearly from 0 to rho_max over the remaining epochs.
            rho = rho_max * (epoch - warmup) / (epochs - warmup)
            # 3.3, step 1, probe pass: the losses of all samples, dropped ones included.
            losses = probe()
            # 3.3, step 2, sorting and thresholding: for fixed theta, J is smallest with the highest losses dropped, as
            # many as 3.1 allows. Of equal losses the earlier samples stay; a loss that is no number goes first.
            order = torch.argsort(torch.where(losses.isfinite(), losses, math.inf), stable=True)
            count = n - math.floor(rho * n + 1e-9)
            kept = torch.zeros(n, dtype=torch.bool)
            kept[order[:count]] = True
            kept &= losses.isfinite()
        # 3.3, step 3, model update: for fixed gamma, an epoch of SGD on the kept samples alone.
        train(kept)
    return kept


@dataclass
class StepwiseElimination(Eliminating):
    """Each epoch after the warm-up, probe all samples, keep the lowest 1 - rho_t, train on those.

    A drop is not for ever: a sample comes back when its score does, unless ``sticky``.
    """

    name: ClassVar[str] = "step-e"
    summary: ClassVar[str] = "drop the samples with the highest losses, a few more each epoch"
    paper: ClassVar[str] = "Step-E, sections 3.3 and 3.4"

    schedule: option.Schedule = "auto"
    ramp_end: option.RampEnd = None
    memory: option.Memory = 0.0
    sticky: option.Sticky = False
    probe_every: option.ProbeEvery = 1

    def compose(self, settings: Settings) -> Parts:
        """Take the stepwise elimination schedule, and nothing but the selection."""
        epochs = self.task.epochs
        return Parts(
            lambda rho_max, warmup: make_schedule(
                self.schedule, rho_max=rho_max, epochs=epochs, warmup=warmup, ramp_end=settings.ramp_end
            ),
            sticky=self.sticky,
        )

    def wants_probe(self, epoch: int) -> bool:
        """Ask after the warm-up, and where something is to be found out, before too; every so many epochs."""
        return epoch >= self.first_probe and (epoch - self.first_probe) % self.probe_every == 0
