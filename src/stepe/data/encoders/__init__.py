"""Encoders: from raw inputs to the one array that a network takes, a module for each kind of data.

An encoder is fitted on the training part alone and is plain JSON, stored beside the model, so that whatever is
predicted later is encoded the same way. Those that need a pretrained network are in ``models.encoders``. May import
what ``data`` may.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from stepe.data.encoders.base import Array, Encoder
from stepe.data.encoders.features import FeatureEncoder
from stepe.data.encoders.images import ImageEncoder
from stepe.data.encoders.table import ColumnCode, TableEncoder
from stepe.data.encoders.text import TextEncoder
from stepe.errors import InputError, RunError
from stepe.options.layout import DataKind

__all__ = [
    "Array",
    "ColumnCode",
    "Encoder",
    "FeatureEncoder",
    "FitEncoder",
    "ImageEncoder",
    "TableEncoder",
    "TextEncoder",
    "fit_encoder",
    "read_encoder",
    "write_encoder",
]

FitEncoder = Callable[[DataKind, Any], Encoder]
"""(kind of data, training inputs) -> an encoder fitted on them"""
ENCODERS: dict[DataKind, Any] = {
    encoder.kind: encoder for encoder in (FeatureEncoder, ImageEncoder, TextEncoder, TableEncoder)
}


def fit_encoder(kind: DataKind, inputs: Any) -> Encoder:
    """Fit the encoder of a kind of data on the inputs that are trained on."""
    encoder: Encoder = ENCODERS[kind].fit(inputs)
    if isinstance(encoder, TableEncoder) and not encoder.columns:
        raise InputError("every column of the table is empty or holds one value; there is nothing to learn from")
    return encoder


def write_encoder(encoder: Encoder) -> dict[str, Any]:
    """Write an encoder as JSON."""
    return {"name": type(encoder).__name__, **asdict(encoder)}


def read_encoder(saved: dict[str, Any], others: Mapping[str, Callable[..., Encoder]] | None = None) -> Encoder:
    """Make an encoder of its JSON; ``others`` make those that are defined elsewhere, by name."""
    options = {name: value for name, value in saved.items() if name != "name"}
    made: dict[str, Any] = {encoder.__name__: encoder for encoder in ENCODERS.values()} | dict(others or {})
    try:
        if saved["name"] == TableEncoder.__name__:
            options["columns"] = [ColumnCode(**column) for column in options["columns"]]
        encoder: Encoder = made[saved["name"]](**options)
    except (KeyError, TypeError) as error:
        raise RunError(f"the preprocessing of the run cannot be read: {error!r}; train it again") from error
    return encoder
