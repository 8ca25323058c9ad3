"""Single cells: as text, as the name of a class, and as text that no spreadsheet runs.

A class named ``=1+1`` must not run when somebody opens ``issues.csv``.
"""

import math
import re
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

# Apostrophes that stand before such a start already are escaped again, so that reading back gives them back.
_RUNS = re.compile(r"'*[=+\-@\t\r\n]")
_ESCAPED = re.compile(r"'+[=+\-@\t\r\n]")


def as_text(value: Any) -> str:
    r"""Write a cell as people would: a whole number that pandas made a float is one again.

    >>> [as_text(value) for value in ("007", 3.0, 2.5, None, float("nan"), True)]
    ['007', '3', '2.5', '', '', 'True']
    >>> as_text("é".encode()), as_text(b"a\xff") == r"a\xff"
    ('é', True)
    """
    if isinstance(value, str):
        return value
    if value is None or (isinstance(value, float | np.floating) and math.isnan(value)):
        return ""
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return str(int(value))
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    text = str(value)
    return "" if text in ("<NA>", "NaT") else text


def same_label(found: object, name: str) -> bool:
    """Say whether a cell holds the class of that name: text as it is, other values by what they mean.

    >>> same_label("007", "7"), same_label(7.0, "7"), same_label(True, "true")
    (False, True, True)
    """
    if isinstance(found, bytes):
        found = as_text(found)
    if isinstance(found, str):
        return found == name or found.strip() == name
    if str(found).casefold() == name.casefold():
        return True
    try:
        return float(found) == float(name)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return False


def escape(cell: str) -> str:
    """Put an apostrophe in front of a cell that a spreadsheet might take for a formula.

    >>> escape("=1+1"), escape("cat")
    ("'=1+1", 'cat')
    """
    return f"'{cell}" if _RUNS.match(cell) else cell


def unescape(cell: str) -> str:
    """Return the cell as it was before :func:`escape`.

    >>> unescape("'=1+1"), unescape("'tis")
    ('=1+1', "'tis")
    """
    return cell[1:] if _ESCAPED.match(cell) else cell


def escape_texts(frame: "pd.DataFrame") -> "pd.DataFrame":
    """Escape the texts of a table; numbers, a negative one too, can run nothing."""
    texts = frame.select_dtypes(exclude=["number", "bool"]).columns
    return frame.assign(**{name: frame[name].map(escape, na_action="ignore") for name in texts})
