"""``stepe compare``: runs side by side."""

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from stepe.cli.messages import escape
from stepe.cli.runs import open_run
from stepe.errors import InputError


def compare(
    runs: Annotated[list[str], typer.Argument(metavar="RUN", help="Two or more run folders.")],
    out: Annotated[Path, typer.Option(help="Where the curves go: .svg, .png or .pdf.")] = Path("comparison.svg"),
    as_json: Annotated[bool, typer.Option("--json", help="Print the summaries as JSON; draw nothing.")] = False,
) -> None:
    """Put runs side by side: a table, and their curves over each other."""
    opened = [open_run(run) for run in runs]
    if as_json:
        typer.echo(json.dumps([{"run": str(run.path), "summary": run.summary.to_json()} for run in opened]))
        return
    from stepe.cli.tables import comparison
    from stepe.files import replacing
    from stepe.report.figures import overlaid

    if out.suffix not in (".svg", ".png", ".pdf"):
        raise InputError(f"--out {out} must end in .svg, .png or .pdf")
    figure = overlaid(opened)
    with replacing(out) as temporary:
        figure.savefig(temporary, bbox_inches="tight")
    console = Console(emoji=False)
    names = [escape(f"{run.path.name} ({run.method})") for run in opened]
    console.print(comparison(opened, names, "Runs side by side"))
    console.print(f"Curves: {out}", highlight=False, soft_wrap=True, markup=False)
