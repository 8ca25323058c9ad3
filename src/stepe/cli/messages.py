"""What the command line says besides results: on standard error, texts as they are."""

import typer
from rich.console import Console
from rich.text import Text

from stepe.files import UNWRITABLE


def print_line(markup: str) -> None:
    """Print one line on standard error."""
    line = " ".join(markup.splitlines())
    Console(stderr=True, emoji=False).print(line, soft_wrap=True, highlight=False)


def print_note(message: str) -> None:
    """Print a message beside the result, which other programs may read."""
    typer.echo(message, err=True)


def escape(text: str) -> str:
    """Make a text one in which rich sees no markup, and a terminal no commands."""
    from rich.markup import escape

    return escape(_harmless(text))


def as_it_is(text: str, style: str = "") -> Text:
    """Show data as it is: nothing in it is markup, and commands to a terminal, which it may hold, are left out."""
    return Text(_harmless(text), style)


def _harmless(text: str) -> str:
    return UNWRITABLE.sub("\N{REPLACEMENT CHARACTER}", text)
