"""Audits by judges beside what people do today: cleanlab on out-of-fold probabilities of common models.

All rows of each data set are counted, with planted noise or with that of people. A row of results/audit.json is written
as soon as it is there, and an interrupted grid goes on where it stopped. Tables, features, texts and ready
probabilities are looked for in $STEPE_DATA (docs/data.md). LightGBM takes part where it is installed
(pip install "stepe[benchmark]").

    STEPE_DATA=DATA python benchmarks/audit.py --tune           the data and seeds that settings are chosen on
    STEPE_DATA=DATA python benchmarks/audit.py [--quick]        the rest, which is looked at once; --quick: one seed
    STEPE_DATA=DATA python benchmarks/audit.py --command --quick --out results/audit-command.json
                                                                what `stepe clean FILE` does, all of it, and nobody else
    python benchmarks/audit.py --summary [--out FILE]           tables of what was measured, and which goals it meets
"""

import json
import multiprocessing
import os
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from audit_speed import peak_bytes
from audit_tables import summary
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

from stepe.audit.panel import EVIDENCE, STRANGERS, Shown, blocks_of, has_many_values, panel_for
from stepe.audit.rounds import audit
from stepe.beliefs.belief import Belief
from stepe.beliefs.believe import Grounds, believe
from stepe.data.encoders import TableEncoder, TextEncoder
from stepe.data.noise import Noise
from stepe.data.source import digits
from stepe.files import write_text
from stepe.judges.blocks import Blocks
from stepe.loop.metrics import auroc, detection
from stepe.options.layout import DataKind
from stepe.run.environment import commit
from stepe.training.environment import describe_environment

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
FIRST_SEEDS = (0, FIRST_TUNING_SEED)
PENALTIES = (0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
"""of logistic regression on features (scikit-learn's C), the strongest first"""
READY_EVIDENCE = 0.5
THREE, MEAN = ("extra trees", "logistic regression", "boosting"), "mean of the three"
BINS = 10
SURE = 0.9
"""confidence of a suggestion from which labels are corrected unseen"""
NOBODY = -1
"""the true class of a row that is of none of those in use"""

Floats = np.ndarray
Ints = np.ndarray


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

    @cached_property
    def columns(self) -> np.ndarray:
        """Rows of numbers, for noise that depends on the input."""
        if self.kind == "text":
            reduced = Shown(_sparse(self.inputs), Blocks.of_one_row(len(self.inputs))).axes
            return reduced.astype(np.float32)
        return np.asarray(self.inputs, dtype=np.float32)


def _sparse(texts: list[str]) -> Any:
    encoder = TextEncoder.fit(texts)
    return encoder.weighted(encoder.encode(texts))[0]


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


@dataclass(frozen=True)
class Planted:
    """Labels, and the truth about them, which no finder sees."""

    labels: Ints
    truth: Ints
    """numbered as the labels are; :data:`NOBODY` where it is none of their classes"""

    @property
    def wrong(self) -> np.ndarray:
        """Which labels are wrong."""
        return self.labels != self.truth


def planted(case: Case, noise: str, seed: int) -> Planted:
    """Give the rows labels, some of them wrong."""
    if case.given is not None:
        return Planted(case.given, case.truth)
    if noise == "outside":
        return _with_classes_taken_away(case, seed)
    kind = Noise.parse(noise)
    if kind is None:
        return Planted(case.truth, case.truth)
    return Planted(kind.plant(case.columns, case.truth, int(case.truth.max()) + 1, seed).labels, case.truth)


def _with_classes_taken_away(case: Case, seed: int) -> Planted:
    """Rows of a fifth of the classes get labels of the other ones: their truth is none of the known classes."""
    random, classes = np.random.default_rng((seed, 5)), int(case.truth.max()) + 1
    gone = random.choice(classes, classes // 5, replace=False)
    wrong = np.isin(case.truth, gone)
    left = np.setdiff1d(np.arange(classes), gone)
    labels = np.searchsorted(left, np.where(wrong, random.choice(left, len(wrong)), case.truth))
    return Planted(labels, np.where(wrong, NOBODY, labels))


# -- What finders find, and what they take for it ------------------------------------------------------------------


@dataclass(frozen=True)
class Found:
    """What somebody finds in labels."""

    suspicion: Floats
    flagged: np.ndarray
    more: Row
    """what else there is to record"""


class Watch:
    """Takes the time of what is done under it, of all threads of this process."""

    def __init__(self) -> None:
        self.cpu_seconds = self.seconds = 0.0

    def __enter__(self) -> "Watch":
        self._limits = threadpool_limits(1)
        self._begun = time.process_time(), time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        self.cpu_seconds += time.process_time() - self._begun[0]
        self.seconds += time.perf_counter() - self._begun[1]
        self._limits.unregister()

    @property
    def row(self) -> Row:
        """What was taken, as it is recorded."""
        return {"cpu_seconds": self.cpu_seconds, "seconds": self.seconds}


# -- stepe ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Counted(Grounds):
    """Grounds of a belief that takes labels to go wrong as they were counted to, and in no other way."""

    def _structure(self, rate: float) -> float:
        return 1.0


@dataclass(frozen=True)
class Believed:
    """A belief, with the looks that it came from."""

    belief: Belief
    looks: Sequence[Floats]
    evidence: float
    more: Row


def believed(case: Case, labels: Ints, seed: int) -> Believed:
    """The whole audit, as `stepe clean` makes it of these rows and labels."""
    if case.kind is None:
        belief = believe(labels, case.inputs, evidence=READY_EVIDENCE)
        return Believed(belief, [case.inputs], READY_EVIDENCE, {})
    inputs = _sparse(case.inputs) if case.kind == "text" else case.inputs
    panel = panel_for(case.kind, Shown(inputs, _blocks(case), seed))
    made = audit(panel, labels, int(labels.max()) + 1, evidence=EVIDENCE[case.kind], strangers=STRANGERS[case.kind])
    more = {"judges": [judge.name for judge in panel.judges], "rounds": len(made.rounds)}
    return Believed(made.belief, [each.view.probability for each in made.rounds], EVIDENCE[case.kind], more)


def _blocks(case: Case) -> Blocks:
    """Copies are left out together, as in people's own files."""
    keys: Sequence[Hashable] = case.inputs if case.kind == "text" else [row.tobytes() for row in case.inputs]
    assert case.kind is not None
    return blocks_of(case.kind, keys, has_continuous=case.kind != "table" or has_many_values(case.inputs))


def by_stepe(case: Case, given: Planted, seed: int) -> Found:
    """What stepe finds, its rankings by less than its belief, and what becomes of labels that it corrects unseen."""
    with Watch() as watch:
        made = believed(case, given.labels, seed)
    belief, labels = made.belief, given.labels
    changed = belief.flagged & (np.nan_to_num(belief.confidence) >= SURE)
    corrected = np.where(changed, belief.suggestion, labels)
    return Found(
        1 - belief.p_right,
        belief.flagged,
        {
            "rate": belief.rate.rate,
            "range": [belief.rate.low, belief.rate.high],
            "has_signal": belief.has_signal,
            "hardly_recognised": len(belief.hardly_recognised),
            **made.more,
            **_rankings(made, given),
            "changed": float(changed.mean()),
            "changed_rightly": float((changed & (corrected == given.truth)).mean()),
            "wrong_after": float((corrected != given.truth).mean()),
            **watch.row,
        },
    )


def _rankings(made: Believed, given: Planted) -> Row:
    """How well rows are ranked by the probability of their label alone, and under the counted noise matrix alone."""
    labels, rows = given.labels, np.arange(len(given.labels))
    guess = Grounds.of(labels, made.looks).guess
    counted = Counted.of(labels, made.looks).p_right(made.evidence)
    return {
        "auroc_own": auroc(1 - guess[rows, labels], given.wrong),
        "auroc_last_look": auroc(1 - made.looks[-1][rows, labels], given.wrong),
        "auroc_noise": auroc(1 - counted, given.wrong),
    }


def by_command(case: Case, given: Planted, seed: int) -> Found:
    """What the command line finds in a file of these rows and labels; the time is that of the whole command."""
    labels, begun = given.labels, time.perf_counter()
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
        seconds = time.perf_counter() - begun
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        samples = pd.read_parquet(f"{folder}/run/samples.parquet").sort_values("row")
        summary = json.loads(Path(folder, "run", "summary.json").read_text(encoding="utf-8"))
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    rate = summary.get("noise_rate") or {}
    return Found(
        samples["suspicion"].to_numpy(),
        samples["flagged"].to_numpy(),
        {
            "rate": rate.get("rate"),
            "range": [rate.get("low"), rate.get("high")],
            "rows": len(samples),
            "cpu_seconds": spent,
            "seconds": seconds,
        },
    )


# -- What people do today ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Guessed:
    """Out-of-sample probabilities, and what they took."""

    probability: Floats
    spent: Row
    more: Row


Guesser = Callable[[Case, Ints, int], Guessed]
"""(case, given labels, seed) -> probabilities"""


def by_cleanlab(guessed: Guessed, given: Planted) -> Found:
    """Cleanlab's filter and its self-confidence, on out-of-sample probabilities."""
    with Watch() as watch:
        flagged = find_label_issues(given.labels, guessed.probability, n_jobs=1)
        suspicion = 1 - get_label_quality_scores(given.labels, guessed.probability)
    known = given.truth != NOBODY
    right = guessed.probability.argmax(1)[known] == given.truth[known]
    spent = {name: watch.row[name] + guessed.spent[name] for name in watch.row}
    return Found(suspicion, flagged, {"accuracy": float(right.mean()), **guessed.more, **spent})


def out_of_fold(model: Any, rows: Any, labels: np.ndarray, seed: int) -> Floats:
    """Probabilities of five models, each of the rows that it was not fitted on."""
    probability = np.zeros((len(labels), int(labels.max()) + 1))
    for inside, outside in StratifiedKFold(FOLDS, shuffle=True, random_state=seed).split(labels, labels):
        fitted = clone(model).fit(rows[inside], labels[inside])
        probability[np.ix_(outside, fitted.classes_)] = fitted.predict_proba(rows[outside])
    return probability


def _of_columns(model: Any) -> Guesser:
    def guess(case: Case, labels: Ints, seed: int) -> Guessed:
        seeded = clone(model).set_params(random_state=seed) if "random_state" in model.get_params() else model
        with Watch() as watch:
            probability = out_of_fold(seeded, case.inputs, labels, seed)
        return Guessed(probability, watch.row, {})

    return guess


def _by_likelihood(case: Case, labels: Ints, seed: int) -> Guessed:
    """Logistic regression on features, its penalty chosen by the likelihood of the labels, from the strongest on until
    they get less likely. Only the chosen penalty's fits are timed.

    Features stay as they are: standardised, those of CIFAR-10N gave it an AUROC of .92 on aggre instead of .94.
    """
    best, chosen = -np.inf, None
    for penalty in PENALTIES:
        with Watch() as watch:
            probability = out_of_fold(LogisticRegression(C=penalty, max_iter=1000), case.inputs, labels, seed)
        likely = float(np.log(np.maximum(probability[np.arange(len(labels)), labels], 1e-9)).mean())
        if likely <= best:
            break
        best, chosen = likely, Guessed(probability, watch.row, {"C": penalty})
    assert chosen is not None
    return chosen


def _of_texts(penalty: float) -> Guesser:
    def guess(case: Case, labels: Ints, seed: int) -> Guessed:
        with Watch() as watch:
            rows = TfidfVectorizer(ngram_range=(1, 2)).fit_transform(case.inputs)
            probability = out_of_fold(LogisticRegression(C=penalty, max_iter=300), rows, labels, seed)
        return Guessed(probability, watch.row, {})

    return guess


def rivals(kind: DataKind | None) -> dict[str, Guesser]:
    """What people do today with such data; the first of them is whom goals are set against."""
    if kind is None:
        nothing = {"cpu_seconds": 0.0, "seconds": 0.0}
        return {"the same probabilities": lambda case, labels, seed: Guessed(case.inputs, nothing, {})}
    if kind == "text":
        return {"logistic regression": _of_texts(1.0)}
    if kind in ("features", "images"):
        neighbours = KNeighborsClassifier(20, metric="cosine")
        return {"logistic regression": _by_likelihood, "neighbours": _of_columns(neighbours)}
    linear = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
    found = {
        "extra trees": _of_columns(ExtraTreesClassifier(300, min_samples_leaf=2)),
        "logistic regression": _of_columns(linear),
        "boosting": _of_columns(HistGradientBoostingClassifier()),
    }
    try:
        from lightgbm import LGBMClassifier
    except ImportError:
        return found
    return found | {"LightGBM": _of_columns(LGBMClassifier(n_jobs=1, verbose=-1))}


def with_mean(guessed: dict[str, Guessed]) -> dict[str, Guessed]:
    """On tables, add the mean of three; it takes as long as they do together."""
    if not set(THREE) <= set(guessed):
        return guessed
    three = [guessed[name] for name in THREE]
    spent = {name: sum(each.spent[name] for each in three) for name in three[0].spent}
    return guessed | {MEAN: Guessed(np.mean([each.probability for each in three], axis=0), spent, {})}


# -- The grid ------------------------------------------------------------------------------------------------------


def quality(found: Found, wrong: np.ndarray) -> Row:
    """How well suspicion and flags find what is wrong."""
    suspicion, flagged = found.suspicion, found.flagged
    bins = np.minimum((suspicion * BINS).astype(int), BINS - 1)
    claimed, true = (np.bincount(bins, weights=each, minlength=BINS) for each in (suspicion, wrong))
    area = auroc(suspicion, wrong)
    return {
        "auroc": area,
        "average_precision": None if area is None else float(average_precision_score(wrong, suspicion)),
        **vars(detection(flagged, wrong)),
        "flagged": float(flagged.mean()),
        "suspicion_of_flagged": float(suspicion[flagged].mean()) if flagged.any() else None,
        "calibration_error": float(np.abs(claimed - true).sum() / len(wrong)),
    }


def measure_command(key: Key) -> Row:
    """One row of the grid: what a person gets who types one command."""
    name, noise, seed = key
    case = load(name)
    given = planted(case, noise, seed)
    found = by_command(case, given, seed)
    return _row(key, case, given) | {"found": {"command": quality(found, given.wrong) | found.more}}


def measure(key: Key) -> Row:
    """One row of the grid: everybody on the same labels."""
    warnings.simplefilter("ignore")
    name, noise, seed = key
    case = load(name)
    given = planted(case, noise, seed)
    _warm(case.kind)
    found = {"stepe": by_stepe(case, given, seed)}
    guessed = {who: guess(case, given.labels, seed) for who, guess in rivals(case.kind).items()}
    found |= {who: by_cleanlab(each, given) for who, each in with_mean(guessed).items()}
    row = _row(key, case, given) | {
        "found": {who: quality(each, given.wrong) | each.more for who, each in found.items()}
    }
    if seed in FIRST_SEEDS and noise == noises_of(name)[0]:
        row["peak_bytes"] = memory_alone(key)
    return row


def measure_stepe(key: Key) -> Row:
    """What stepe alone finds, for rows whose rivals were measured before."""
    warnings.simplefilter("ignore")
    name, noise, seed = key
    case = load(name)
    given = planted(case, noise, seed)
    _warm(case.kind)
    found = by_stepe(case, given, seed)
    return {"key": list(key), "stepe": quality(found, given.wrong) | found.more | {"commit": commit()}}


def measure_again(path: Path, processes: int) -> None:
    """Measure stepe anew in every row there is, after it has changed; its rivals stay as they were."""
    stored = json.loads(path.read_text(encoding="utf-8"))
    rows = {(row["data"], row["noise"], row["seed"]): row for row in stored["rows"]}
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        for done, found in enumerate(pool.imap_unordered(measure_stepe, list(rows)), start=1):
            rows[tuple(found["key"])]["found"]["stepe"] = found["stepe"]
            print(f"{done}/{len(rows)} {' '.join(map(str, found['key']))}", file=sys.stderr)
    stored |= {"rows": list(rows.values()), "environment": describe_environment()}
    write_text(path, json.dumps(stored, indent=1) + "\n")


def _row(key: Key, case: Case, given: Planted) -> Row:
    return {
        "data": key[0],
        "kind": case.kind,
        "noise": key[1],
        "seed": key[2],
        "rows": len(given.labels),
        "classes": int(given.labels.max()) + 1,
        "wrong": float(given.wrong.mean()),
        "commit": commit(),  # a grid may be interrupted, and go on with another
    }


@lru_cache
def _warm(kind: DataKind | None) -> None:
    """Import what is imported only when it is used, on rows that do not count."""
    random = np.random.default_rng(0)
    truth = np.arange(60) % 2
    inputs: Any = random.random((60, 4)) + truth[:, None]
    if kind == "text":
        inputs = [f"row {i} of a text about {'this' if label else 'that'}" for i, label in enumerate(truth)]
    if kind is None:
        inputs = np.eye(2)[truth] * 0.8 + 0.1
    case, given = Case(kind, inputs, truth), Planted(truth, truth)
    by_stepe(case, given, 0)
    for guess in rivals(kind).values():
        by_cleanlab(guess(case, truth, 0), given)


def memory_alone(key: Key) -> Row | None:
    """The peaks of memory of stepe and of its first rival, in a process of its own."""
    command = [sys.executable, __file__, "--memory", *map(str, key)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    found: Row | None = json.loads(done.stdout)
    return found


def memory(key: Key) -> Row | None:
    """What is held at most beside what was held before; ``None`` where the system cannot tell."""
    warnings.simplefilter("ignore")
    name, noise, seed = key
    case, reset = load(name), Path("/proc/self/clear_refs")
    if not reset.exists():
        return None
    given, found = planted(case, noise, seed), {}
    _warm(case.kind)
    who, guess = next(iter(rivals(case.kind).items()))
    finders: dict[str, Callable[[], object]] = {
        "stepe": lambda: believed(case, given.labels, seed),
        who: lambda: by_cleanlab(guess(case, given.labels, seed), given),
    }
    for finder, find in finders.items():
        reset.write_text("5")  # forgets the peak so far
        before = peak_bytes()
        with threadpool_limits(1):
            find()
        found[finder] = peak_bytes() - before
    return found


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
    if sys.argv[1:2] == ["--memory"]:
        name, noise, seed = sys.argv[2:]
        print(json.dumps(memory((name, noise, int(seed)))))
        return
    parser = grid_options(__doc__, Path("results/audit.json"))
    parser.add_argument("--tune", action="store_true", help="the data and seeds that settings are chosen on")
    parser.add_argument("--quick", action="store_true", help="one seed")
    parser.add_argument("--command", action="store_true", help="`stepe clean` alone, as a person calls it")
    parser.add_argument("--summary", action="store_true", help="print what --out holds, and measure nothing")
    parser.add_argument("--again", action="store_true", help="stepe alone, in the rows that --out holds")
    arguments = parser.parse_args()
    if arguments.again:
        measure_again(arguments.out, arguments.processes)
        return
    if arguments.summary:
        print(summary(json.loads(arguments.out.read_text(encoding="utf-8"))["rows"]))
        return
    names = TUNING if arguments.tune else (*TABLES, "texts", "digits", "digits as features", *HUMAN, *READY)
    if arguments.command:  # which reads no ready probabilities, and of digits in a file the pixels alone
        names = tuple(name for name in names if name not in (*READY, "digits"))
    if not DATA.name or not (DATA / "tables").is_dir():
        sys.exit("set STEPE_DATA to the folder that holds tables/, texts, features and ready probabilities")
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
    beside = {name: _version(name) for name in ("cleanlab", "lightgbm")}
    measure_grid(arguments, keys, measured, lambda row: (row["data"], row["noise"], row["seed"]), rivals=beside)


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


if __name__ == "__main__":
    main()
