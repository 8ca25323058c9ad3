"""Runs, as they are named on the command line."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from stepe.app.run import Run
    from stepe.run.paths import Trust

TrustOption = Annotated[
    bool,
    typer.Option(
        "--trust-paths", help="Follow the paths that the run folder names, although somebody else made it elsewhere."
    ),
]
RunArgument = Annotated[str, typer.Argument(metavar="RUN", help="A run folder, or [b]latest[/b].")]


def run_path(name: str) -> Path:
    """Find a run by path, or the latest one."""
    from stepe.run.folder import latest_run

    return latest_run() if name == "latest" and not Path(name).exists() else Path(name)


def trust_or_ask(trusted: bool) -> "Trust":
    """Agree to the paths of somebody else's run folder by ``--trust-paths``, or by asking a person at a terminal."""
    return trusted or (lambda said: sys.stdin.isatty() and typer.confirm(f"{said}. Use that?", err=True))


def open_run(name: str) -> "Run":
    """Open a run by path, or the latest one."""
    from stepe.app.run import Run

    return Run(run_path(name))
