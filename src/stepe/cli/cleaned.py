"""``stepe cleaned``: the input again, without its suspicious labels."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stepe.cli.messages import print_note
from stepe.cli.runs import RunArgument, TrustOption, open_run, trust_or_ask
from stepe.errors import InputError

if TYPE_CHECKING:
    from stepe.review.edits import Mode


def cleaned(
    run: RunArgument = "latest",
    drop: Annotated[bool, typer.Option("--drop", help="Leave the suspicious rows out.")] = False,
    relabel: Annotated[bool, typer.Option("--relabel", help="Give them the suggested label.")] = False,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Another file than cleaned.* in the run folder.", show_default=False),
    ] = None,
    trust_paths: TrustOption = False,
) -> None:
    """Write the input again with its suspicious rows marked, left out or relabelled; all else stays as it was."""
    from stepe.review.cleaned import write_cleaned

    mode, trust = mode_of(drop=drop, relabel=relabel), trust_or_ask(trust_paths)
    typer.echo(str(write_cleaned(open_run(run), mode, out=out, trust_paths=trust, say=print_note)))


def mode_of(*, drop: bool, relabel: bool) -> "Mode":
    """Say what is done with suspicious rows."""
    if drop and relabel:
        raise InputError("--drop and --relabel are two ways to treat the same rows; choose one")
    return "drop" if drop else "relabel" if relabel else "mark"
