"""``stepe report``: the report of a run, built again."""

import typer

from stepe.cli.runs import RunArgument, open_run


def report(run: RunArgument = "latest") -> None:
    """Build the report of a run again, and say where it is."""
    typer.echo(str(open_run(run).report()))
