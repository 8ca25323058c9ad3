"""Data with planted noise for the benchmarks: digits, features, a table and texts, and how each is trained.

`debian-packages.csv` is looked for in $STEPE_DATA.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import stepe
from stepe.data.noise import Noise
from stepe.models.mlp import MLP
from stepe.randomness import Stream, seeded
from stepe.recipes.clean import Preset, training_for

TABLE = "debian-packages.csv"
WIDTH = 128
"""of the features: digits through a fixed random projection"""


@dataclass(frozen=True)
class Data:
    """Samples before any noise."""

    x: Tensor
    labels: Tensor
    network: Callable[[], nn.Module]
    looks: Tensor
    """inputs as numbers that mean something: noise that depends on the input looks at these"""
    ranges: tuple[Tensor, Tensor] | None = None
    """lowest and highest value of each column, where an outlier cannot be drawn from one range for all"""

    @property
    def classes(self) -> int:
        return int(self.labels.max()) + 1


class FastMLP(nn.Sequential):
    """BatchNorm and no dropout: it knows its labels by heart after a few epochs."""

    def __init__(self, inputs: int, classes: int, hidden: int = 256):
        layers: list[nn.Module] = []
        for width in (hidden, hidden):
            layers += [nn.Linear(inputs, width), nn.BatchNorm1d(width), nn.ReLU()]
            inputs = width
        super().__init__(*layers, nn.Linear(inputs, classes))


# (data, model): how both train it, as `stepe clean` would; how many seeds it has
GRID: dict[tuple[str, str], tuple[Preset, int]] = {
    ("digits", "mlp"): (Preset(), 10),
    ("digits", "batchnorm"): (Preset(learning_rate=0.05, batch_size=64), 10),
    ("features", "mlp"): (training_for("features", 1_437), 10),
    ("table", "tabular"): (training_for("table", 5_310), 5),
    ("text", "bag"): (training_for("text", 5_310), 5),
}


@lru_cache(maxsize=1)
def load(data: str, model: str) -> Data:
    if data in ("digits", "features"):
        from stepe.data.source import digits

        source = digits()
        x = source.x
        if data == "features":
            weight = Stream.named(0, "projection").normal(torch.arange(x.shape[1] * WIDTH)).reshape(-1, WIDTH)
            x = x @ weight
            x = (x - x.mean(0)) / x.std(0)
        kind = FastMLP if model == "batchnorm" else SlowMLP
        return Data(x, source.labels, lambda: kind(x.shape[1], source.classes), looks=x)
    return load_text() if data == "text" else load_table()


class SlowMLP(MLP):
    """The network of `stepe clean`."""

    def __init__(self, inputs: int, classes: int):
        super().__init__(inputs, classes, hidden=(512, 512), dropout=0.7)


def packages_path() -> Path:
    return Path(os.environ.get("STEPE_DATA", ""), TABLE)


def read_packages() -> tuple[Any, Tensor]:
    from stepe.data.table import read_table

    table = read_table(packages_path())
    _, labels = np.unique(table["section"].to_numpy(dtype=str), return_inverse=True)
    return table, torch.tensor(labels, dtype=torch.int64)


def load_text() -> Data:
    from sklearn.decomposition import TruncatedSVD
    from sklearn.feature_extraction.text import TfidfVectorizer

    from stepe.data.encode import TextEncoder
    from stepe.models.text import TextBag

    table, labels = read_packages()
    texts = table["description"].tolist()
    encoder = TextEncoder.fit(texts)
    latent = TruncatedSVD(64, random_state=0).fit_transform(TfidfVectorizer(min_df=2).fit_transform(texts))
    classes = int(labels.max()) + 1
    return Data(
        encoder.encode(texts),
        labels,
        lambda: TextBag(encoder.vocabulary, classes),
        looks=torch.tensor(latent, dtype=torch.float32),
    )


def load_table() -> Data:
    from stepe.data.encode import TableEncoder
    from stepe.models.tabular import Tabular

    table, labels = read_packages()
    table = table.drop(columns=["package", "section", "description"])
    encoder = TableEncoder.fit(table)
    x = encoder.encode(table)
    classes = int(labels.max()) + 1
    ranges = (x.amin(0), x.amax(0))
    return Data(x, labels, lambda: Tabular(encoder.numbers, encoder.codes, classes), looks=x, ranges=ranges)


def plant(data: Data, noise: str, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Inputs, labels, and which samples were touched."""
    parsed = Noise.parse(noise)
    assert parsed is not None
    planted = parsed.plant(data.looks, data.labels, data.classes, seed)
    if parsed.kind != "outliers":
        return data.x, planted.labels, planted.noisy
    if data.looks is data.x and data.ranges is None:
        return planted.x, planted.labels, planted.noisy
    # Numbers that stand for categories or n-grams stay such numbers.
    x, chosen = data.x.clone(), torch.nonzero(planted.noisy).squeeze(1)
    old = x[chosen]
    drawn = Stream.named(seed, "noise/input").uniform(torch.arange(old.numel())).reshape(old.shape)
    if data.ranges is None:  # n-grams; 0 pads
        x[chosen] = torch.where(old > 0, 1 + (drawn * int(x.max())).to(x.dtype), old)
    else:
        low, high = data.ranges
        whole = (data.x == data.x.round()).all(0)
        x[chosen] = torch.where(
            whole, (low + drawn * (high - low + 1)).floor().clamp(max=high), low + drawn * (high - low)
        )
    return x, planted.labels, planted.noisy


def train(data: Data, x: Tensor, y: Tensor, preset: Preset, seed: int, **options: Any) -> stepe.Result:
    with seeded(Stream.named(seed, "init")):
        network = data.network()
    rate: dict[str, Any] = {"learning_rate": preset.learning_rate, "weight_decay": preset.weight_decay}
    if preset.optimizer == "adamw":
        adam = partial(torch.optim.AdamW, lr=preset.learning_rate, weight_decay=preset.weight_decay, fused=True)
        rate = {"optimizer": adam}
    return stepe.fit(
        network,
        x,
        y,
        epochs=preset.epochs,
        batch_size=preset.batch_size,
        **rate,
        seed=seed,
        device="cpu",
        **options,
    )
