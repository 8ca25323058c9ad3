"""Cells that stay text in a spreadsheet: a class named ``=1+1`` must not run when somebody opens ``issues.csv``."""

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

# Apostrophes that stand before such a start already are escaped again, so that reading back gives them back.
_RUNS = re.compile(r"'*[=+\-@\t\r\n]")
_ESCAPED = re.compile(r"'+[=+\-@\t\r\n]")


def escape(cell: str) -> str:
    """The cell with an apostrophe in front, if a spreadsheet might take it for a formula.

    >>> escape("=1+1"), escape("cat")
    ("'=1+1", 'cat')
    """
    return f"'{cell}" if _RUNS.match(cell) else cell


def unescape(cell: str) -> str:
    """The cell as it was before :func:`escape`.

    >>> unescape("'=1+1"), unescape("'tis")
    ('=1+1', "'tis")
    """
    return cell[1:] if _ESCAPED.match(cell) else cell


def escape_texts(frame: "pd.DataFrame") -> "pd.DataFrame":
    """A table with its texts escaped; numbers, a negative one too, can run nothing."""
    texts = frame.select_dtypes(exclude=["number", "bool"]).columns
    return frame.assign(**{name: frame[name].map(escape, na_action="ignore") for name in texts})
