"""Other people's networks, where their packages are installed: ``timm:NAME`` for pictures, ``hf:NAME`` for texts."""

import importlib
from typing import Any

from torch import Tensor, nn

from stepe.errors import InputError

PACKAGES = {"timm": "timm", "hf": "transformers"}
KINDS = {"timm": "images", "hf": "text"}


def check_model(model: str, kind: str) -> None:
    """Refuse a model that is not for this kind of data, or whose package is not there."""
    prefix, _, name = model.partition(":")
    if prefix not in PACKAGES or not name:
        raise InputError(f"model is {model!r}; write timm:NAME for pictures or hf:NAME for texts, or leave it out")
    if KINDS[prefix] != kind:
        raise InputError(f"model {model!r} is for {KINDS[prefix]}, and the data is {kind}; leave it out")
    _package(prefix)


def load_model(model: str, classes: int, *, pretrained: bool) -> nn.Module:
    """The network with a new head; without its pretrained weights where others will be loaded."""
    prefix, _, name = model.partition(":")
    package = _package(prefix)
    try:
        if prefix == "timm":
            made: nn.Module = package.create_model(name, pretrained=pretrained, num_classes=classes)
            return made
        return TextClassifier(package, name, classes, pretrained=pretrained)
    except Exception as error:  # unknown names and failed downloads, as each package has them
        why = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise InputError(f"model {model!r} cannot be loaded: {why}; check its name and the connection") from error


def tokenizer(model: str) -> Any:
    """What turns texts into the tokens of a language model."""
    prefix, _, name = model.partition(":")
    return _package(prefix).AutoTokenizer.from_pretrained(name)


class TextClassifier(nn.Module):
    """A language model on padded token numbers, which are shifted by one: 0 is padding."""

    def __init__(self, transformers: Any, name: str, classes: int, *, pretrained: bool):
        super().__init__()
        kind = transformers.AutoModelForSequenceClassification
        if pretrained:
            self.model = kind.from_pretrained(name, num_labels=classes)
        else:
            self.model = kind.from_config(transformers.AutoConfig.from_pretrained(name, num_labels=classes))

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        logits: Tensor = self.model(input_ids=(x - 1).clamp(min=0), attention_mask=(x > 0).long()).logits
        return logits


def _package(prefix: str) -> Any:
    try:
        return importlib.import_module(PACKAGES[prefix])
    except ImportError as error:
        raise InputError(
            f"{prefix}:NAME needs the package {PACKAGES[prefix]}; install it with: pip install 'stepe[{prefix}]'"
        ) from error
