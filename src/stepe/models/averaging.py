"""Averaged weights: a model that is the running mean of another one's weights over its last steps.

It swings less than the model in training and is a better judge of the labels, at no cost but a copy of the weights
(Polyak and Juditsky, 1992; as a *mean teacher*, Tarvainen and Valpola, 2017).
"""

from typing import Any

import torch
from torch import Tensor, nn

from stepe.models.copying import copy_of


class Average:
    """The running mean of a model's weights, and of what its layers remember, such as BatchNorm's statistics."""

    def __init__(self, model: nn.Module, steps: float):
        with torch.no_grad():  # the weights of a scripted module, which are copied by cloning, are leaves then
            self.model = copy_of(model, "weights are averaged in a copy of the model; average=0 goes without")
        for weight in self.model.parameters():  # one by one: a scripted module has no requires_grad_
            weight.requires_grad_(False)
        self._source, self._weight = model, 1 / max(1.0, steps)

    @torch.no_grad()
    def update(self) -> None:
        """Take in the weights after a step. Reads nothing back to the host, so that a CUDA graph can hold it."""
        means, now = self.tensors(), _state(self._source)
        fractions = [place for place, mean in enumerate(means) if _can_average(mean)]
        torch._foreach_lerp_([means[place] for place in fractions], [now[place] for place in fractions], self._weight)
        for mean, value in zip(means, now, strict=True):
            if not _can_average(mean):  # counters
                mean.copy_(value)

    @torch.no_grad()
    def restart(self) -> None:
        """Forget the past: the mean becomes what the weights are."""
        for mean, value in zip(self.tensors(), _state(self._source), strict=True):
            mean.copy_(value)

    @torch.no_grad()
    def hand_over(self) -> None:
        """Give the model the mean for its weights, when the training is over."""
        for value, mean in zip(_state(self._source), self.tensors(), strict=True):
            value.copy_(mean)

    def tensors(self) -> list[Tensor]:
        """List all tensors that an update writes."""
        return _state(self.model)

    def state_dict(self) -> dict[str, Any]:
        """Return the averaged weights."""
        return self.model.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from averaged weights that were saved."""
        self.model.load_state_dict(state)


def _state(model: nn.Module) -> list[Tensor]:
    return [tensor.detach() for tensor in (*model.parameters(), *model.buffers())]


def _can_average(tensor: Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()
