"""Where to cut: how suspicious all the labels are, and what is known of those above each cut."""

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from stepe.beliefs.cut import cut
from stepe.report.wording import percent
from stepe.review.precision import Precision
from stepe.review.sample import sample_order, sampled
from stepe.run.decisions import Decision

if TYPE_CHECKING:
    from stepe.run.folder import RunFolder

STEPS = 100
"""places of the slider between a suspicion of 0 and one of 1"""
LEAST = 20
"""labels above a cut that people have judged, drawn at random, before anything is said of the others"""

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Cuts:
    """What the page says of each cut, by hundredths of suspicion."""

    start: int
    """where the run itself cuts"""
    usual: bool
    """whether the run flags the labels that are more likely wrong than right, and no others"""
    flagged: int
    bars: list[int]
    """how many labels there are of each suspicion: from 0.00 to 0.01, and so on"""
    above: list[int]
    """how many are at least so suspicious; where the run cuts, how many it flags"""
    precision: dict[int, list[float]]
    """how many above a cut were wrong, of how many drawn at random from all above it, and the range of the share"""
    known: str = ""
    """the share of the run's flags that are right, where the truth is known"""

    def to_json(self) -> dict[str, Any]:
        """Return what the page's script needs."""
        return {name: value for name, value in asdict(self).items() if name != "bars"}

    @property
    def heights(self) -> list[float]:
        """The heights of the bars in percent; logarithmic, for most labels are hardly suspicious."""
        logs = np.log1p(self.bars)
        heights: list[float] = (100 * logs / max(1.0, float(logs.max()))).round(1).tolist()
        return heights


def cuts(run: "RunFolder") -> Cuts:
    """Find out what there is to say of each cut through the labels of a finished run."""
    training = run.samples[run.samples["split"] == "train"]
    suspicion, flagged = training["suspicion"].to_numpy(dtype=np.float64), training["flagged"].to_numpy(dtype=np.bool_)
    known = suspicion[np.isfinite(suspicion)]
    usual = bool((flagged == cut(suspicion)).all())
    pointed_out = suspicion[flagged & np.isfinite(suspicion)]
    start = STEPS // 2 if usual or not len(pointed_out) else int(_steps(pointed_out.min()))
    above = [int((known >= step / STEPS).sum()) for step in range(STEPS + 1)]
    above[start] = int(flagged.sum())
    places = np.minimum(_steps(known), STEPS - 1)
    rows: list[int] = training["row"][flagged].tolist()
    noise = run.summary.noise
    return Cuts(
        start=start,
        usual=usual,
        flagged=int(flagged.sum()),
        bars=np.bincount(places, minlength=STEPS).tolist(),
        above=above,
        precision=_precision(run, dict(zip(rows, suspicion[flagged].tolist(), strict=True)), start, above),
        known=percent(noise.flagged.precision) if noise is not None and noise.noisy and flagged.any() else "",
    )


def _steps(suspicion: npt.ArrayLike) -> npt.NDArray[np.int64]:
    """Count whole steps; 0.29 is 29 of them, whatever the rounding does."""
    return np.floor(np.round(np.asarray(suspicion, dtype=np.float64) * STEPS, 6)).astype(np.int64)


def _precision(run: "RunFolder", suspicion: dict[int, float], start: int, above: list[int]) -> dict[int, list[float]]:
    """Say how many labels above each cut are wrong, as far as a random sample of the suspects tells.

    Nobody has drawn any of the others: nothing is said where some of them lie above the cut.
    """
    decisions: dict[int, Decision] = {
        key.row: made for key, made in run.decisions.current().items() if key.split == "train"
    }
    drawn = sampled(sample_order(run, suspicion), decisions)
    found = {}
    for step in range(start, STEPS + 1):
        reached = {row for row, each in suspicion.items() if step == start or each >= step / STEPS}
        precision = Precision.of(made.wrong for row, made in drawn.items() if row in reached)
        if precision.judged >= LEAST and len(reached) == above[step]:
            found[step] = [precision.wrong, precision.judged, precision.low, precision.high]
    return found
