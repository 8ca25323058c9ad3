"""Data with planted noise for the benchmarks, as `stepe clean` reads and trains it, and grids that can be interrupted.

`debian-packages.csv` is looked for in $STEPE_DATA.
"""

import argparse
import json
import multiprocessing
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import stepe
from stepe.app.networks import Tuning, default_tuning, describe_network
from stepe.app.request import METHOD
from stepe.data.collect import Layout
from stepe.data.noise import Noise
from stepe.data.source import Source, digits, open_own
from stepe.files import write_text
from stepe.loop.randomness import Stream, seeded
from stepe.methods import make_method, method_class
from stepe.models.build import build
from stepe.training.environment import describe_environment

TABLE = "debian-packages.csv"
HOLD_OUT = 0.2
WIDTH = 128
"""of the features: digits through a fixed random projection"""
CPU = torch.device("cpu")

Row = dict[str, Any]
Key = tuple[Any, ...]
"""data first, seed last"""


@dataclass(frozen=True)
class Divided:
    """Samples with planted noise to train on, and others, their labels untouched, for the accuracy."""

    x: Tensor
    labels: Tensor
    clean: Tensor
    noisy: Tensor
    test: tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Case:
    """Samples before any noise, and how they are trained."""

    source: Source
    preset: Tuning
    network: Callable[[], nn.Module]
    seeds: int

    def plant(self, noise: str, seed: int) -> Source:
        """The samples with noise, and the truth about it."""
        return self.source.planted(Noise.parse(noise), seed)

    def divided(self, noise: str, seed: int) -> Divided:
        """The samples with noise, a fifth of them held out without."""
        source, clean = self.plant(noise, seed), self.source
        assert source.truth is not None
        order = Stream.named(seed, "hold-out").shuffle(torch.arange(len(clean.labels)))
        held_out, rest = order.tensor_split([round(HOLD_OUT * len(order))])
        arrays = (source.x, source.labels, clean.labels, source.truth.noisy)
        x, labels, right, noisy = (torch.from_numpy(array)[rest] for array in arrays)
        test = torch.from_numpy(clean.x)[held_out], torch.from_numpy(clean.labels)[held_out]
        return Divided(x, labels, right, noisy, test)

    def clean(
        self, x: Any, y: Any, seed: int, preset: Tuning | None = None, *, method: str = METHOD, **options: Any
    ) -> stepe.Result:
        """One run that finds out who should judge, without blends of what cannot be blended."""
        if not self.source.can_be_blended and "mixup" in method_class(method).options():
            options = {"mixup": 0} | options
        return self.train(x, y, seed, preset, method=method, probe="auto", **options)

    def train(
        self, x: Any, y: Any, seed: int, preset: Tuning | None = None, *, method: str = "step-e", **options: Any
    ) -> stepe.Result:
        """One run on the CPU."""
        own = {name: options.pop(name) for name in method_class(method).options() if name in options}
        made = make_method(method, **own)
        return stepe.fit(self.untrained(seed), x, y, method=made, seed=seed, **self.budget(preset), **options)

    def untrained(self, seed: int) -> nn.Module:
        """The network, the same for the same seed."""
        with seeded(Stream.named(seed, "init")):
            return self.network()

    def budget(self, preset: Tuning | None = None) -> Row:
        """Epochs, batches and optimizer, on the CPU."""
        preset = preset or self.preset
        sizes = {"epochs": preset.epochs, "batch_size": preset.batch_size, "device": CPU}
        return sizes | preset.optimizer_options(CPU)


class FastMLP(nn.Sequential):
    """BatchNorm and no dropout: it knows its labels by heart after a few epochs."""

    def __init__(self, inputs: int, classes: int, hidden: int = 256):
        layers: list[nn.Module] = []
        for width in (hidden, hidden):
            layers += [nn.Linear(inputs, width), nn.BatchNorm1d(width), nn.ReLU()]
            inputs = width
        super().__init__(*layers, nn.Linear(inputs, classes))


def packages_path() -> Path:
    return Path(os.environ.get("STEPE_DATA", ""), TABLE)


def _features() -> Source:
    source = digits()
    weight = Stream.named(0, "projection").normal(torch.arange(source.x.shape[1] * WIDTH)).reshape(-1, WIDTH)
    return open_own(((torch.from_numpy(source.x) @ weight).numpy(), source.labels), Layout(holdout=0))


def _packages(**columns: str) -> Source:
    return open_own(packages_path(), Layout(label="section", id="package", holdout=0, **columns))


SOURCES: dict[str, tuple[Callable[[], Source], int]] = {
    "digits": (digits, 10),
    "features": (_features, 10),
    "table": (_packages, 5),
    "text": (lambda: _packages(text="description"), 5),
}
"""data -> where it comes from, how many seeds it has"""


def seeds_of(data: str) -> int:
    """How many seeds data has; noise that is part of the data has one."""
    return SOURCES[data][1] if data in SOURCES else 1


@lru_cache(maxsize=1)
def load(data: str, model: str = "own") -> Case:
    """Data with the network that `stepe clean` would choose, or with one that memorises."""
    read, seeds = SOURCES[data]
    source = read()
    if model == "batchnorm":
        preset = Tuning(learning_rate=0.05, batch_size=64)
        return Case(source, preset, lambda: FastMLP(source.x.shape[1], source.classes), seeds)
    preset = Tuning() if source.bundled else default_tuning(source.kind, len(source.labels))
    return Case(source, preset, lambda: build(describe_network(source, preset, CPU, None)), seeds)


def grid_options(description: str | None, out: Path) -> argparse.ArgumentParser:
    """What the grids have in common on the command line."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10, help="where the grid has so many")
    parser.add_argument("--first-seed", type=int, default=0, help="settings are chosen on other seeds than measured")
    parser.add_argument("--only", nargs="*", default=[], help="rows whose data, model or noise begin like this")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--out", type=Path, default=out)
    return parser


def grid_keys(
    arguments: argparse.Namespace, settings: list[Key], most_seeds: Callable[[str], int] = seeds_of
) -> list[Key]:
    """Settings with their seeds, seed by seed, so that an unfinished grid says something about everything."""
    keys = [
        (*setting, arguments.first_seed + seed)
        for seed in range(arguments.seeds)
        for setting in settings
        if seed < most_seeds(setting[0])
    ]
    chosen = [key for key in keys if all(any(part.startswith(word) for part in key[:-1]) for word in arguments.only)]
    if not chosen:
        known = sorted({part for setting in settings for part in setting})
        sys.exit(
            f"no row has {' and '.join(arguments.only) or 'a seed'}; --only takes beginnings of: {', '.join(known)}"
        )
    if any(key[0] in ("text", "table") for key in chosen) and not packages_path().exists():
        sys.exit(f"set STEPE_DATA to the folder that holds {TABLE}, or choose other rows with --only")
    return chosen


def measure_grid(
    arguments: argparse.Namespace,
    keys: list[Key],
    measure: Callable[[Key], Row],
    key_of: Callable[[Row], Key],
    others: Sequence[Row] = (),
    **more: Any,
) -> list[Row]:
    """A row per key, and ``others``, measured elsewhere. Each is written as soon as it is there; what is there already
    is not measured again.
    """
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    stored = json.loads(arguments.out.read_text(encoding="utf-8"))["rows"] if arguments.out.exists() else []
    rows = {key_of(row): row for row in [*stored, *others]}
    missing = [key for key in keys if key not in rows]

    def write() -> None:
        result = {"rows": list(rows.values()), **more, "environment": describe_environment()}
        write_text(arguments.out, json.dumps(result, indent=1) + "\n")

    if others:
        write()
    with multiprocessing.get_context("spawn").Pool(arguments.processes) as pool:
        for done, row in enumerate(pool.imap_unordered(measure, missing), start=1):
            rows[key_of(row)] = row
            write()
            print(f"{done}/{len(missing)} {' '.join(map(str, key_of(row)))}", file=sys.stderr)
    return [rows[key] for key in [*keys, *map(key_of, others)]]
