"""The kernel judge: what tables need. Ridge regression on random cosines beside the columns themselves."""

from collections.abc import Sequence

from stepe.judges.base import Floats
from stepe.judges.blocks import Blocks
from stepe.judges.maps import Ranked, Standardised, Step, Steps, WithCosines, no_steps
from stepe.judges.ridge import Ridge
from stepe.judges.row_map import RowMap


def kernel(columns: Floats, blocks: Blocks, *, seed: int = 0, before: Steps = no_steps) -> Ridge:
    """Make a kernel judge of standardised columns.

    Args:
        columns: rows x columns.
        blocks: rows that do not judge each other.
        seed: decides what is drawn.
        before: gives the steps by which the columns came to be what they are; a model that is handed over takes them.
    """
    return _kernel("kernel", (), columns, blocks, seed, before)


def rank_kernel(columns: Floats, blocks: Blocks, *, seed: int = 0, before: Steps = no_steps) -> Ridge:
    """Make a kernel judge that sees of each number only its rank: long tails and outliers do not move it."""
    return _kernel("ranks", (Ranked.fit(columns),), columns, blocks, seed, before)


def _kernel(name: str, steps: Sequence[Step], columns: Floats, blocks: Blocks, seed: int, before: Steps) -> Ridge:
    seen = columns
    for step in steps:
        seen = step(seen)
    standard = Standardised.fit(seen)
    own = (*steps, standard)
    if standard.gives:
        own = (*own, WithCosines.fit(standard(seen), seed))
    return Ridge(name, RowMap(own)(columns), blocks, lambda: RowMap((*before(), *own)))
