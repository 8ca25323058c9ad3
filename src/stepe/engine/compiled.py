"""The resident engine with compiled kernels: fewer and larger ones, for the price of compiling once a process."""

from typing import Any

import torch
from torch import Tensor, nn

from stepe.engine.resident import ResidentEngine
from stepe.loop.task import Task
from stepe.samples.samples import Samples


class CompiledEngine(ResidentEngine):
    """Compiles what full batches go through, in training and in probes; tails, whose sizes vary, run as they are."""

    def __init__(self, model: nn.Module, samples: Samples, task: Task, **options: Any):
        super().__init__(model, samples, task, **options)
        # Combined kernels: the casts of all weights are one launch instead of one each.
        kernels: dict[str, Any] = {"combo_kernels": True} if self.device.type == "cuda" else {}
        self._full_gather = torch.compile(self._gather, dynamic=False, options=kernels)
        self._full_forward = torch.compile(self.forward, dynamic=False, options=kernels)
        self._full_judged = torch.compile(super().judged, dynamic=False, options=kernels)

    def judged(self, x: Any) -> Tensor:
        """Return outputs of the model that is probed and tested."""
        return self._full_judged(x) if len(x) == self.probe_batch_size else super().judged(x)
