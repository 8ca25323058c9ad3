"""Audits by judges beside what people do today: cleanlab on out-of-fold probabilities of common models.

All rows of each data set are counted, with planted noise or with that of people. A row of results/audit.json is written
as soon as it is there, and an interrupted grid goes on where it stopped. Tables, features, texts and ready
probabilities are looked for in $STEPE_DATA (docs/data.md).

    STEPE_DATA=DATA python benchmarks/audit.py --tune           the data and seeds that settings are chosen on
    STEPE_DATA=DATA python benchmarks/audit.py [--quick]        the rest, which is looked at once; --quick: one seed
    STEPE_DATA=DATA python benchmarks/audit.py --command --quick --out results/audit-before.json
                                                                what `stepe clean FILE` does, all of it, and nobody else
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from planted import TABLE, Key, Row, grid_options, measure_grid
from sklearn.base import clone
from sklearn.ensemble import ExtraTreesClassifier, HistGradientBoostingClassifier
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score
from sklearn.model_selection import StratifiedKFold
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from stepe.audit.panel import EVIDENCE, Shown, panel_for
from stepe.audit.rounds import audit
from stepe.beliefs.believe import believe
from stepe.data.encoders import TableEncoder, TextEncoder
from stepe.data.noise import Noise
from stepe.data.source import digits
from stepe.judges.blocks import Blocks
from stepe.loop.metrics import auroc, detection
from stepe.options.layout import DataKind

try:
    from cleanlab.filter import find_label_issues
    from cleanlab.rank import get_label_quality_scores
except ImportError as error:
    sys.exit(f'{error}; this benchmark needs cleanlab: pip install "stepe[cleanlab]"')

DATA = Path(os.environ.get("STEPE_DATA", ""))
TUNING = ("vehicle", "glass", "pima2", "spam")
TABLES = ("ionosphere", "soybean", "income", "satellite", "sonar", "votes", "wisconsin", "musk", "shuttle")
HUMAN = ("worst", "rand1", "aggre")
READY = tuple(
    f"{labels}_{network}" for labels in ("planted", "aggre", "worst") for network in ("resnet18", "efficientnet")
)
NOISES = ("symmetric:0.1", "symmetric:0.3", "asymmetric:0.15", "asymmetric:0.3", "instance:0.2", "none", "outside")
GIVEN = "people's"
"""noise that is part of the data"""
FIRST_TUNING_SEED, SEEDS, FOLDS = 100, 3, 5
PENALTIES = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
BINS = 10

Floats = np.ndarray
Finder = Callable[["Case", np.ndarray, int], tuple[Floats, np.ndarray, Row]]
"""(case, given labels, seed) -> suspicion, flags, and what else it found"""


@dataclass(frozen=True)
class Case:
    """Rows whose truth is known, and labels that people gave where there are any."""

    kind: DataKind | None
    """``None``: ready probabilities"""
    inputs: Any
    truth: np.ndarray
    given: np.ndarray | None = None
    table: pd.DataFrame | None = None
    """the rows as a person's file has them, without labels, where they are not the inputs themselves"""

    def rows(self, kept: np.ndarray) -> "Case":
        """Some of the rows, their classes numbered anew."""
        inputs = [self.inputs[i] for i in np.flatnonzero(kept)] if self.kind == "text" else self.inputs[kept]
        return Case(self.kind, inputs, np.unique(self.truth[kept], return_inverse=True)[1])

    @property
    def columns(self) -> np.ndarray:
        """Rows of numbers, for noise that depends on the input."""
        if self.kind == "text":
            reduced = Shown(*_sparse(self.inputs)).axes
            return reduced.astype(np.float32)
        return np.asarray(self.inputs, dtype=np.float32)


def _sparse(texts: list[str]) -> tuple[Any, Blocks]:
    encoder = TextEncoder.fit(texts)
    return encoder.weighted(encoder.encode(texts))[0], Blocks.of_one_row(len(texts))


@lru_cache(maxsize=2)
def load(name: str) -> Case:
    """A data set by name."""
    if name in TUNING + TABLES:
        frame = pd.read_parquet(DATA / "tables" / f"{name}.parquet")
        truth = np.unique(frame.pop("__label").astype(str), return_inverse=True)[1]
        encoder = TableEncoder.fit(frame)
        return Case("table", encoder.spread(encoder.encode(frame)), truth, table=frame)
    if name == "texts":
        frame = pd.read_csv(DATA / TABLE)
        texts = frame["description"].fillna("")
        truth = np.unique(frame["section"], return_inverse=True)[1]
        return Case("text", texts.tolist(), truth, table=texts.to_frame())
    if name in ("digits", "digits as features"):
        source = digits()
        return Case("images" if name == "digits" else "features", source.x.reshape(len(source.x), -1), source.labels)
    if name in HUMAN:
        features = np.load(DATA / "cifar10n-features.npz")
        return Case(
            "features", features["features"].astype(float), features["clean"].astype(int), features[name].astype(int)
        )
    ready = np.load(DATA / "ready-probabilities.npz")
    probability = ready[f"{name}_probabilities"].astype(float)
    probability /= probability.sum(1, keepdims=True)
    return Case(None, probability, ready[f"{name}_truth"].astype(int), ready[f"{name}_labels"].astype(int))


def planted(case: Case, noise: str, seed: int) -> tuple[Case, np.ndarray, np.ndarray]:
    """The rows, their given labels, and which of these are wrong."""
    if case.given is not None:
        return case, case.given, case.given != case.truth
    if noise == "outside":
        return _with_classes_taken_away(case, seed)
    kind = Noise.parse(noise)
    if kind is None:
        return case, case.truth, np.zeros(len(case.truth), dtype=bool)
    labels = kind.plant(case.columns, case.truth, int(case.truth.max()) + 1, seed).labels
    return case, labels, labels != case.truth


def _with_classes_taken_away(case: Case, seed: int) -> tuple[Case, np.ndarray, np.ndarray]:
    """Rows of a fifth of the classes get labels of the other ones: their truth is none of the known classes."""
    random, classes = np.random.default_rng((seed, 5)), int(case.truth.max()) + 1
    gone = random.choice(classes, classes // 5, replace=False)
    wrong = np.isin(case.truth, gone)
    left = np.setdiff1d(np.arange(classes), gone)
    labels = np.where(wrong, random.choice(left, len(wrong)), case.truth)
    return case, np.searchsorted(left, labels), wrong


# -- Who finds wrong labels ----------------------------------------------------------------------------------------


def by_stepe(case: Case, labels: np.ndarray, seed: int) -> tuple[Floats, np.ndarray, Row]:
    classes = int(labels.max()) + 1
    if case.kind is None:
        belief = believe(labels, case.inputs, evidence=0.5)
    else:
        inputs = _sparse(case.inputs)[0] if case.kind == "text" else case.inputs
        shown = Shown(inputs, Blocks.of_one_row(len(labels)), seed)
        belief = audit(panel_for(case.kind, shown), labels, classes, evidence=EVIDENCE[case.kind]).belief
    low_to_high = [belief.rate.low, belief.rate.high]
    more = {"rate": belief.rate.rate, "range": low_to_high, "has_signal": belief.has_signal}
    return 1 - belief.p_right, belief.flagged, more


def by_command(case: Case, labels: np.ndarray, seed: int) -> tuple[Floats, np.ndarray, Row]:
    """What the command line finds in a file of these rows and labels; the time is that of the whole command."""
    with tempfile.TemporaryDirectory() as folder:
        if case.table is not None:
            data = f"{folder}/data.parquet"
            case.table.assign(__label=labels).to_parquet(data)
            columns = ["--label", "__label", *(["--text", "description"] if case.kind == "text" else [])]
        else:
            data, columns = f"{folder}/data.npz", []
            np.savez(data, features=case.inputs, labels=labels)
        command = [sys.executable, "-m", "stepe", "clean", data, *columns, "--out", f"{folder}/run", "--quiet"]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([*command, "--seed", str(seed)], check=True, stdout=subprocess.DEVNULL)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        samples = pd.read_parquet(f"{folder}/run/samples.parquet").sort_values("row")
        summary = json.loads(Path(folder, "run", "summary.json").read_text(encoding="utf-8"))
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    rate = summary.get("noise_rate") or {}
    more = {"rate": rate.get("rate"), "command_cpu_seconds": spent, "rows": len(samples)}
    return samples["suspicion"].to_numpy(), samples["flagged"].to_numpy(), more


def by_cleanlab(probabilities: Callable[[Case, np.ndarray, int], Floats]) -> Finder:
    """Cleanlab's filter and its self-confidence, on out-of-sample probabilities."""

    def find(case: Case, labels: np.ndarray, seed: int) -> tuple[Floats, np.ndarray, Row]:
        probability = probabilities(case, labels, seed)
        flagged = find_label_issues(labels, probability, n_jobs=1)
        return 1 - get_label_quality_scores(labels, probability), flagged, {"rate": float(flagged.mean())}

    return find


def out_of_fold(model: Any, rows: Any, labels: np.ndarray, seed: int) -> Floats:
    """Probabilities of five models, each of the rows that it was not fitted on."""
    probability = np.zeros((len(labels), int(labels.max()) + 1))
    for inside, outside in StratifiedKFold(FOLDS, shuffle=True, random_state=seed).split(labels, labels):
        fitted = clone(model).fit(rows[inside], labels[inside])
        probability[np.ix_(outside, fitted.classes_)] = fitted.predict_proba(rows[outside])
    return probability


def _of_columns(model: Any) -> Finder:
    def probabilities(case: Case, labels: np.ndarray, seed: int) -> Floats:
        seeded = clone(model).set_params(random_state=seed) if "random_state" in model.get_params() else model
        return out_of_fold(seeded, case.inputs, labels, seed)

    return by_cleanlab(probabilities)


def _by_likelihood(case: Case, labels: np.ndarray, seed: int) -> Floats:
    """Logistic regression on features, its penalty chosen by the likelihood of the labels; only its fits are timed."""
    best, chosen = -np.inf, None
    for penalty in PENALTIES:
        found = out_of_fold(
            make_pipeline(StandardScaler(), LogisticRegression(C=penalty / 100)), case.inputs, labels, seed
        )
        likely = float(np.log(np.maximum(found[np.arange(len(labels)), labels], 1e-9)).mean())
        if likely > best:
            best, chosen = likely, found
    return chosen


def _of_texts(penalty: float) -> Finder:
    def probabilities(case: Case, labels: np.ndarray, seed: int) -> Floats:
        rows = TfidfVectorizer(ngram_range=(1, 2)).fit_transform(case.inputs)
        return out_of_fold(LogisticRegression(C=penalty, max_iter=300), rows, labels, seed)

    return by_cleanlab(probabilities)


def _mean_of(*models: Any) -> Finder:
    def probabilities(case: Case, labels: np.ndarray, seed: int) -> Floats:
        return np.mean([out_of_fold(model, case.inputs, labels, seed) for model in models], axis=0)

    return by_cleanlab(probabilities)


def rivals(kind: DataKind | None) -> dict[str, Finder]:
    """What people do today with such data."""
    linear = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
    if kind is None:
        return {"the same probabilities": by_cleanlab(lambda case, labels, seed: case.inputs)}
    if kind == "text":
        return {"logistic regression": _of_texts(1.0), "logistic regression, C = 5": _of_texts(5.0)}
    if kind == "features":
        neighbours = KNeighborsClassifier(20, metric="cosine")
        return {"logistic regression": by_cleanlab(_by_likelihood), "neighbours": _of_columns(neighbours)}
    trees, boosting = ExtraTreesClassifier(300, min_samples_leaf=2), HistGradientBoostingClassifier()
    found = {
        "extra trees": _of_columns(trees),
        "logistic regression": _of_columns(linear),
        "boosting": _of_columns(boosting),
        "mean of the three": _mean_of(trees, linear, boosting),
    }
    try:
        from lightgbm import LGBMClassifier
    except ImportError:
        return found
    return found | {"LightGBM": _of_columns(LGBMClassifier(n_jobs=1, verbose=-1))}


# -- The grid ------------------------------------------------------------------------------------------------------


def quality(suspicion: Floats, flagged: np.ndarray, wrong: np.ndarray) -> Row:
    """How well suspicion and flags find what is wrong."""
    bins = np.minimum((suspicion * BINS).astype(int), BINS - 1)
    claimed, found = (np.bincount(bins, weights=each, minlength=BINS) for each in (suspicion, wrong))
    area = auroc(suspicion, wrong)
    return {
        "auroc": area,
        "average_precision": None if area is None else float(average_precision_score(wrong, suspicion)),
        **vars(detection(flagged, wrong)),
        "flagged": float(flagged.mean()),
        "calibration_error": float(np.abs(claimed - found).sum() / len(wrong)),
    }


def measure_command(key: Key) -> Row:
    """One row of the grid: what a person gets who types one command."""
    return measure(key, {"command": by_command})


def measure(key: Key, finders: dict[str, Finder] | None = None) -> Row:
    """One row of the grid: everybody on the same labels."""
    warnings.simplefilter("ignore")
    name, noise, seed = key
    case, labels, wrong = planted(load(name), noise, seed)
    row: Row = {
        "data": name,
        "kind": case.kind,
        "noise": noise,
        "seed": seed,
        "wrong": float(wrong.mean()),
        "found": {},
    }
    for finder, find in (finders or {"stepe": by_stepe, **rivals(case.kind)}).items():
        begun, wall = time.process_time(), time.perf_counter()
        with threadpool_limits(1):
            suspicion, flagged, more = find(case, labels, seed)
        spent = {"cpu_seconds": time.process_time() - begun, "seconds": time.perf_counter() - wall}
        row["found"][finder] = more | quality(suspicion, flagged, wrong) | spent
    return row


def noises_of(name: str) -> tuple[str, ...]:
    """The noise that a data set is tried with."""
    if name in HUMAN + READY:
        return (GIVEN,)
    classes = int(load(name).truth.max()) + 1
    left_out = {"outside"} if classes < 5 else set()
    if classes == 2:
        left_out |= {"asymmetric:0.15", "asymmetric:0.3"}
    return tuple(noise for noise in NOISES if noise not in left_out)


def main() -> None:
    parser = grid_options(__doc__, Path("results/audit.json"))
    parser.add_argument("--tune", action="store_true", help="the data and seeds that settings are chosen on")
    parser.add_argument("--quick", action="store_true", help="one seed")
    parser.add_argument("--command", action="store_true", help="`stepe clean` alone, as a person calls it")
    arguments = parser.parse_args()
    names = TUNING if arguments.tune else (*TABLES, "texts", "digits", "digits as features", *HUMAN, *READY)
    if arguments.command:  # which reads no ready probabilities, and of digits in a file the pixels alone
        names = tuple(name for name in names if name not in (*READY, "digits"))
    first = FIRST_TUNING_SEED if arguments.tune else arguments.first_seed
    keys = [
        (name, noise, first + seed)
        for seed in range(1 if arguments.quick else SEEDS)
        for name in names
        for noise in noises_of(name)
        if noise != GIVEN or name in HUMAN or seed == 0
    ]
    keys = [key for key in keys if all(any(part.startswith(word) for part in key[:-1]) for word in arguments.only)]
    measured = measure_command if arguments.command else measure
    measure_grid(arguments, keys, measured, lambda row: (row["data"], row["noise"], row["seed"]))


if __name__ == "__main__":
    main()
