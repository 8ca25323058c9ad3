"""Other people's networks, where their packages are installed: ``timm:NAME`` for pictures, ``hf:NAME`` for texts."""

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from stepe.errors import InputError
from stepe.loop.probe import evaluating
from stepe.loop.randomness import preserved

PACKAGES = {"timm": "timm", "hf": "transformers"}
KINDS = {"timm": "images", "hf": "text"}
FEATURE_BATCH = 64


def check_model(model: str, kind: str) -> None:
    """Refuse a model that is not for this kind of data, or whose package is not there."""
    prefix, _ = _parts(model)
    if KINDS[prefix] != kind:
        raise InputError(f"model {model!r} is for {KINDS[prefix]}, and the data is {kind}; leave it out")
    _package(prefix)


def _parts(model: str) -> tuple[str, str]:
    """Split a model's name into where it comes from, and its name there."""
    prefix, _, name = model.partition(":")
    if prefix not in PACKAGES or not name:
        raise InputError(f"model is {model!r}; write timm:NAME for pictures or hf:NAME for texts, or leave it out")
    return prefix, name


def load_model(model: str, classes: int, *, pretrained: bool) -> nn.Module:
    """Load a network with a new head; ``pretrained=False`` spares its weights, where others replace them anyway."""
    prefix, name = _parts(model)
    package = _package(prefix)
    with _explained(model):
        if prefix == "timm":
            made: nn.Module = package.create_model(name, pretrained=pretrained, num_classes=classes)
            return made
        return TextClassifier(package, name, classes, pretrained=pretrained)


@contextmanager
def _explained(model: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # unknown names and failed downloads, as each package has them
        if "trust_remote_code" in str(error):
            raise InputError(
                f"model {model!r} brings code of its own, which stepe never runs: choose a model that the installed "
                "transformers knows, or load it in a script that trusts it and train it with stepe.fit"
            ) from error
        why = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise InputError(f"model {model!r} cannot be loaded: {why}; check its name and the connection") from error


def features(model: str, x: Tensor) -> Tensor:
    """Return the features that a pretrained network, not trained itself, gives of encoded inputs (n x width)."""
    prefix, name = _parts(model)
    package = _package(prefix)
    with _explained(model), preserved():
        network = _picture_features(package, name) if prefix == "timm" else TextFeatures(package, name)
    with evaluating(network):
        return torch.cat([network(part).float() for part in torch.split(x, FEATURE_BATCH)])


def _picture_features(timm: Any, name: str) -> nn.Module:
    network: nn.Module = timm.create_model(name, pretrained=True, num_classes=0)
    usual = timm.data.resolve_model_data_config(network)
    mean, std = (torch.tensor(usual[part]).reshape(3, 1, 1) for part in ("mean", "std"))
    return _PictureFeatures(network, mean, std)


class _PictureFeatures(nn.Module):
    """Gives the pooled features of a network of pictures, whose bytes it sees as in its own training."""

    def __init__(self, network: nn.Module, mean: Tensor, std: Tensor):
        super().__init__()
        self.network, self._mean, self._std = network, mean, std

    def forward(self, x: Tensor) -> Tensor:
        """Return one row for each picture."""
        found: Tensor = self.network((x.float() / 255 - self._mean) / self._std)
        return found


def tokenizer(model: str) -> Any:
    """Load the tokenizer of a language model."""
    prefix, name = _parts(model)
    with _explained(model):
        return _loaded(_package(prefix).AutoTokenizer, name)


class TextFeatures(nn.Module):
    """Gives the mean of a language model's last states over the tokens of a text."""

    def __init__(self, transformers: Any, name: str):
        super().__init__()
        self.model = _loaded(transformers.AutoModel, name)

    def forward(self, x: Tensor) -> Tensor:
        """Return one row for each text; that of an empty one is zero."""
        there = (x > 0).long()
        states: Tensor = self.model(input_ids=(x - 1).clamp(min=0), attention_mask=there).last_hidden_state
        return (states * there[..., None]).sum(1) / there.sum(1, keepdim=True).clamp(min=1)


class TextClassifier(nn.Module):
    """Classifies texts by a language model; the numbers of the tokens are shifted by one, and 0 is padding."""

    def __init__(self, transformers: Any, name: str, classes: int, *, pretrained: bool):
        super().__init__()
        kind = transformers.AutoModelForSequenceClassification
        if pretrained:
            self.model = _loaded(kind, name, num_labels=classes)
        else:
            self.model = kind.from_config(_loaded(transformers.AutoConfig, name, num_labels=classes))

    def forward(self, x: Tensor) -> Tensor:
        """Return logits."""
        logits: Tensor = self.model(input_ids=(x - 1).clamp(min=0), attention_mask=(x > 0).long()).logits
        return logits


def _loaded(kind: Any, name: str, **options: Any) -> Any:
    """Load a part of a language model; its name may come from a stranger's file, so no code of the model is run."""
    return kind.from_pretrained(name, trust_remote_code=False, **options)


def _package(prefix: str) -> Any:
    try:
        return importlib.import_module(PACKAGES[prefix])
    except ImportError as error:
        raise InputError(
            f"{prefix}:NAME needs the package {PACKAGES[prefix]}; install it with: pip install 'stepe[{prefix}]'"
        ) from error
