"""A panel: several judges, mixed by how likely they make the rows that count."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from stepe.beliefs.parts import in_parts
from stepe.judges.base import Floats, Judge, Settings, View
from stepe.judges.likelihood import TINY, sample_of_rows

STEPS = 50
SHARE = " share"
"""ends the name of a judge's share among the settings of a panel"""


@dataclass(frozen=True)
class Panel:
    """Judges that answer as one."""

    judges: Sequence[Judge]
    name: str = "panel"

    def look(self, weights: Floats, targets: Floats, settings: Settings | None = None) -> View:
        """Ask every judge, and mix what they say.

        The settings are those of the judges, each under its name, and each judge's share of the mixture.
        """
        views = [judge.look(weights, targets, settings_of(judge, settings)) for judge in self.judges]
        views_of = [view.probability for view in views]
        if settings is None:
            shares = mixture(views_of, weights, targets)
        else:
            shares = np.array([settings[f"{judge.name}{SHARE}"] for judge in self.judges])
        chosen = {
            f"{judge.name} {name}": value
            for judge, view in zip(self.judges, views, strict=True)
            for name, value in view.settings.items()
        }
        chosen |= {f"{judge.name}{SHARE}": float(share) for judge, share in zip(self.judges, shares, strict=True)}
        mixed = np.empty_like(targets)
        for part in in_parts(*targets.shape):
            mixed[part] = sum(
                share * probability[part].astype(np.float64)
                for share, probability in zip(shares, views_of, strict=True)
            )
        return View(mixed, chosen)


def mixture(views: Sequence[Floats], weights: Floats, targets: Floats) -> Floats:
    """Find each view's share of the mixture that makes the targets likeliest, by EM.

    >>> sure, unsure = np.array([[0.9, 0.1]] * 4), np.array([[0.5, 0.5]] * 4)
    >>> mixture([sure, unsure], np.ones(4), np.array([[1.0, 0.0]] * 4)).round(2).tolist()
    [1.0, 0.0]
    """
    some = sample_of_rows(weights, targets.shape[1])
    shares = np.full(len(views), 1 / len(views))
    if not len(some):
        return shares
    # How likely each view makes each target; a soft target counts as the mean over its classes.
    place, classes = np.nonzero(targets[some])
    rows = some[place]
    likely = np.stack([np.maximum(view[rows, classes], TINY, dtype=np.float64) for view in views], axis=1)
    counted = weights[rows] * targets[rows, classes]
    for _ in range(STEPS):
        mixed = likely * shares
        mixed /= mixed.sum(1, keepdims=True)
        shares = counted @ mixed / counted.sum()
    return shares


def settings_of(judge: Judge, settings: Settings | None) -> Settings | None:
    """Return a judge's own part of the panel's settings."""
    if settings is None:
        return None
    start = f"{judge.name} "
    return {name.removeprefix(start): value for name, value in settings.items() if name.startswith(start)}
