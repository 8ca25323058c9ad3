"""A problem that a network learns by heart: what a method is for shows in how far it is not fooled."""

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import stepe
from stepe.loop.ledger import Ledger
from stepe.methods import METHODS, Batch, Method, Task, make_method
from stepe.training.building import Result, cross_entropy

CLASSES, INPUTS, NOISE = 4, 20, 0.4


@pytest.fixture(scope="session")
def fooled() -> Callable[..., Result]:
    """Trains on 300 samples, 40% of them under a wrong label; the test samples are clean. Equal calls train once."""
    draw = torch.Generator().manual_seed(0)
    centres = torch.randn(CLASSES, INPUTS, generator=draw)

    def samples(n: int) -> tuple[Tensor, Tensor]:
        clean = torch.arange(n) % CLASSES
        return centres[clean] + torch.randn(n, INPUTS, generator=draw), clean

    (x, clean), test = samples(300), samples(1000)
    wrong = torch.rand(300, generator=draw) < NOISE
    shift = torch.randint(1, CLASSES, (300,), generator=draw)
    given = torch.where(wrong, (clean + shift) % CLASSES, clean)

    @cache
    def train(method: str, epochs: int = 30, **options: Any) -> Result:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            model = nn.Sequential(nn.Linear(INPUTS, 128), nn.ReLU(), nn.Linear(128, CLASSES))
        own = set(METHODS[method].options())
        return stepe.fit(
            model,
            x,
            given,
            method=make_method(method, **{name: options.pop(name) for name in own & options.keys()}),
            epochs=epochs,
            test=test,
            truth=stepe.Truth.from_labels(given, clean),
            batch_size=32,
            learning_rate=0.05,
            weight_decay=0,
            device="cpu",
            **options,
        )

    return train


@pytest.fixture
def started() -> Callable[..., tuple[Method, Ledger]]:
    """A method that knows its task: so many labels, of so many classes."""

    def start(name: str, labels: Tensor, classes: int = 3, epochs: int = 4, **options: Any) -> tuple[Method, Ledger]:
        method, ledger = make_method(name, **options), Ledger(len(labels))
        method.start(Task(labels, classes, epochs=epochs, seed=0, criterion=cross_entropy(classes)), ledger)
        return method, ledger

    return start


@pytest.fixture
def batch_of() -> Callable[..., Batch]:
    """A batch of the first samples."""

    def make(x: Any, labels: Tensor, weight: Tensor | None = None) -> Batch:
        total = float(len(labels) if weight is None else weight.sum())
        return Batch(x, labels, labels, torch.arange(len(labels)), weight, total)

    return make


@pytest.fixture
def logits() -> Tensor:
    """Of five samples and three classes; one is sure beyond what a float can hold."""
    drawn = 2 * torch.randn(5, 3, generator=torch.Generator().manual_seed(0))
    drawn[4] = torch.tensor([200.0, -200.0, 0.0])
    return drawn.requires_grad_()


@pytest.fixture
def labels() -> Tensor:
    """Of the same samples; the last is what its logits rule out."""
    return torch.tensor([0, 2, 1, 0, 1])
