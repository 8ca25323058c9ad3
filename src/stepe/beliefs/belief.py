"""The belief: what a run holds true of the labels, made once and read by everybody."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from stepe.beliefs.rate import Rate

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Belief:
    """How many labels are wrong, how they go wrong, and what is held of each row's label.

    Made once, after the last look at the data. Rows follow the sample indices, classes their numbers; where labels are
    no classes, there are none.
    """

    rate: Rate
    """how many labels are wrong, with its range; :data:`stepe.beliefs.rate.UNKNOWN` where nobody can say"""
    rate_was_found: bool
    """whether the rate was found out, and was neither given nor left open"""
    noise: Floats
    """the noise matrix, classes x classes: P(given label j | true class i), at [i, j]"""
    p_right: Floats
    """of each row, the probability that its label is right; NaN where nothing was learned of it"""
    suggestion: npt.NDArray[np.int64]
    """of each row, the class that it is likeliest of, its own label left out where that is pointed out; -1 for none"""
    confidence: Floats
    """of each row, the probability of the suggestion; NaN where there is none"""
    recognised: npt.NDArray[np.bool_]
    """of each class, whether its rows are told from others; labels of a class that is not are never called wrong"""
    flagged: npt.NDArray[np.bool_]
    """of each row, whether people are advised to look at its label"""
    has_signal: bool = True
    """whether the rows say anything of their labels at all; if not, nothing is flagged"""
    evidence: float | None = None
    """how much a label counted as evidence of its own (tau); ``None`` where it did not"""

    @property
    def found_rate(self) -> Rate | None:
        """The rate, where it was found out."""
        return self.rate if self.rate_was_found else None

    @property
    def hardly_recognised(self) -> list[int]:
        """The classes whose labels are never called wrong, though others are."""
        return np.flatnonzero(~self.recognised).tolist() if self.has_signal else []

    @property
    def may_be_clean(self) -> bool:
        """Whether it may be that no label is wrong: the range of the rate begins at 0."""
        return self.rate_was_found and self.has_signal and self.rate.may_be_none
