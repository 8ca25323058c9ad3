"""How many labels are wrong, and how sure that is."""

from dataclasses import asdict, dataclass
from typing import Any

from stepe.errors import InputError

MARGIN, CAP = 0.05, 0.5
"""above a known rate so much more is dropped, and half of all at most (the paper, section 3.4)"""
NOTHING = 0.005
"""a smaller share is 0%"""
CAP_OF_ESTIMATE = 0.8
"""the largest share that is ever dropped for what was found out: something has to be left to learn from"""


@dataclass(frozen=True)
class Rate:
    """The share of wrong labels, and its range where it was found out without clean labels."""

    rate: float
    low: float
    high: float

    @property
    def is_unknown(self) -> bool:
        """Whether nothing could be said."""
        return self == UNKNOWN

    @property
    def may_be_none(self) -> bool:
        """Whether it may be that nothing is wrong, as far as a whole percent tells."""
        return self.low < NOTHING and not self.is_unknown

    def to_json(self) -> dict[str, Any]:
        """Return the rate as JSON values, for checkpoints and summaries."""
        return asdict(self)


UNKNOWN = Rate(0.0, 0.0, 1.0)


def stated_rate(found: Rate) -> str:
    """State a rate in a sentence.

    >>> stated_rate(Rate(0.081, 0.06, 0.1))
    'About 8% of the labels are estimated to be wrong (range: 6% to 10%).'
    """
    if found.is_unknown:
        return "The model learned too little to say how many labels are wrong; give it more epochs, or more data."
    return (
        f"About {found.rate:.0%} of the labels are estimated to be wrong (range: {found.low:.0%} to {found.high:.0%})."
    )


def rho_max_from_rate(rate: float) -> float:
    """Follow the paper's rule: ``min(0.5, rate + 0.05)``.

    >>> rho_max_from_rate(0.4)
    0.45
    """
    return min(CAP, check_rate(rate) + MARGIN)


def check_rate(rate: float) -> float:
    """Refuse what is no share."""
    if not 0 <= rate <= 1:
        raise InputError(f"the noise rate is {rate!r}; it must be a share in [0, 1]")
    return float(rate)
