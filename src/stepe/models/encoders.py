"""Encoders that need a pretrained network: its tokens, or what it makes of pictures and texts."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch

from stepe.data import encoders
from stepe.data.encoders import Array, Encoder, FeatureEncoder, FitEncoder, ImageEncoder, fit_encoder
from stepe.data.encoders.text import LONGEST, TEXT_LIMIT
from stepe.models.pretrained import check_model, features, tokenizer
from stepe.options.layout import DataKind


@dataclass(frozen=True)
class TokenEncoder:
    """Turns texts into the tokens of a pretrained language model, by the package ``transformers``; 0 pads."""

    kind: ClassVar[DataKind] = "text"
    model: str
    """``hf:NAME``"""
    length: int

    @classmethod
    def fit(cls, texts: Sequence[str], model: str) -> "TokenEncoder":
        """Allow the length that nearly all training texts need, within what the model takes."""
        longest = max(1, int(np.quantile([len(text.split()) for text in texts], 0.98) * 1.5) + 2)
        return cls(model, min(LONGEST, longest))

    def encode(self, inputs: Sequence[str]) -> Array:
        """Return the numbers of the tokens, shifted by one so that 0 is padding whatever the model pads with."""
        read = tokenizer(self.model)(
            [text[:TEXT_LIMIT] for text in inputs],
            truncation=True,
            max_length=self.length,
            padding="max_length",
            return_tensors="np",
        )
        shifted: Array = (read["input_ids"] + 1) * read["attention_mask"]
        return shifted


@dataclass(frozen=True)
class FrozenEncoder:
    """Turns pictures or texts into the features of a pretrained network that is not trained itself.

    They are computed once, so that a CPU can do it; a small network is trained on top of them.
    """

    kind: DataKind
    model: str
    """``timm:NAME`` or ``hf:NAME``"""
    inputs: ImageEncoder | TokenEncoder
    """makes what the network takes"""
    outputs: FeatureEncoder
    """standardises its features"""

    @classmethod
    def fit(cls, inputs: Any, encoder: ImageEncoder | TokenEncoder, model: str) -> "FrozenEncoder":
        """Standardise the features over the training inputs."""
        seen = features(model, torch.from_numpy(encoder.encode(inputs))).double().numpy()
        return cls(encoder.kind, model, encoder, FeatureEncoder.fit(seen))

    def encode(self, inputs: Any) -> Array:
        """Return the standardised features."""
        seen = features(self.model, torch.from_numpy(self.inputs.encode(inputs)))
        return self.outputs.encode(seen.double().numpy())


def encoder_fitter(model: str | None, device: torch.device) -> FitEncoder:
    """Choose how the inputs of a network are encoded on a device; ``model`` names a pretrained one.

    To train a pretrained network takes a GPU; without one, its features are as far as it goes.
    """
    if model is None:
        return fit_encoder

    def fit(kind: DataKind, inputs: Any) -> Encoder:
        check_model(model, kind)
        encoder = TokenEncoder.fit(inputs, model) if kind == "text" else ImageEncoder.fit(inputs)
        return FrozenEncoder.fit(inputs, encoder, model) if device.type == "cpu" else encoder

    return fit


def read_encoder(saved: dict[str, Any]) -> Encoder:
    """Make an encoder of its JSON, whether it needs a pretrained network or not."""
    return encoders.read_encoder(saved, {"TokenEncoder": TokenEncoder, "FrozenEncoder": _frozen})


def _frozen(kind: DataKind, model: str, inputs: dict[str, Any], outputs: dict[str, Any]) -> FrozenEncoder:
    parts = ({name: value for name, value in part.items() if name != "name"} for part in (inputs, outputs))
    own: type[ImageEncoder | TokenEncoder] = TokenEncoder if kind == "text" else ImageEncoder
    return FrozenEncoder(kind, model, own(**next(parts)), FeatureEncoder(**next(parts)))
