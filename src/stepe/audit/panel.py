"""Which judges look at which kind of data, and what each of them is shown."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy.sparse import issparse
from sklearn.ensemble import HistGradientBoostingClassifier

from stepe.errors import InputError
from stepe.judges.axes import FewAxes
from stepe.judges.base import Floats, Judge
from stepe.judges.blocks import Blocks
from stepe.judges.folds import InFolds
from stepe.judges.forest import Forest
from stepe.judges.kernel import kernel, rank_kernel
from stepe.judges.linear import linear
from stepe.judges.maps import Step
from stepe.judges.neighbours import Neighbours, nearest
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
    "neighbours": lambda shown: Neighbours(nearest(shown.axes, NEIGHBOURS), shown.blocks),
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
EVIDENCE: dict[DataKind, float] = {"table": 1.0, "text": 1.0, "features": 0.75, "images": 0.75}
"""how much a label says for itself: less where an expert could always tell, as of pictures"""


def panel_for(kind: DataKind, shown: Shown, judges: Sequence[str] | None = None) -> Panel:
    """Make the panel that looks at some rows: the judges that were asked for, or those that fit the kind of data."""
    names = judges or tuple(name for name in DEFAULT[kind] if name != "neighbours" or len(shown.blocks.number) <= EXACT)
    values = shown.inputs.data if issparse(shown.inputs) else shown.inputs
    if not np.isfinite(values).all():
        raise InputError("the numbers to judge by hold NaN or infinity; fill such cells, or leave their rows out")
    if unknown := [name for name in names if name not in MAKERS]:
        raise InputError(f"unknown judge {unknown[0]!r}; choose among {', '.join(MAKERS)}")
    return Panel([MAKERS[name](shown) for name in dict.fromkeys(names)])
