"""``stepe cleaned``: the input again, without its suspicious labels."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stepe.cli.declared import with_options
from stepe.cli.messages import print_note
from stepe.cli.runs import RunArgument, TrustOption, open_run, trust_or_ask
from stepe.errors import InputError
from stepe.review.cleaned import write_cleaned

if TYPE_CHECKING:
    from stepe.review.edits import Mode


@with_options(write_cleaned)
def cleaned(
    typed: dict[str, Any],
    run: RunArgument = "latest",
    drop: Annotated[bool, typer.Option("--drop", help="Leave the suspicious rows out.")] = False,
    relabel: Annotated[
        bool, typer.Option("--relabel", help="Give them the suggested label, where that is sure.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Another file than cleaned.* in the run folder.", show_default=False),
    ] = None,
    trust_paths: TrustOption = False,
) -> None:
    """Write the input again with its suspicious rows marked, left out or relabelled; all else stays as it was."""
    mode, trust = mode_of(drop=drop, relabel=relabel), trust_or_ask(trust_paths)
    typer.echo(str(write_cleaned(open_run(run), mode, out=out, trust_paths=trust, say=print_note, **typed)))


def mode_of(*, drop: bool, relabel: bool) -> "Mode":
    """Say what is done with suspicious rows."""
    if drop and relabel:
        raise InputError("--drop and --relabel are two ways to treat the same rows; choose one")
    return "drop" if drop else "relabel" if relabel else "mark"
