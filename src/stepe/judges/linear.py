"""The linear judge: what features and texts need."""

from typing import Any

from stepe.judges.axes import FewAxes
from stepe.judges.blocks import Blocks
from stepe.judges.maps import OfLengthOne, Steps, no_steps
from stepe.judges.ridge import Ridge
from stepe.judges.row_map import RowMap


def linear(features: Any, blocks: Blocks, *, seed: int = 0, before: Steps = no_steps) -> Ridge:
    """Make a linear judge of rows of numbers, which may be sparse; one may have more columns than rows.

    Args:
        features: rows x columns.
        blocks: rows that do not judge each other.
        seed: decides what is drawn.
        before: gives the steps by which the features came to be what they are; a model that is handed over takes them.
    """
    few = FewAxes(features, seed)
    unit = OfLengthOne.fit(few.rows)
    return Ridge("linear", RowMap((unit,))(few.rows), blocks, lambda: RowMap((*before(), *few.steps, unit)))
