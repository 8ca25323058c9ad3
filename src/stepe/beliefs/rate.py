"""How many labels are wrong, and how sure that is."""

from dataclasses import asdict, dataclass
from typing import Any

MARGIN = 0.05
CAP = 0.5
CAP_OF_ESTIMATE = 0.8
"""a known rate above 0.45 is capped as in the paper; where more is surely wrong, more has to go"""
VAGUE = 0.5
"""a wider range says nothing"""
BELIEVED = 0.63
"""a larger rate needs proof: with 60% wrong labels estimates stayed below it, of tables hardly learned above"""


@dataclass(frozen=True)
class Rate:
    """The share of wrong labels, and the 90% range of it where it was found out without clean labels."""

    rate: float
    low: float
    high: float
    unrelated: float = 0.0
    """at least so many labels have nothing to do with their input: wrong at random, or on inputs that show nothing"""

    @property
    def is_unknown(self) -> bool:
        """Whether nothing could be said."""
        return self == UNKNOWN

    @property
    def is_founded(self) -> bool:
        """Whether most of it is sure, or was seen to be unrelated."""
        return max(self.low, self.unrelated) > self.rate / 2

    @property
    def is_vague(self) -> bool:
        """Whether the range is too wide for the rate to mean anything, unless there is something else to it.

        >>> Rate(0.4, 0.0, 0.6).is_vague, Rate(0.4, 0.0, 0.6, unrelated=0.3).is_vague
        (True, False)
        """
        return self.high - self.low > VAGUE and not self.is_founded

    @property
    def is_beyond_belief(self) -> bool:
        """Whether it calls most labels wrong, and nothing proves it but a model that fails to explain them."""
        return self.rate > BELIEVED and self.low <= self.rate / 2 and self.unrelated <= self.rate / 4

    @property
    def cap(self) -> float:
        """The most that may be dropped for it: more than half only where it is founded.

        >>> Rate(0.6, 0.4, 0.7).cap, Rate(0.6, 0.1, 0.7).cap, Rate(0.7, 0.1, 0.9).cap
        (0.8, 0.5, 0.1)
        >>> Rate(0.6, 0.1, 0.7, unrelated=0.5).cap
        0.8
        """
        if self.is_beyond_belief:
            return self.low
        return CAP_OF_ESTIMATE if self.is_founded else CAP

    @property
    def rho_max(self) -> float:
        """A margin above it as above a known rate, and a quarter of the way up its range, for it may be too low.

        Less above a small one: of clean labels hardly any go.

        >>> Rate(0.4, 0.35, 0.45).rho_max, Rate(0.0, 0.0, 0.01).rho_max
        (0.4625, 0.0)
        """
        little = self.rate / 4
        return min(self.cap, self.rate + min(MARGIN, little) + min((self.high - self.rate) / 4, little))

    def to_json(self) -> dict[str, Any]:
        """Return the rate as JSON values, for checkpoints and summaries."""
        return asdict(self)


UNKNOWN = Rate(0.0, 0.0, 1.0)


def stated_rate(found: Rate) -> str:
    """State a rate in a sentence.

    >>> stated_rate(Rate(0.081, 0.06, 0.1))
    'About 8% of the labels are estimated to be wrong (90% range: 6% to 10%).'
    """
    if found.is_unknown:
        return "The model learned too little to say how many labels are wrong; give it more epochs, or more data."
    span = f"{found.low:.0%} to {found.high:.0%}"
    if found.is_vague:
        return f"How many labels are wrong cannot be told: the model explains too few of them (90% range: {span})."
    return f"About {found.rate:.0%} of the labels are estimated to be wrong (90% range: {span})."
