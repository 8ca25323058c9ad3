"""Which judges look at which kind of data, and what each of them is shown."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import issparse
from sklearn.ensemble import HistGradientBoostingClassifier

from stepe.errors import InputError
from stepe.judges.axes import FewAxes
from stepe.judges.base import Floats, Judge
from stepe.judges.blocks import Blocks, Index
from stepe.judges.folds import InFolds
from stepe.judges.forest import Forest
from stepe.judges.kernel import kernel, rank_kernel
from stepe.judges.linear import linear
from stepe.judges.maps import Step
from stepe.judges.neighbours import Neighbours, can_search, nearest, nearly_nearest
from stepe.judges.panel import Panel
from stepe.options.layout import DataKind

NEIGHBOURS = 20
EXACT = 20_000
"""rows up to which all pairs are compared to find neighbours"""


@dataclass(frozen=True)
class Shown:
    """The rows as judges are shown them."""

    inputs: Any
    """rows x columns, which may be sparse"""
    blocks: Blocks
    seed: int = 0

    @cached_property
    def axes(self) -> Floats:
        """The rows on their main axes, where there are many columns."""
        return np.asarray(self._few.rows, dtype=np.float64)

    def to_axes(self) -> Sequence[Step]:
        """Return the steps from the inputs to the axes."""
        return self._few.steps

    def to_columns(self) -> Sequence[Step]:
        """Return the steps from the inputs to the columns."""
        return self._few.steps if issparse(self.inputs) else ()

    @cached_property
    def neighbours(self) -> npt.NDArray[np.int64]:
        """The nearest other rows of each: rows x neighbours. Of many rows not all pairs are compared, if it can be."""
        if len(self.blocks.number) > EXACT and can_search():
            return nearly_nearest(self.axes, NEIGHBOURS, seed=self.seed)
        return nearest(self.axes, NEIGHBOURS)

    @cached_property
    def _few(self) -> FewAxes:
        return FewAxes(self.inputs, self.seed)

    @cached_property
    def columns(self) -> Floats:
        """The rows as plain numbers."""
        return self.axes if issparse(self.inputs) else np.asarray(self.inputs, dtype=np.float64)


MAKERS: dict[str, Callable[[Shown], Judge]] = {
    "linear": lambda shown: linear(shown.axes, shown.blocks, seed=shown.seed, before=shown.to_axes),
    "kernel": lambda shown: kernel(shown.columns, shown.blocks, seed=shown.seed, before=shown.to_columns),
    "ranks": lambda shown: rank_kernel(shown.columns, shown.blocks, seed=shown.seed, before=shown.to_columns),
    "forest": lambda shown: Forest(shown.columns.astype(np.float32), shown.blocks, shown.seed),
    "neighbours": lambda shown: Neighbours(shown.neighbours, shown.blocks),
    "boosting": lambda shown: InFolds(
        "boosting", HistGradientBoostingClassifier(), shown.columns, shown.blocks, seed=shown.seed
    ),
}
DEFAULT: dict[DataKind, tuple[str, ...]] = {
    "table": ("kernel", "ranks", "forest"),
    "features": ("linear", "neighbours"),
    "text": ("linear", "neighbours"),
    "images": ("kernel", "neighbours"),
}
EVIDENCE: dict[DataKind, float] = {"table": 0.85, "text": 1.0, "features": 0.75, "images": 0.75}
"""how much a label says for itself: less where an expert could always tell, as of pictures"""
STRANGERS: dict[DataKind, float] = {"table": 0.0, "text": 0.0, "features": 0.5, "images": 0.5}
"""how far a guess that hesitates speaks of an input of none of the classes: not where classes overlap"""


def default_judges(kind: DataKind, n: int, say: Callable[[str], None] = lambda message: None) -> tuple[str, ...]:
    """Name the judges that fit a kind of data, and so many rows of it."""
    names = DEFAULT[kind]
    if "neighbours" in names and n > EXACT:
        names = tuple(name for name in names if name != "neighbours")
        asked = ",".join((*names, "neighbours"))
        say(f"neighbours are left out: among {n:,} rows, to find them takes longer than all else (--judges {asked})")
    return names


def panel_for(
    kind: DataKind,
    shown: Shown,
    judges: Sequence[str] | None = None,
    say: Callable[[str], None] = lambda message: None,
) -> Panel:
    """Make the panel that looks at some rows: the judges that were asked for, or those that fit the kind of data.

    Args:
        kind: the kind of data.
        shown: the rows.
        judges: names of judges, instead of those that fit the kind of data.
        say: is told in one line if a judge is left out that would fit.
    """
    values = shown.inputs.data if issparse(shown.inputs) else shown.inputs
    if not np.isfinite(values).all():
        raise InputError("the numbers to judge by hold NaN or infinity; fill such cells, or leave their rows out")
    names = judges or default_judges(kind, len(shown.blocks.number), say)
    if unknown := [name for name in names if name not in MAKERS]:
        raise InputError(f"unknown judge {unknown[0]!r}; choose among {', '.join(MAKERS)}")
    return Panel([MAKERS[name](shown) for name in dict.fromkeys(names)])


MANY = 50
"""a column of more different numbers than this tells rows apart"""


def blocks_of(
    kind: DataKind,
    keys: Sequence[Hashable],
    together: Sequence[str] | None = None,
    *,
    has_continuous: bool = True,
) -> Blocks:
    """Make the blocks of a file: copies of one input are left out together, and so are rows of one group.

    Rows of a table of few categories are not copies where they are the same: each is a case of its own, and such cases
    are all the evidence there is.

    Args:
        kind: the kind of data.
        keys: of each row what its copies share, such as the text, or a hash of the picture or of the row of numbers.
        together: of each row the name of its group; rows without a name are in none.
        has_continuous: whether a column tells rows of the table apart (:func:`has_many_values`).
    """
    alone = Blocks.of_one_row(len(keys)).number
    count_copies = kind != "table" or has_continuous
    copies = _numbered(keys) if count_copies else alone
    if together is None:
        return Blocks.by(copies)
    groups = np.array([name != "" for name in together], dtype=np.bool_)
    return Blocks.by(copies, np.where(groups, _numbered(together), -1 - alone))


def has_many_values(columns: Floats) -> bool:
    """Tell whether rows with the same numbers are copies: some column has more than 50 different ones.

    >>> has_many_values(np.arange(100.0)[:, None]), has_many_values(np.arange(100.0)[:, None] % 2)
    (True, False)
    """
    return any(len(np.unique(column)) > MANY for column in columns.T)


def _numbered(keys: Sequence[Hashable]) -> Index:
    """Give each key a number, equal ones the same."""
    number: dict[Hashable, int] = {}
    return np.array([number.setdefault(key, len(number)) for key in keys], dtype=np.int64)
