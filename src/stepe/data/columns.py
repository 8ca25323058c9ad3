"""What the cells of a column hold: numbers, dates or categories."""

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from stepe.tables.cells import as_text

if TYPE_CHECKING:
    import pandas as pd

MISSING = frozenset({"", "na", "n/a", "nan", "null", "none", "?", "-", "nat"})
"""what people write into a cell that has no value"""
DATE_LIKE = r"\d{4}-\d{1,2}-\d{1,2}(?:[T ].*)?|\d{1,2}[/.]\d{1,2}[/.]\d{4}(?: .*)?|\d{4}/\d{1,2}/\d{1,2}(?: .*)?"


def column_type(values: "pd.Series[Any]") -> str:
    """Say whether a column holds numbers, dates or categories, by all of its values."""
    import pandas as pd

    if pd.api.types.is_datetime64_any_dtype(values):
        return "date"
    if pd.api.types.is_numeric_dtype(values):
        return "number"
    texts = pd.Series([text for text in cells(values) if text], dtype=object)
    if not len(texts):
        return "category"
    if pd.to_numeric(texts, errors="coerce").notna().all():
        return "number"
    if texts.str.fullmatch(DATE_LIKE).all() and _dates(texts).notna().all():
        return "date"
    return "category"


def cells(values: "pd.Series[Any]") -> list[str]:
    """Return the cells of a column as text; empty where there is no value."""
    return ["" if text.strip().lower() in MISSING else text for text in map(as_text, values)]


def numbers_of(values: "pd.Series[Any]") -> npt.NDArray[np.float64]:
    """Return the cells of a column as numbers; NaN for none, and for infinity, which no network can use."""
    import pandas as pd

    if pd.api.types.is_numeric_dtype(values):
        found = pd.to_numeric(values).to_numpy(dtype=np.float64, na_value=np.nan)
    else:
        found = pd.to_numeric(pd.Series(cells(values), dtype=object), errors="coerce").to_numpy(dtype=np.float64)
    return np.where(np.isfinite(found), found, np.nan)


def date_parts(values: "pd.Series[Any]") -> list[npt.NDArray[np.float64]]:
    """Split the dates of a column into days since 1970, month, weekday and hour; NaN where there is no date."""
    import pandas as pd

    dates = _dates(values if pd.api.types.is_datetime64_any_dtype(values) else pd.Series(cells(values), dtype=object))
    days = (dates - pd.Timestamp(0, tz="UTC")) / pd.Timedelta(days=1)
    parts = (days, dates.dt.month, dates.dt.day_of_week, dates.dt.hour)
    return [np.asarray(part.to_numpy(dtype=np.float64, na_value=np.nan)) for part in parts]


def _dates(values: "pd.Series[Any]") -> "pd.Series[Any]":
    import pandas as pd

    return pd.to_datetime(values, errors="coerce", format="mixed", utc=True)
