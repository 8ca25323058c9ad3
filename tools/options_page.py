"""docs/options.md, from the signatures that declare the options: ``python tools/options_page.py``, or ``make docs``."""

import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import stepe
from stepe.methods import EVERY_METHOD
from stepe.options import Declared, Option, options_of

PAGE = Path(__file__).parents[1] / "docs" / "options.md"
INTRODUCTION = """# Options

Every option is declared once, in the signature of what takes it: `stepe.clean`, `stepe.fit`, or the class of a method.
The command line, the checks of values, `config.json` and this page are made from there. On the command line `rho_max`
is `--rho-max`, several columns or methods are written with commas between them, and `stepe clean --help` says the same.

(From `python tools/options_page.py`, which `make docs` runs; a test keeps page and signatures the same.)
"""
FIT = """`stepe.fit(model, data, labels, ...)` takes the options of Step-E and a few of a run. Its other
arguments, about tensors, networks and optimizers, stand in its docstring."""
METHODS = """`stepe clean --method NAME` takes a method as it is. In Python each is a class in `stepe.methods`, made
with its options and handed over: `stepe.fit(model, x, y, method=StepEPlus(cutmix=0.5))`."""
COLUMNS = ("option", "takes", "without it", "what it does")


class Reference:
    """The page as it grows: an option that several things take is explained where it comes first."""

    def __init__(self) -> None:
        self.parts: list[str] = [INTRODUCTION]
        self.explained: list[tuple[str, Option]] = []

    def add(self, title: str, declaring: Callable[..., Any], *told: str, panels: bool = False) -> None:
        """Add a section with the options that are new, and the names of the others."""
        self.parts += [title, *told]
        options = options_of(declaring).values()
        new = [option for option in options if (option.name, option.option) not in self.explained]
        if new and not panels:
            self.parts.append(table(new))
        for panel in dict.fromkeys(option.option.panel for option in new if panels):
            self.parts += [f"### {panel}", table(option for option in new if option.option.panel == panel)]
        if known := [_with_default(option) for option in options if option not in new]:
            self.parts.append(f"{'Also, as' if new else 'As'} above: {', '.join(known)}.")
        self.explained += [(option.name, option.option) for option in new]


def page() -> str:
    """The whole page, in Markdown."""
    reference = Reference()
    reference.add("## `stepe clean`", stepe.clean, panels=True)
    reference.add("## `stepe.fit`", stepe.fit, FIT)
    reference.parts += ["## Methods", METHODS]
    for kind in EVERY_METHOD.values():
        reference.add(f"### `{kind.name}`", kind, f"`{kind.__name__}`: {kind.summary}.")
    return "\n\n".join(part.strip() for part in reference.parts) + "\n"


def table(options: Iterable[Declared]) -> str:
    """One row an option."""
    rows = [COLUMNS, ("---",) * len(COLUMNS)]
    rows += [(f"`{each.name}`", each.takes, each.without or _off(each), each.option.help) for each in options]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in rows)


def _off(option: Declared) -> str:
    return "False" if option.is_switch else "-"


def _with_default(option: Declared) -> str:
    return f"`{option.name}`" if option.default is None else f"`{option.name}={option.default!r}`"


if __name__ == "__main__":
    if "--print" in sys.argv:
        sys.stdout.write(page())
    else:
        PAGE.write_text(page(), encoding="utf-8")
