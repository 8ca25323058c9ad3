"""The commands. Results go to standard output, progress and messages to standard error."""

import re
import sys
import warnings
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

import stepe
from stepe.cli.apply import apply
from stepe.cli.bench import bench
from stepe.cli.clean import EXIT_INTERRUPTED, clean
from stepe.cli.cleaned import cleaned
from stepe.cli.compare import compare
from stepe.cli.explain import explain
from stepe.cli.export import export
from stepe.cli.messages import escape, print_line
from stepe.cli.methods import methods
from stepe.cli.predict import predict
from stepe.cli.report import report
from stepe.cli.reproduce import reproduce
from stepe.cli.review import review
from stepe.errors import StepeError
from stepe.options.check import resembling

app = typer.Typer(
    name="stepe",
    help="Train on labels you cannot trust, and get back the ones that are probably wrong.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)

EXIT_BAD_INPUT = 2


def main() -> NoReturn:
    """Run a command; a mistake of the user's is one line and exit code 2, never a traceback."""
    warnings.showwarning = _warn
    try:
        code = app(standalone_mode=False) or 0  # an early exit comes back as its code
    except StepeError as error:
        code = _complain(str(error))
    except typer.Abort:
        code = EXIT_INTERRUPTED
    except BrokenPipeError:  # the reader of a pipe had enough
        sys.stderr.close()
        code = 0
    except Exception as error:
        if not hasattr(error, "format_message"):  # click's own errors: unknown option, missing argument...
            raise
        message = _name_value(_name_neighbours(error.format_message()))
        code = _complain(message) if message else EXIT_BAD_INPUT  # without a command, the help was shown
    sys.exit(code)


def _name_neighbours(message: str) -> str:
    """Ask for what an unknown option resembles as everywhere else, the nearest first; typer sorts them."""
    listed = re.search(r"(--?[\w-]+) \(Possible options?: (.+)\)$", message)
    if listed is None:
        return message
    return f"{message[: listed.end(1)]}; {resembling(listed[1], listed[2].split(', '))}"


def _name_value(message: str) -> str:
    """Add what was typed: a value of the wrong kind is reported by its option's name alone."""
    option = re.search(r"'(--[\w-]+)'", message)
    if option and option[1] in sys.argv[:-1]:
        typed = sys.argv[sys.argv.index(option[1]) + 1]
        return message if typed in message else f"{message}; it was {typed!r}"
    return message


def _complain(message: str) -> int:
    print_line(f"[bold red]Error:[/] {escape(message)}")
    return EXIT_BAD_INPUT


def _warn(message: Warning | str, category: type[Warning], filename: str, lineno: int, *_: Any, **__: Any) -> None:
    """Show warnings: our own are for people; where in the code another one arose may matter."""
    ours = Path(filename).is_relative_to(Path(stepe.__file__).parent)
    where = "" if ours else f" ({category.__name__}, {filename}:{lineno})"
    print_line(f"[yellow]Warning:[/] {escape(f'{message}{where}')}")


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"stepe {stepe.__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass


for command in (clean, report, explain, compare, reproduce, bench, cleaned, review, apply, export, predict, methods):
    app.command()(command)
