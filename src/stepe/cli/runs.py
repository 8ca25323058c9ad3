"""Runs, as they are named on the command line."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from stepe.app.run import Run

RunArgument = Annotated[str, typer.Argument(metavar="RUN", help="A run folder, or [b]latest[/b].")]


def run_path(name: str) -> Path:
    """A run by path, or the latest one."""
    from stepe.run.folder import latest_run

    return latest_run() if name == "latest" and not Path(name).exists() else Path(name)


def open_run(name: str) -> "Run":
    """The same, opened."""
    from stepe.app.run import Run

    return Run(run_path(name))
