"""``stepe export``: the suspects for another tool."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from stepe.cli.runs import RunArgument, TrustOption, open_run, trust_or_ask


def export(
    run: RunArgument,
    to: Annotated[str, typer.Option(metavar="TOOL", help="label-studio or fiftyone.", show_default=False)],
    out: Annotated[
        Path | None,
        typer.Option(
            help="The file (label-studio) or folder (fiftyone); by default in the run folder.", show_default=False
        ),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="All samples, not only the suspects.")] = False,
    trust_paths: TrustOption = False,
) -> None:
    """Hand the suspects, with suggestions, to Label Studio or FiftyOne."""
    from stepe.review.export import export as write

    console = Console(stderr=True, emoji=False)

    def say(message: str) -> None:
        console.print(message, highlight=False, soft_wrap=True, markup=False)

    trust = trust_or_ask(trust_paths)
    typer.echo(str(write(open_run(run), to, out=out, everything=everything, trust_paths=trust, say=say)))
