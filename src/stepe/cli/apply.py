"""``stepe apply``: decisions from a file, and the cleaned data that follows from them."""

from pathlib import Path
from typing import Annotated

import typer

from stepe.cli.cleaned import mode_of
from stepe.cli.messages import print_note
from stepe.cli.runs import RunArgument, TrustOption, open_run, trust_or_ask


def apply(
    run: RunArgument,
    reviewed: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="Decisions, as a review or report.html exports them (reviewed.csv).",
            show_default=False,
        ),
    ],
    drop: Annotated[bool, typer.Option("--drop", help="Leave suspicious rows out that nobody settled.")] = False,
    relabel: Annotated[
        bool, typer.Option("--relabel", help="Give these the suggested label, where that is sure.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Another file than cleaned.* in the run folder.", show_default=False),
    ] = None,
    trust_paths: TrustOption = False,
) -> None:
    """Take over the decisions of a file, and write the input again with the labels that people chose."""
    from stepe.review.cleaned import write_cleaned
    from stepe.review.reviewed import apply_reviewed
    from stepe.run.decisions import VERDICTS

    mode = mode_of(drop=drop, relabel=relabel)
    opened = open_run(run)
    count = apply_reviewed(opened, reviewed)
    told = ", ".join(f"{count[verdict]} {verdict}" for verdict in VERDICTS if count[verdict])
    print_note(f"{count.total()} decisions: {told or 'none'}")
    trust = trust_or_ask(trust_paths)
    typer.echo(str(write_cleaned(open_run(run), mode, out=out, trust_paths=trust, say=print_note)))
