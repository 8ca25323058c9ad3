"""What an audit costs, and what it finds, where rows or classes are many: beside cleanlab on logistic regression.

Everything is made by Gaussian classes, so nothing is read. Each row is measured in a process of its own, so that its
peak of memory is its own, and results/audit-speed.json has it as soon as it is there; an interrupted grid goes on where
it stopped.

    python benchmarks/audit_speed.py                       all of it: an hour or more
    python benchmarks/audit_speed.py --only growth         rows whose name begins like this
    python benchmarks/audit_speed.py --scale 0.01 --out /tmp/speed.json
                                                           a hundredth of the rows, to see that it works
"""

import argparse
import json
import resource
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score
from sklearn.model_selection import StratifiedKFold
from threadpoolctl import threadpool_limits

from stepe.audit.panel import EVIDENCE, STRANGERS, Shown, panel_for
from stepe.audit.rounds import audit
from stepe.judges.base import one_hot
from stepe.judges.blocks import Blocks
from stepe.judges.linear import linear
from stepe.loop.metrics import auroc, detection

OUT = Path("results/audit-speed.json")
RATE, FOLDS, KIND = 0.1, 5, "features"
ACCURACY = 0.85
"""of a linear model on held-out rows, where data is made for one"""
SINGLE = 10_000_000
"""so many rows x classes are held in single precision"""

Row = dict[str, Any]
Floats = np.ndarray


@dataclass(frozen=True)
class Shape:
    """The data of a row of the grid, and who looks at it."""

    n: int
    columns: int
    classes: int
    who: str
    """a name in :data:`FINDERS`"""
    fitting: bool = False
    """the classes lie so near to each other that a linear model is right for :data:`ACCURACY`"""


GRID = {
    "whole stepe": Shape(50_000, 384, 10, "stepe", fitting=True),
    "whole alone": Shape(50_000, 384, 10, "stepe by the linear judge", fitting=True),
    "whole cleanlab": Shape(50_000, 384, 10, "cleanlab", fitting=True),
    **{f"growth {n}": Shape(n, 128, 10, "linear") for n in (10_000, 100_000, 1_000_000)},
    "classes 1000": Shape(100_000, 64, 1_000, "stepe"),
    **{
        f"many {classes} {who}": Shape(n, 64, classes, who, fitting=True)
        for n, classes in ((10_000, 100), (50_000, 1_000))
        for who in ("stepe", "cleanlab")
    },
}


# -- Data ----------------------------------------------------------------------------------------------------------


def made(shape: Shape, seed: int) -> tuple[Floats, np.ndarray, np.ndarray]:
    """Rows, their given labels, and which of these are wrong."""
    random = np.random.default_rng(seed)
    truth = random.integers(0, shape.classes, shape.n)
    centres = random.standard_normal((shape.classes, shape.columns), dtype=np.float32)
    rows = random.standard_normal((shape.n, shape.columns), dtype=np.float32)
    spread = _spread(centres, seed) if shape.fitting else 1.0
    rows *= np.float32(spread)
    rows += centres[truth]
    wrong = random.random(shape.n) < RATE
    labels = np.where(wrong, (truth + random.integers(1, shape.classes, shape.n)) % shape.classes, truth)
    return rows, labels, wrong


def _spread(centres: Floats, seed: int, tried: int = 2_000) -> float:
    """How far rows stray from their centres where the best linear model is right for so many of them: the nearest
    centre is that model.
    """
    random = np.random.default_rng((seed, 1))
    truth = random.integers(0, len(centres), tried)
    noise = random.standard_normal((tried, centres.shape[1]))
    low, high = 0.0, 10.0
    for _ in range(30):
        spread = (low + high) / 2
        rows = centres[truth] + spread * noise
        right = ((rows @ centres.T - (centres**2).sum(1) / 2).argmax(1) == truth).mean()
        low, high = (spread, high) if right > ACCURACY else (low, spread)
    return low


# -- Who finds wrong labels ----------------------------------------------------------------------------------------


def by_stepe(
    rows: Floats, labels: np.ndarray, classes: int, seed: int, judges: list[str] | None = None
) -> tuple[Floats, Row]:
    """The whole audit: a panel, and its rounds. The suspicion of each label."""
    said: list[str] = []
    panel = panel_for(KIND, Shown(rows, Blocks.of_one_row(len(labels)), seed), judges, say=said.append)
    belief = audit(panel, labels, classes, evidence=EVIDENCE[KIND], strangers=STRANGERS[KIND]).belief
    judges = [judge.name for judge in panel.judges]
    return 1 - belief.p_right, {"judges": judges, "said": said, "flags": belief.flagged}


def by_linear_audit(rows: Floats, labels: np.ndarray, classes: int, seed: int) -> tuple[Floats, Row]:
    """The whole audit where neighbours are left out, as they are of many rows without the extra that finds them."""
    return by_stepe(rows, labels, classes, seed, ["linear"])


def by_cleanlab(rows: Floats, labels: np.ndarray, classes: int, seed: int) -> tuple[Floats, Row]:
    """Cleanlab on the probabilities of logistic regression in folds. Its flags are the suspicions from 1 on."""
    from cleanlab.filter import find_label_issues
    from cleanlab.rank import get_label_quality_scores

    probability = np.zeros((len(labels), classes), dtype=_precision(len(labels), classes))
    for inside, outside in StratifiedKFold(FOLDS, shuffle=True, random_state=seed).split(labels, labels):
        fitted = LogisticRegression(C=1.0, max_iter=1_000).fit(rows[inside], labels[inside])
        probability[np.ix_(outside, fitted.classes_)] = fitted.predict_proba(rows[outside])
    flagged = find_label_issues(labels, probability, n_jobs=1)
    return 1 - get_label_quality_scores(labels, probability), {"flags": flagged}


def by_linear(rows: Floats, labels: np.ndarray, classes: int, seed: int) -> tuple[Floats, Row]:
    """One look of the linear judge."""
    judge = linear(rows, Blocks.of_one_row(len(labels)), seed=seed)
    targets = one_hot(labels, classes, dtype=_precision(len(labels), classes))
    view = judge.look(np.ones(len(labels)), targets)
    return 1 - view.probability[np.arange(len(labels)), labels], {}


def _precision(n: int, classes: int) -> type:
    return np.float32 if n * classes > SINGLE else np.float64


FINDERS: dict[str, Callable[[Floats, np.ndarray, int, int], tuple[Floats, Row]]] = {
    "stepe": by_stepe,
    "stepe by the linear judge": by_linear_audit,
    "cleanlab": by_cleanlab,
    "linear": by_linear,  # one look
}


# -- The grid ------------------------------------------------------------------------------------------------------


def peak_bytes() -> int:
    """The most memory that this process has held. Linux counts what it was started from into ``ru_maxrss``."""
    status = Path("/proc/self/status")
    if status.exists():
        (line,) = (line for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def measure(name: str, scale: float, threads: int, seed: int) -> Row:
    """One row of the grid, in this process. Its memory is all that came after the imports, the data included.

    What pynndescent compiles anew in every process, where neighbours are many, counts: so it does for a person.
    """
    warnings.simplefilter("ignore")
    shape = GRID[name]
    n = max(10 * FOLDS, 2 * FOLDS * shape.classes, round(shape.n * scale)) if scale < 1 else shape.n
    shape = Shape(n, shape.columns, shape.classes, shape.who, shape.fitting)
    with threadpool_limits(threads):
        FINDERS[shape.who](*_warm(seed), seed)  # what is imported only then is not counted
        before = peak_bytes()
        rows, labels, wrong = made(shape, seed)
        begun, wall = time.process_time(), time.perf_counter()
        suspicion, more = FINDERS[shape.who](rows, labels, shape.classes, seed)
        spent = {"cpu_seconds": time.process_time() - begun, "seconds": time.perf_counter() - wall}
    taken = peak_bytes() - before
    flagged = more.pop("flags", suspicion > 0.5)
    return {
        "name": name,
        "scale": scale,
        "rows": n,
        "columns": shape.columns,
        "classes": shape.classes,
        "who": shape.who,
        "seed": seed,
        "threads": threads,
        **spent,
        "peak_bytes": taken,
        "bytes_per_row_and_feature": taken / (n * shape.columns),
        "auroc": auroc(suspicion, wrong),
        "average_precision": float(average_precision_score(wrong, suspicion)),
        **vars(detection(flagged, wrong)),
        **more,
    }


def _warm(seed: int) -> tuple[Floats, np.ndarray, int]:
    rows, labels, _ = made(Shape(200, 4, 2, ""), seed)
    return rows, labels, 2


def measure_alone(key: tuple[str, float, int, int]) -> Row:
    """One row of the grid, in a process of its own."""
    command = [sys.executable, __file__, "--row", *map(str, key)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    row: Row = json.loads(done.stdout)
    return row


def _is_meant(name: str, word: str) -> bool:
    """Whether a row begins like this; where some row is called just that, only that one is meant."""
    return name == word if word in GRID else name.startswith(word)


def main() -> None:
    if sys.argv[1:2] == ["--row"]:
        name, scale, threads, seed = sys.argv[2:]
        print(json.dumps(measure(name, float(scale), int(threads), int(seed))))
        return
    from planted import measure_grid  # a row does without torch, which would be counted as its memory

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=[], help=f"rows that begin like this: {', '.join(GRID)}")
    parser.add_argument("--scale", type=float, default=1.0, help="the share of the rows to make, to try it out")
    parser.add_argument("--threads", type=int, default=1, help="of the arithmetic")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=1, help="rows at once; more than one disturb each other")
    parser.add_argument("--out", type=Path, default=OUT)
    arguments = parser.parse_args()
    names = [name for name in GRID if not arguments.only or any(_is_meant(name, word) for word in arguments.only)]
    if not names:
        sys.exit(f"no row begins with {' or '.join(arguments.only)}; there are: {', '.join(GRID)}")
    keys = [(name, arguments.scale, arguments.threads, arguments.seed) for name in names]

    def key_of(row: Row) -> tuple[str, float, int, int]:
        return row["name"], row["scale"], row["threads"], row["seed"]

    measure_grid(arguments, keys, measure_alone, key_of)


if __name__ == "__main__":
    main()
