"""A network from its description, which is JSON and lies beside the weights."""

from collections.abc import Callable
from typing import Any

from torch import nn

from stepe.errors import RunError
from stepe.models.mlp import MLP
from stepe.models.pretrained import load_model
from stepe.models.resnet import resnet18
from stepe.models.tabular import Tabular
from stepe.models.text import TextBag

MODELS: dict[str, Callable[..., nn.Module]] = {
    "mlp": MLP,
    "resnet18": resnet18,
    "tabular": Tabular,
    "text": TextBag,
    "pretrained": load_model,
}


def build(description: dict[str, Any], *, pretrained: bool = True) -> nn.Module:
    """Make the network; ``pretrained=False`` spares weights that others replace anyway."""
    options = {name: value for name, value in description.items() if name != "name"}
    if description.get("name") == "pretrained":
        options["pretrained"] = pretrained
    try:
        return MODELS[description["name"]](**options)
    except (KeyError, TypeError) as error:
        raise RunError(f"the description of the model cannot be read: {error!r}; train it again") from error
