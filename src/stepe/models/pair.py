"""Two networks of one form that train side by side (:mod:`stepe.methods.co_teaching`)."""

from typing import Any

import torch
from torch import Tensor, nn

from stepe.errors import InputError
from stepe.loop.randomness import Stream, seeded
from stepe.models.copying import copy_of


class Pair(nn.Module):
    """Gives the outputs of both networks in training: 2n rows for n samples, the first network's above the second's.

    Otherwise it gives those of the first network alone, which is judged, tested and handed over in the end.
    """

    def __init__(self, first: nn.Module, second: nn.Module):
        super().__init__()
        if set(map(id, first.parameters())) & set(map(id, second.parameters())):
            raise InputError("the two networks of a pair share weights; make the second one anew, from another seed")
        self.first, self.second = first, second

    def forward(self, *inputs: Any, **named: Any) -> Tensor:
        """Return the outputs of both networks, or of the first."""
        outputs: Tensor = self.first(*inputs, **named)
        if not self.training:
            return outputs
        others = self.second(*inputs, **named)
        if not isinstance(outputs, Tensor) or not isinstance(others, Tensor):
            raise InputError(
                f"a network of the pair returned a {type(outputs).__name__}, not a tensor of logits; wrap it in a "
                "module whose forward() returns them"
            )
        return torch.cat([outputs, others])


def redrawn(model: nn.Module, stream: Stream) -> nn.Module:
    """Copy a model, and have ``reset_parameters`` of its modules draw other weights by the seed.

    Parts are drawn before the whole, which so has the last word on them. Modules that cannot draw keep their weights.
    """
    copied = copy_of(model, "give both networks yourself, as stepe.models.pair.Pair(first, second)")
    device = next((weight.device for weight in model.parameters()), None)
    with seeded(stream, device), torch.no_grad():
        for module in reversed(list(copied.modules())):
            if callable(reset := getattr(module, "reset_parameters", None)):
                reset()
    if all(torch.equal(old, new) for old, new in zip(model.parameters(), copied.parameters(), strict=True)):
        raise InputError(
            f"a second network cannot be made of this {type(model).__name__}: none of its modules draws its weights "
            "anew by reset_parameters(); make one yourself and give both, as stepe.models.pair.Pair(first, second)"
        )
    return copied
