"""What the command line says besides results: on standard error, texts as they are."""

from rich.console import Console


def print_line(markup: str) -> None:
    """Print one line on standard error."""
    line = " ".join(markup.splitlines())
    Console(stderr=True, emoji=False).print(line, soft_wrap=True, highlight=False)


def escape(text: str) -> str:
    """A text in which rich sees no markup."""
    from rich.markup import escape

    return escape(text)
