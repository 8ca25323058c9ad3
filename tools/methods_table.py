"""The table of docs/methods.md, from the methods themselves: ``python tools/methods_table.py``."""

import sys
from dataclasses import fields

from stepe.methods import EVERY_METHOD, Method

COLUMNS = ("method", "what it does", "options and their defaults", "paper")


def table() -> str:
    """One row a method, in Markdown."""
    rows = [COLUMNS, ("---",) * len(COLUMNS), *(row(kind) for kind in EVERY_METHOD.values())]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in rows)


def row(kind: type[Method]) -> tuple[str, ...]:
    """A method's name, summary, options and paper."""
    options = ", ".join(f"`{option.name}={option.default!r}`" for option in fields(kind))
    return f"`{kind.name}`", kind.summary, options or "none", kind.paper or "-"


if __name__ == "__main__":
    sys.stdout.write(table() + "\n")
