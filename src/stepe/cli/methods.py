"""``stepe methods``: the methods in a line each, or what their options would be for some data."""

import json
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from stepe.app.clean import clean
from stepe.cli.declared import with_options
from stepe.cli.messages import escape, print_note


@with_options(clean, without={"out", "compare", "decisions", "track"})
def methods(
    typed: dict[str, Any],
    as_json: Annotated[bool, typer.Option("--json", help="Print the methods as JSON, with all options.")] = False,
) -> None:
    """List the methods; with DATA, what each of their options would be for these. Nothing is trained.

    The other options are those of stepe clean.
    """
    from stepe.app.methods import describe_method, methods_for
    from stepe.methods import EVERY_METHOD

    if "data" in typed:
        resolved = methods_for(typed.pop("data"), print_note, **typed)
        found = {name: describe_method(name) | _told(options) for name, options in resolved.items()}
    else:
        asked = typed.get("method", "all")
        found = {name: describe_method(name) for name in (EVERY_METHOD if asked == "all" else asked.split(","))}
        resolved = {}
    if as_json:
        typer.echo(json.dumps(found, default=str))
        return
    table = Table(title_justify="left", title_style="bold")
    for column in ("method", "its options for this data" if resolved else "what it does"):
        table.add_column(column)
    for name, method in found.items():
        table.add_row(name, escape(_in_a_line(resolved[name]) if resolved else method["summary"]))
    Console(emoji=False).print(table)


def _told(options: dict[str, Any] | str) -> dict[str, Any]:
    return {"refused": options} if isinstance(options, str) else {"options": options}


def _in_a_line(options: dict[str, Any] | str) -> str:
    if isinstance(options, str):
        return options
    values = {name: f"{value:.3g}" if isinstance(value, float) else value for name, value in options.items()}
    return ", ".join(f"{name} {'-' if value is None else value}" for name, value in values.items()) or "none"
