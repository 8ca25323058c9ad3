"""Right labels of rare classes: how many of them an audit flags, beside cleanlab on the audit's own probabilities.

Made data: 1,000 rows of ten numbers, two or three classes, one of which holds 3%, none or a tenth of the labels wrong,
and signal from weak to strong (the distance of neighbouring classes, in standard deviations).

    python benchmarks/rare_classes.py       writes results/rare-classes.json
"""

import sys
import warnings
from pathlib import Path

import numpy as np
from planted import Key, Row, grid_options, measure_grid

from stepe.audit.panel import EVIDENCE, STRANGERS, Shown, panel_for
from stepe.audit.rounds import audit
from stepe.judges.blocks import Blocks
from stepe.options.layout import DataKind

try:
    from cleanlab.filter import find_label_issues
except ImportError as error:
    sys.exit(f'{error}; this benchmark needs cleanlab: pip install "stepe[cleanlab]"')

ROWS, COLUMNS, RARE = 1_000, 10, 0.03
DISTANCES = (0.5, 1.0, 2.0, 3.0)
NOISES = (0.0, 0.1)
KINDS: tuple[DataKind, ...] = ("features", "table")


def made(classes: int, distance: float, noise: float, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows, their true classes, the last of which is rare, and their given labels."""
    random = np.random.default_rng((seed, classes, round(10 * distance), round(100 * noise)))
    shares = [(1 - RARE) / (classes - 1)] * (classes - 1) + [RARE]
    truth = random.choice(classes, ROWS, p=shares)
    rows = random.standard_normal((ROWS, COLUMNS))
    rows[np.arange(ROWS), truth] += distance
    moved = random.random(ROWS) < noise
    return rows, truth, np.where(moved, (truth + random.integers(1, classes, ROWS)) % classes, truth)


def measure(key: Key) -> Row:
    """One row: the shares of right labels that are flagged."""
    warnings.simplefilter("ignore")
    kind, classes, distance, noise, seed = key
    rows, truth, labels = made(classes, distance, noise, seed)
    panel = panel_for(kind, Shown(rows, Blocks.of_one_row(ROWS), seed))
    found = audit(panel, labels, classes, evidence=EVIDENCE[kind], strangers=STRANGERS[kind])
    by_cleanlab = find_label_issues(labels, found.rounds[0].view.probability, n_jobs=1)
    right, rare = labels == truth, truth == classes - 1

    def shares(flagged: np.ndarray) -> Row:
        wrong = ~right
        return {
            "rare": float(flagged[right & rare].mean()),
            "large": float(flagged[right & ~rare].mean()),
            "recall": float(flagged[wrong].mean()) if wrong.any() else None,
        }

    return {
        "kind": kind,
        "classes": classes,
        "distance": distance,
        "noise": noise,
        "seed": seed,
        "stepe": shares(found.belief.flagged),
        "cleanlab": shares(by_cleanlab),
        "has_signal": found.belief.has_signal,
        "hardly_recognised": found.belief.hardly_recognised,
    }


def main() -> None:
    arguments = grid_options(__doc__, Path("results/rare-classes.json")).parse_args()
    settings = [(k, c, d, e) for k in KINDS for c in (2, 3) for d in DISTANCES for e in NOISES]
    keys = [(*setting, arguments.first_seed + seed) for seed in range(arguments.seeds) for setting in settings]
    names = ("kind", "classes", "distance", "noise", "seed")
    measure_grid(arguments, keys, measure, lambda row: tuple(row[name] for name in names))


if __name__ == "__main__":
    main()
