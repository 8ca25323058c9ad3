"""``stepe cleaned``: the input again, without its suspicious labels."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stepe.errors import InputError

if TYPE_CHECKING:
    from stepe.cleaned import Mode
    from stepe.run import Run

RunArgument = Annotated[str, typer.Argument(metavar="RUN", help="A run folder, or [b]latest[/b].")]


def cleaned(
    run: RunArgument = "latest",
    drop: Annotated[bool, typer.Option("--drop", help="Leave the suspicious rows out.")] = False,
    relabel: Annotated[bool, typer.Option("--relabel", help="Give them the suggested label.")] = False,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Another file than cleaned.* in the run folder.", show_default=False),
    ] = None,
) -> None:
    """Write the input again with its suspicious rows marked, left out or relabelled; all else stays as it was."""
    from stepe.cleaned import write_cleaned

    if drop and relabel:
        raise InputError("--drop and --relabel exclude each other; give one of the two")
    mode: Mode = "drop" if drop else "relabel" if relabel else "mark"
    typer.echo(str(write_cleaned(open_run(run), mode, out=out)))


def open_run(name: str) -> "Run":
    """A run by path, or the latest one."""
    from stepe.run import Run, latest_run

    return Run(latest_run() if name == "latest" and not Path(name).exists() else name)
