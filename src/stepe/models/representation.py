"""What a model thinks of its inputs before its last layer turns that into classes."""

from types import TracebackType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from stepe.errors import InputError


class Representation:
    """Holds, after a forward pass, what went into the linear layer that ran last.

    >>> model = nn.Sequential(nn.ReLU(), nn.Linear(2, 3))
    >>> with Representation(model) as representation:
    ...     _ = model(torch.tensor([[3.0, 4.0], [-1.0, 2.0]]))
    ...     representation.take(2)
    tensor([[0.6001, 0.7998],
            [0.0000, 1.0000]], dtype=torch.float16)

    Only hooks are set, and only within the ``with``: the model stays as it is. Which layer is the last shows when the
    model runs, for modules may be listed in another order.
    """

    def __init__(self, model: nn.Module):
        self._layers = [module for module in model.modules() if isinstance(module, nn.Linear)]
        if not self._layers:
            raise InputError(
                f"what {type(model).__name__} thinks is read where its last linear layer begins, and it has none: end "
                "it in an nn.Linear, or choose a method or an option that asks no neighbours"
            )
        self._hooks: list[RemovableHandle] = []
        self._latest: Tensor | None = None

    def __enter__(self) -> "Representation":
        self._hooks = [layer.register_forward_pre_hook(self._note, with_kwargs=True) for layer in self._layers]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for hook in self._hooks:
            hook.remove()
        self._latest = None

    def _note(self, layer: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any]) -> None:
        self._latest = inputs[0] if inputs else named["input"]

    def take(self, samples: int) -> Tensor:
        """What the pass just made, over this many samples, has shown: a row of length 1 for each."""
        latest, self._latest = self._latest, None
        if latest is None:
            raise InputError(
                "no linear layer of the model was called in a forward pass, so what it thinks cannot be read; a model "
                "that is compiled, scripted or calls its layers' weights directly hides them"
            )
        if latest.ndim != 2 or len(latest) != samples:
            raise InputError(
                f"the last linear layer sees inputs of shape {tuple(latest.shape)} for {samples} samples; to compare "
                "samples, one row for each is needed: pool over positions before that layer"
            )
        # Directions alone, for that is what neighbours are compared by; of length 1, half precision holds any of them.
        return F.normalize(latest.detach().float(), dim=1).to(torch.float16)
