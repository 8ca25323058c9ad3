"""How many of the flagged labels are wrong, and how sure that is: from what people decided so far."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise

Z = 1.6449
"""standard deviations of a 90% range"""
PAUSE = 60.0
"""seconds after which somebody was not deciding but away"""
RECENT = 40
"""decisions from which the pace is taken"""


@dataclass(frozen=True)
class Precision:
    """How many of the labels that people judged were wrong, and the range of the share of all labels."""

    wrong: int
    judged: int
    low: float
    high: float

    @classmethod
    def of(cls, wrong: Iterable[bool | None]) -> "Precision":
        """Count verdicts; those that nobody was sure about say nothing.

        >>> found = Precision.of([True] * 41 + [False] * 9 + [None])
        >>> found.wrong, found.judged, round(found.low, 2), round(found.high, 2)
        (41, 50, 0.71, 0.89)
        """
        sure = [each for each in wrong if each is not None]
        return cls(sum(sure), len(sure), *wilson(sum(sure), len(sure)))


def wilson(hits: int, n: int, z: float = Z) -> tuple[float, float]:
    """Find the range of a share by Wilson's score interval, which also holds for few, and at 0 and 1.

    >>> wilson(0, 0)
    (0.0, 1.0)
    """
    if n == 0:
        return 0.0, 1.0
    share, spread = hits / n, z * z / n
    middle = share + spread / 2
    half = z * math.sqrt(share * (1 - share) / n + spread / (4 * n))
    return max(0.0, (middle - half) / (1 + spread)), min(1.0, (middle + half) / (1 + spread))


def seconds_each(times: Sequence[str]) -> float | None:
    """Measure how long a decision takes, by when the last ones were made (in UTC); ``None`` where too few say.

    Several at the same moment were made at once, and count as so many.

    >>> seconds_each(["2026-01-01T10:00:00+00:00", "2026-01-01T10:00:02+00:00", "2026-01-01T10:00:06+00:00"])
    3.0
    """
    made = [datetime.fromisoformat(time) for time in sorted(times)[-RECENT - 1 :]]
    gaps = [(later - earlier).total_seconds() for earlier, later in pairwise(made)]
    worked = [gap for gap in gaps if gap <= PAUSE]
    return sum(worked) / len(worked) if len(worked) > 1 and sum(worked) > 0 else None
