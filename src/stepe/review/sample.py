"""The random sample of the suspects: what people decide in its order says how many of all flags are right."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from stepe.loop.draws import Draws
from stepe.run.decisions import Decision

if TYPE_CHECKING:
    from stepe.run.folder import RunFolder


def sample_order(run: "RunFolder", rows: Iterable[int]) -> dict[int, int]:
    """Give each suspect its place in a random order, the same whenever it is asked for."""
    drawn = Draws.named(run.config.fit.seed, "review/sample").shuffle(sorted(rows))
    return {row: place for place, row in enumerate(drawn.tolist())}


def sampled(order: Mapping[int, int], decisions: Mapping[int, Decision]) -> dict[int, Decision]:
    """Find the decisions on the random sample: all up to where somebody who followed its order came.

    Those beyond are left out, for whoever made them chose on what to decide.
    """
    made = {row: decision for row, decision in decisions.items() if row in order}
    reached = max((order[row] for row, each in made.items() if each.origin == "sample"), default=-1)
    return {row: each for row, each in made.items() if order[row] <= reached}
