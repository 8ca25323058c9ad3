"""``stepe review``: go through the suspects in a browser."""

from typing import Annotated

import typer
from rich.console import Console

from stepe.cli.runs import RunArgument, TrustOption, open_run
from stepe.errors import InputError


def review(
    run: RunArgument = "latest",
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="By default 8765, or any that is free.", show_default=False)
    ] = None,
    no_open: Annotated[bool, typer.Option("--no-open", help="Print the address, and open no browser.")] = False,
    trust_paths: TrustOption = False,
) -> None:
    """Go through the suspects of a run in a browser on this machine: accept, keep, choose another label.

    Every decision is saved at once in the run folder. The address works here only; keep its token to yourself.
    """
    from stepe.review.suspects import Suspects

    try:
        from stepe.review.server import serve
    except ImportError as error:
        raise InputError(
            f'stepe review needs the package {error.name}; install it with: pip install "stepe[review]"'
        ) from error
    suspects = Suspects(open_run(run))
    console = Console(stderr=True, emoji=False)

    def announce(address: str) -> None:
        console.print(
            f"{len(suspects)} labels to look at; stop with Ctrl-C, decisions are saved as they are made",
            highlight=False,
            soft_wrap=True,
        )
        typer.echo(address)

    serve(suspects, port=port, announce=announce, show=not no_open, trust_paths=trust_paths)
