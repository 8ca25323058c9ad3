"""``stepe bench``: how fast the engines are on this machine."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from stepe.errors import InputError

if TYPE_CHECKING:
    from stepe.models.resnet import Stem
    from stepe.reproduction.bench import Speed


def bench(
    stems: Annotated[str, typer.Option(help="Comma list of ResNet-18's stems.")] = "imagenet,cifar",
    engines: Annotated[str, typer.Option(help="Comma list of engines.")] = "eager,resident,compiled",
    fleets: Annotated[str, typer.Option(help="Comma list: how many runs at once.")] = "1,2,4,8,18",
    images: Annotated[int, typer.Option(help="Random pictures to train on; CIFAR has 50,000.", min=2)] = 50_000,
    batch: Annotated[int, typer.Option(help="Pictures in a step.", min=1)] = 128,
    device: Annotated[str, typer.Option(help="cpu, cuda, or auto: the best there is.")] = "auto",
    out: Annotated[Path, typer.Option(help="Where the numbers go.")] = Path("results/bench.json"),
) -> None:
    """Measure ms per step, s per epoch, probe time and TFLOP/s of each engine, alone and in fleets."""
    from stepe.files import write_text
    from stepe.reproduction.bench import Setting, measure
    from stepe.training.building import engine_class, find_device
    from stepe.training.environment import describe_environment

    found = find_device(device)
    setting = Setting(
        found,
        images=images,
        batch=batch,
        stems=[_stem(name) for name in _names(stems)],
        engines=[name for name in _names(engines) if engine_class(name)],
        fleets=_sizes(fleets),
    )
    console = Console(stderr=True, emoji=False)
    speeds: list[Speed] = []

    def show(speed: "Speed") -> None:
        speeds.append(speed)
        console.print(
            f"{speed.stem} stem, {speed.engine}, {speed.fleet} at once: {speed.ms_per_step:.3f} ms a step", style="dim"
        )

    result = measure(setting, show) | {"environment": describe_environment(device=str(found))}
    out.parent.mkdir(parents=True, exist_ok=True)
    write_text(out, json.dumps(result, indent=1) + "\n")
    Console(emoji=False).print(_table(speeds))
    typer.echo(str(out))


def _table(speeds: "list[Speed]") -> Table:
    from stepe.reproduction.bench import COLUMNS, cells

    table = Table(title="ResNet-18 on 32 x 32 pictures", title_justify="left", title_style="bold")
    for column in COLUMNS[:2]:
        table.add_column(column, min_width=8)
    for column in COLUMNS[2:]:
        table.add_column(column, justify="right")
    for speed in speeds:
        table.add_row(*cells(speed))
    return table


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _stem(name: str) -> "Stem":
    if name not in ("imagenet", "cifar"):
        raise InputError(f"unknown stem {name!r}; choose imagenet, cifar, or both")
    return "imagenet" if name == "imagenet" else "cifar"


def _sizes(text: str) -> list[int]:
    try:
        sizes = [int(size) for size in _names(text)]
    except ValueError:
        sizes = []
    if not sizes or min(sizes) < 1:
        raise InputError(f"fleets are {text!r}; write how many runs at once, as 1,4,18")
    return sizes
