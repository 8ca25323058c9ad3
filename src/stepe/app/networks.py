"""The networks of ``stepe clean``: which one a kind of data gets, how it is trained, and how long that takes."""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import torch
from torch import nn

from stepe.data.encoders import FeatureEncoder, TableEncoder, TextEncoder
from stepe.data.images import SMALL
from stepe.data.source import Source
from stepe.engine.stack import SMALL_MODEL
from stepe.loop.randomness import Stream, seeded
from stepe.models.build import build
from stepe.models.encoders import FrozenEncoder
from stepe.options.layout import DataKind
from stepe.run.record import Request
from stepe.samples.augmentation import CropFlip, Normalised
from stepe.samples.strong import Strong

SMALL_DATA, LARGE_DATA = 5_000, 200_000
FEW_SAMPLES = 500
PROBE_SHARE, PROBERS_SHARE = 1.4, 2.0
"""the time of an epoch with its probe, and of one with probers that train beside it, in units of training alone"""


@dataclass(frozen=True)
class Tuning:
    """Sizes, rates and epochs for a network; a hold-out chose the defaults (``benchmarks/digits_network.py``)."""

    hidden: tuple[int, ...] = (512, 512)
    """the hidden layers of the MLP; pictures in colour have a ResNet-18"""
    dropout: float = 0.7
    learning_rate: float = 0.1
    batch_size: int = 128
    weight_decay: float = 5e-4
    epochs: int = 60
    optimizer: Literal["sgd", "adamw"] = "sgd"

    def optimizer_options(self, device: torch.device) -> dict[str, Any]:
        """Return what :func:`stepe.fit` needs to make the optimizer."""
        if self.optimizer == "sgd":
            return {"learning_rate": self.learning_rate, "weight_decay": self.weight_decay}
        # Fused, an update of a large embedding takes a fraction of the time.
        fused = device.type in ("cpu", "cuda")
        made = partial(torch.optim.AdamW, lr=self.learning_rate, weight_decay=self.weight_decay, fused=fused)
        return {"optimizer": made}


def parts_that_serve(probe: str) -> dict[str, Any]:
    """Choose the parts of Step-E+ for a network of ours, where nothing is augmented."""
    # Much dropout makes these networks slow learners; slowed down further by what they judge themselves, they underfit.
    return {"average": 0, "refine": 0, "mixup": 0} if probe == "in-sample" else {}


def default_tuning(kind: DataKind, n: int, *, pretrained: bool = False) -> Tuning:
    """Choose how a network for a kind of data is trained: the more samples, the fewer epochs.

    >>> [default_tuning("features", n).epochs for n in (1_000, 30_000, 1_000_000)]
    [60, 41, 20]
    """
    growth = math.log(max(1, n / SMALL_DATA)) / math.log(LARGE_DATA / SMALL_DATA)
    epochs = round(60 - 40 * min(1.0, growth))
    tuning = Tuning(epochs=epochs, batch_size=64 if n < FEW_SAMPLES else 128)
    if pretrained:
        rate = 2e-5 if kind == "text" else 1e-4
        return replace(tuning, optimizer="adamw", learning_rate=rate, weight_decay=0.01, batch_size=32, epochs=10)
    if kind == "text":
        text = replace(tuning, hidden=(256,), dropout=0.5, optimizer="adamw", learning_rate=5e-3, weight_decay=0.01)
        return replace(text, epochs=epochs // 2)
    if kind == "table":
        return replace(tuning, hidden=(256, 256), dropout=0.3)
    # Standardised features are far larger than digits' pixels, and unstable at their rate.
    return replace(tuning, learning_rate=0.05) if kind == "features" else tuning


def tuning_for(source: Source, model: str | None) -> Tuning:
    """Choose how the network for a source is trained."""
    if source.default_epochs is not None:
        return Tuning(epochs=source.default_epochs)
    if isinstance(source.encoder, FrozenEncoder):
        return default_tuning("features", len(source.labels))
    return default_tuning(source.kind, len(source.labels), pretrained=model is not None)


def describe_network(source: Source, tuning: Tuning, device: torch.device, model: str | None) -> dict[str, Any]:
    """Describe the network for a kind of data, as :func:`stepe.models.build.build` makes it."""
    encoder, classes = source.encoder, source.classes
    if model is not None and not isinstance(encoder, FrozenEncoder):
        return {"name": "pretrained", "model": model, "classes": classes}
    if isinstance(encoder, TextEncoder):
        (hidden,) = tuning.hidden
        vocabulary = encoder.vocabulary
        return {
            "name": "text",
            "vocabulary": vocabulary,
            "classes": classes,
            "hidden": hidden,
            "dropout": tuning.dropout,
        }
    shape = {"classes": classes, "hidden": list(tuning.hidden), "dropout": tuning.dropout}
    if isinstance(encoder, TableEncoder):
        return {"name": "tabular", "numbers": encoder.numbers, "codes": encoder.codes, **shape}
    if isinstance(encoder, FeatureEncoder | FrozenEncoder):
        return {"name": "mlp", "inputs": source.x[0].size, **shape}
    # The CIFAR stem is far more accurate on small pictures, and far too slow without a GPU.
    small = device.type == "cuda" and source.x.shape[-1] <= SMALL
    return {"name": "resnet18", "classes": classes, "stem": "cifar" if small else "imagenet"}


def say_how_long(
    request: Request, source: Source, tuning: Tuning, description: dict[str, Any], say: Callable[[str], None]
) -> None:
    """Time one step of a network that is thrown away, and say what all of them will take."""
    with seeded(Stream.named(request.seed, "init")):
        model = build(description, pretrained=False)
        batch = torch.from_numpy(source.x[: tuning.batch_size]).float() / 255
        seconds = []
        for _ in range(2):  # the first one warms up
            started = time.perf_counter()
            model(batch).square().mean().backward()
            seconds.append(time.perf_counter() - started)
    samples = len(source.labels) * request.epochs * len(request.methods)
    share = PROBE_SHARE if request.probe == "in-sample" else PROBERS_SHARE
    minutes = min(seconds) / len(batch) * samples * share / 60
    if minutes >= 1:
        size = source.x.shape[-1]
        say(
            f"about {minutes:.0f} min on this CPU for {len(source.labels)} pictures of {size} x {size} and "
            f"{request.epochs} epochs; a GPU, or fewer --epochs, is faster"
        )


def image_options(source: Source, device: torch.device, model: str | None, strong: float) -> dict[str, Any]:
    """Return what :func:`stepe.fit` needs to know where the inputs are pictures."""
    if source.mean is None or source.std is None:
        return {}
    gpu = device.type == "cuda"
    light = CropFlip(padding=max(1, source.x.shape[-1] // 8))
    return {
        "forward": Normalised.by(source.mean, source.std, device),
        "augment": Strong(light, strong) if strong else light,
        "amp": "bf16" if gpu else None,
        "engine": "resident" if gpu and model is None else "eager",
    }


@contextmanager
def threads_for(model: nn.Module) -> Iterator[None]:
    """Run small networks on one thread: on a busy machine more mostly wait for each other, and results then do not
    depend on how many cores there are.
    """
    before = torch.get_num_threads()
    if is_small(model):
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def is_small(model: nn.Module) -> bool:
    """Say whether a network is so small that one thread serves it best."""
    return sum(parameter.numel() for parameter in model.parameters()) <= SMALL_MODEL
