"""``stepe reproduce``: every table and figure of the paper."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from stepe.errors import InputError

if TYPE_CHECKING:
    from stepe.training.building import Observer

TABLES = {
    "main": "cifar100n",
    "noise": "cifar100n",
    "per-seed": "cifar100n",
    "cifar10n": "cifar10n",
    "sensitivity": "sensitivity",
    "cifar-stem": "cifar-stem",
}
FIGURES = {"convergence": "cifar100n", "dynamics": "cifar100n", "seed-band": "cifar100n", "cifar10n": "cifar10n"}
SMOKE = {"train_limit": 256, "test_limit": 128, "checkpoint_every": 1}
SMOKE_EPOCHS = 3


def reproduce(
    table: Annotated[
        str | None, typer.Option(help=f"Only what this table needs: {', '.join(TABLES)}.", show_default=False)
    ] = None,
    figure: Annotated[
        str | None, typer.Option(help=f"Only what this figure needs: {', '.join(FIGURES)}.", show_default=False)
    ] = None,
    preset: Annotated[
        str, typer.Option(help="paper, or smoke: the same on a few images, in minutes on a CPU.")
    ] = "paper",
    seeds: Annotated[str, typer.Option(help="Comma list.")] = "13,21,42",
    epochs: Annotated[int | None, typer.Option(help="Length of the runs; the paper's 60.", show_default=False)] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda, or auto: the best there is.")] = "auto",
    engine: Annotated[
        str, typer.Option(help="For runs that share the device: resident, or compiled, which takes a minute first.")
    ] = "resident",
    data_dir: Annotated[
        Path | None, typer.Option(help="Where CIFAR-N lies; else $STEPE_DATA, else a cache, else downloaded.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder for the results; an interrupted grid goes on there. By default results/, then the preset.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Run the paper's experiments; write its tables and figures beside its own numbers.

    Interrupted, it goes on where it stopped when it is called again.
    """
    from stepe.loop.schedule import check_epochs
    from stepe.reproduction import grid, runner
    from stepe.reproduction.claims import write_claims
    from stepe.reproduction.figures import write_figures
    from stepe.reproduction.tables import write_tables
    from stepe.training.building import find_device

    wanted = _wanted(table, figure)
    chosen = _seeds(seeds)
    if preset not in ("paper", "smoke"):
        raise InputError(f"preset is {preset!r}; choose paper or smoke")
    if engine not in ("resident", "compiled"):
        raise InputError(f"engine is {engine!r}; choose resident or compiled")
    smoke = preset == "smoke"
    length = (SMOKE_EPOCHS if smoke else grid.EPOCHS) if epochs is None else epochs
    check_epochs(length, warmup=1)  # before any run: the shortest that has something to drop
    out = Path("results", preset) if out is None else out
    files = {
        "cifar100n": grid.cifar100n(chosen),
        "cifar10n": grid.cifar10n(chosen),
        "sensitivity": grid.sensitivity(),
        "cifar-stem": grid.cifar_stem(),
    }
    cells = [cell.lasting(length) for file in wanted or files for cell in files[file]]
    if smoke:
        cells = [cell for cell in cells if cell.stem == "imagenet"]  # the other one is fifteen times the work
    bench = runner.Bench(
        find_device(device),
        data_dir,
        fleet_engine="compiled" if engine == "compiled" else "resident",
        **(SMOKE if smoke else {}),
    )
    console = Console(stderr=True, emoji=False)
    follow, live = _follow(console)
    with live:
        runner.carry_out(cells, out, bench, follow)
    for path in [*write_tables(out, out), *write_claims(out, out), *write_figures(out, out)]:
        typer.echo(str(path))


def _wanted(table: str | None, figure: str | None) -> set[str]:
    """Return the result files that were asked for; none means all."""
    for kind, name, known in (("table", table, TABLES), ("figure", figure, FIGURES)):
        if name is not None and name not in known:
            raise InputError(f"unknown {kind} {name!r}; choose one of {', '.join(known)}")
    return {known[name] for name, known in ((table, TABLES), (figure, FIGURES)) if name is not None}


def _seeds(text: str) -> tuple[int, ...]:
    try:
        return tuple(dict.fromkeys(int(seed) for seed in text.split(",")))
    except ValueError:
        raise InputError(f"seeds are {text!r}; write them as 13,21,42") from None


def _follow(console: Console) -> "tuple[Callable[[str], Observer], AbstractContextManager[Any]]":
    from stepe.cli.progress import Bars, Lines

    if not console.is_terminal:
        return (lambda name: Lines(console, name)), nullcontext()
    bars = Bars(console)
    return (lambda name: bars.follow(name, 0, 0)), bars.progress
