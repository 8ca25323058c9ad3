"""An audit by judges, from a source to a finished run folder. No torch."""

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from threadpoolctl import threadpool_limits

from stepe.app.audit_folder import AuditFolder, digest
from stepe.app.handed_over import RIDGE, HandedOver
from stepe.app.judges import kind_of
from stepe.audit.panel import EVIDENCE, MAKERS, STRANGERS, Shown, blocks_of, has_many_values, panel_for
from stepe.audit.rounds import ROUNDS, Audit, Round, audit
from stepe.beliefs.belief import Belief
from stepe.beliefs.cut import cut
from stepe.beliefs.issues import COLUMNS, Past, issue_table, margins_of
from stepe.beliefs.names import Names
from stepe.beliefs.rate import CAP_OF_ESTIMATE, Rate, rho_max_from_rate
from stepe.data.encoders import write_encoder
from stepe.data.encoders.numbers import numbers, stacked
from stepe.data.source import Source
from stepe.files import inside, plain, replacing, sweep, write_text
from stepe.judges.base import Floats, one_hot
from stepe.judges.neighbours import Neighbours
from stepe.judges.panel import Panel, settings_of
from stepe.judges.ridge import Ridge
from stepe.judges.ridge_model import RidgeModel
from stepe.loop.metrics import accuracy, auroc, detection
from stepe.options.layout import DataKind
from stepe.run.environment import environment
from stepe.run.folder import RunFolder
from stepe.run.previews import worth_showing, write_previews
from stepe.run.record import (
    AUDIT,
    PREPROCESSING,
    Config,
    Environment,
    Fit,
    MethodFacts,
    NoiseFound,
    ProbeFacts,
    Request,
    Summary,
)
from stepe.run.saved_belief import write_belief
from stepe.tables.cells import escape_texts
from stepe.tables.delimited import of_frame

if TYPE_CHECKING:
    import pandas as pd

    from stepe.app.work import Follow

SUMMARY = "judges that never saw a label say how likely it is right"
FEW = 30
"""rows below which little can be told"""
SMALL = 20_000
"""rows up to which one thread is quickest: more of them mostly wait for each other"""
MOST_STORED = 20_000_000
"""rows x classes of which the guesses are stored for other tools"""
LARGE = 1 << 24
"""rows x classes from which single precision is enough"""
HANDS_OVER: dict[DataKind, str] = {"table": "kernel", "features": "linear", "text": "linear", "images": "kernel"}
"""who hands over a model where no judge of the panel can"""


@dataclass(frozen=True)
class Rows:
    """The rows of a source as judges are shown them: those to learn from, then held-out ones, then unlabelled ones."""

    source: Source
    shown: Shown
    labels: npt.NDArray[np.int64]
    """of rows without a label, 0"""
    idf: Floats | None

    @classmethod
    def of(cls, source: Source, seed: int) -> "Rows":
        """Turn encoded samples into numbers, and find out which of them are left out together."""
        first, idf = numbers(source.encoder, source.x)
        others = [each for each in (source.test_x, source.unlabelled_x) if each is not None and len(each)]
        made = stacked([first, *(numbers(source.encoder, each, idf)[0] for each in others)])
        n = made.shape[0]
        keys: list[Any] = list(range(n)) if source.keys is None else source.keys
        has_continuous = source.kind != "table" or has_many_values(first)
        blocks = blocks_of(kind_of(source), keys, source.together, has_continuous=has_continuous)
        labels = np.zeros(n, dtype=np.int64)
        labels[: len(source.labels)] = source.labels
        labels[len(source.labels) :][: len(source.test_labels)] = source.test_labels
        return cls(source, Shown(made, blocks, seed), labels, idf)

    @property
    def learned(self) -> npt.NDArray[np.bool_]:
        """Whether each row is one to learn from."""
        return np.arange(len(self.labels)) < len(self.source.labels)

    @property
    def trusted(self) -> npt.NDArray[np.bool_]:
        """Whether each row's label was checked."""
        found, n = np.zeros(len(self.labels), dtype=np.bool_), len(self.source.labels)
        if self.source.trusted is not None:
            found[:n] = self.source.trusted
        if self.source.test_trusted is not None:
            found[n : self.judged] = self.source.test_trusted
        return found

    @property
    def judged(self) -> int:
        """How many rows have labels to judge; they come first."""
        return len(self.source.labels) + len(self.source.test_labels)


def audit_source(
    request: Request,
    options: dict[str, Any],
    source: Source,
    out: Path,
    *,
    resume: bool,
    say: Callable[[str], None],
    follow: "Follow | None",
) -> None:
    """Audit the labels of a source, in a folder that the caller has locked; a finished one is left as it is."""
    if resume and inside(out, "summary.json").exists():
        sweep(out)
        return
    begun = time.perf_counter()
    with few_threads(len(source.labels)) as threads:
        rows = Rows.of(source, request.seed)
        panel = panel_for(kind_of(source), rows.shown, request.judges, say)
        evidence = EVIDENCE[kind_of(source)] if request.evidence is None else request.evidence
        for sentence in told_of_little(len(source.labels), source.classes):
            say(sentence)
        config = _config(request, options, rows, evidence, threads)
        folder = AuditFolder(out, rows.labels, len(source.labels))
        before = folder.begin(config, _files(source), resume=resume)
        progress = None if follow is None else follow(AUDIT, 0, len(request.methods))

        def keep(made: Round) -> None:
            before.append(made)
            folder.add(len(before) - 1, made)
            if progress is not None:
                progress.round_ended(len(before), ROUNDS, made.rate)

        found = _audited(request, rows, panel, evidence, list(before), keep)
        model = handed_over(rows, panel, found)
        _write(request, rows, panel, found, model, folder, time.perf_counter() - begun)


def told_of_little(n: int, classes: int) -> Iterator[str]:
    """Say what few rows can and cannot tell."""
    if n < FEW:
        yield f"{n} rows are few: the most suspicious labels can be ranked, but how many are wrong can hardly be told"
    if classes > max(2, n / 2):
        yield (
            f"there are {classes} classes for {n} rows: of a class with one label nothing can be told, since no other "
            "row says what it looks like; merge rare classes, or add rows"
        )


@contextmanager
def few_threads(n: int) -> Iterator[int]:
    """Cap the threads of linear algebra; gives how many there are."""
    most = 1 if n <= SMALL else os.cpu_count() or 1
    with threadpool_limits(most):
        yield most


def _audited(
    request: Request,
    rows: Rows,
    panel: Panel,
    evidence: float,
    before: list[Round],
    follow: Callable[[Round], None],
) -> Audit:
    source, n, classes = rows.source, len(rows.labels), rows.source.classes
    return audit(
        panel,
        rows.labels,
        classes,
        evidence=evidence,
        strangers=STRANGERS[kind_of(source)],
        rho_max=rho_max_of(request),
        min_keep=request.min_keep or 0.0,
        groups=_for_all(source.groups, n),
        trusted=rows.trusted,
        weights=rows.learned.astype(np.float64),
        judged=rows.judged,
        dtype=np.float32 if n * classes > LARGE else np.float64,
        before=before,
        follow=follow,
    )


def rho_max_of(request: Request) -> float:
    """Return the most that rounds may leave out: as asked for, else by the known rate, else as much as seems wrong."""
    if isinstance(request.rho_max, float | int):
        return float(request.rho_max)
    return CAP_OF_ESTIMATE if request.noise_rate is None else rho_max_from_rate(request.noise_rate)


def handed_over(rows: Rows, panel: Panel, found: Audit) -> HandedOver:
    """Fit the model for new rows on the labels that the last round kept."""
    source, last = rows.source, found.rounds[-1]
    by_name = {judge.name: judge for judge in panel.judges}
    name = HANDS_OVER[kind_of(source)]
    judge = by_name.get(name) or next((each for each in panel.judges if isinstance(each, Ridge)), None)
    settings = None if judge is None else settings_of(judge, last.view.settings)
    judge = judge or MAKERS[name](rows.shown)
    assert isinstance(judge, Ridge)
    weights, targets = found.kept.astype(np.float64), one_hot(rows.labels, source.classes)
    model: RidgeModel = judge.model(weights, targets, settings or judge.look(weights, targets).settings)
    return HandedOver(source.encoder, rows.idf, model)


def _config(request: Request, options: dict[str, Any], rows: Rows, evidence: float, threads: int) -> Config:
    source = rows.source
    judged = {"judges": list(request.judges), "evidence": evidence}
    return Config(
        options=options,
        request=request,
        method=MethodFacts(SUMMARY),
        fit=Fit(
            method=AUDIT,
            options=judged | {"rho_max": request.rho_max, "min_keep": request.min_keep},
            epochs=ROUNDS,
            seed=request.seed,
            noise_rate=request.noise_rate,
            device="cpu",
            samples=len(source.labels),
            classes=source.classes,
            inputs=digest(source.x, source.test_x, source.unlabelled_x),
            labels=digest(rows.labels),
            probe="judges",
            trusted=digest(rows.trusted) if rows.trusted.any() else None,
            groups=None if source.groups is None else digest(source.groups),
        ),
        class_names=source.class_names,
        environment=Environment(**environment(seed=request.seed, device="cpu", device_name="cpu", threads=threads)),
    )


def _files(source: Source) -> dict[str, str]:
    """Return what is known before the first look: how inputs become numbers, copies under several labels."""
    described = {"kind": source.kind, "encoder": write_encoder(source.encoder), "model": {"name": RIDGE}}
    return {PREPROCESSING: json.dumps(described), **source.files}


# -- What is written in the end --------------------------------------------------------------------------------------


def _write(
    request: Request,
    rows: Rows,
    panel: Panel,
    found: Audit,
    model: HandedOver,
    folder: AuditFolder,
    seconds: float,
) -> None:
    source, path = rows.source, folder.path
    run = RunFolder(path)
    n, belief = len(source.labels), with_rate(found.belief, request)
    training, held_out = with_cut(rows_of(belief, slice(0, n)), request), rows_of(belief, slice(n, rows.judged))
    folder.end(training.p_right, training.suggestion)
    guess = mean_guess(found)
    samples = _samples(rows, found, training, held_out, guess)
    model.write(run)
    with replacing(inside(path, "samples.parquet")) as temporary:
        samples.to_parquet(temporary, index=False)
    write_belief(path, training)
    issues = samples.loc[samples["flagged"], list(COLUMNS)].sort_values("rank")
    write_text(inside(path, "issues.csv"), of_frame(escape_texts(issues)))
    shown = worth_showing(samples, pictured=source.image_shape is not None)
    write_previews(path, source.previews(shown))
    if guess.size <= MOST_STORED:
        stored = guess[:n].astype(np.float16)
        with replacing(inside(path, "probabilities.npz")) as temporary:
            np.savez_compressed(temporary, row=np.asarray(source.names.rows), probability=stored)
    for judge in panel.judges:
        if isinstance(judge, Neighbours):
            with replacing(inside(path, "neighbours.npz")) as temporary:
                np.savez_compressed(temporary, neighbours=judge.found.astype(np.int32))
    summary = _summary(rows, found, training, held_out, guess, model, seconds)
    folder.forget_rounds()
    write_text(inside(path, "summary.json"), json.dumps(plain(summary.to_json()), indent=1))


def _samples(rows: Rows, found: Audit, training: Belief, held_out: Belief, guess: Floats) -> "pd.DataFrame":
    """Write one row per sample: the training ones, the held-out ones on the same scale, those without a label."""
    import pandas as pd

    source, n, judged = rows.source, len(rows.source.labels), rows.judged
    dropped = np.stack([each.learned & ~each.kept for each in found.rounds])
    later = dropped[1:].mean(0) if len(dropped) > 1 else dropped[0].astype(np.float64)
    margin = margins_of(guess, rows.labels)

    def table(belief: Belief, part: slice, names: Names) -> "pd.DataFrame":
        past = Past(dropped[-1][part], later[part], margin[part], by_judges=True)
        return pd.DataFrame(issue_table(belief, past, "classes", rows.labels[part], source.class_names, names))

    tables = [table(training, slice(0, n), source.names)]
    if judged > n:
        tables.append(table(held_out, slice(n, judged), source.test_names))
    samples = pd.concat(tables, ignore_index=True)
    order = np.lexsort((np.arange(judged), -samples["suspicion"].to_numpy(), ~samples["flagged"].to_numpy()))
    samples.loc[order, "rank"] = np.arange(1, judged + 1)
    if source.unlabelled_names is None or judged == len(guess):
        return samples
    rest = slice(judged, len(guess))
    predicted = table(_predicted(guess[rest], training), rest, source.unlabelled_names)
    predicted["rank"] = np.arange(judged + 1, len(guess) + 1)
    return pd.concat([samples, predicted.assign(given_label="", margin=np.nan)], ignore_index=True)


def _predicted(guess: Floats, belief: Belief) -> Belief:
    """Suggest the likeliest class for rows without a label, in which there is nothing to suspect."""
    n, likeliest = len(guess), guess.argmax(1)
    return replace(
        belief,
        p_right=np.full(n, np.nan),
        suggestion=likeliest.astype(np.int64),
        confidence=guess[np.arange(n), likeliest].astype(np.float64),
        flagged=np.zeros(n, dtype=np.bool_),
    )


def _summary(
    rows: Rows,
    found: Audit,
    training: Belief,
    held_out: Belief,
    guess: Floats,
    model: HandedOver,
    seconds: float,
) -> Summary:
    source, last = rows.source, found.rounds[-1]
    n, tested = len(source.labels), len(source.test_labels)
    dropped = (last.learned & ~last.kept)[:n]
    truth, noise = source.truth, None
    if truth is not None:
        noise = NoiseFound(
            noisy=int(truth.noisy.sum()),
            auroc=auroc(1 - training.p_right, truth.noisy),
            dropped=detection(dropped, truth.noisy),
            flagged=detection(training.flagged, truth.noisy),
        )
    test_accuracy = None
    if tested:
        inputs = rows.shown.inputs[n : rows.judged]
        test_accuracy = accuracy(model.model.predict(inputs).argmax(1), source.test_labels)
    return Summary(
        method=AUDIT,
        epochs=len(found.rounds),
        samples=n,
        dropped=int(dropped.sum()),
        flagged=int(training.flagged.sum()),
        seconds=seconds,
        seconds_per_epoch=seconds / len(found.rounds),
        probe=ProbeFacts("judges"),
        noise_rate=training.found_rate,
        hardly_recognised=tuple(training.hardly_recognised),
        test_accuracy=test_accuracy,
        agreement=accuracy(guess[:n].argmax(1), source.labels),
        panel=found.shares,
        held_out=tested or None,
        held_out_flagged=int(held_out.flagged.sum()) if tested else None,
        noise=noise,
        unlabelled=None if source.unlabelled_x is None else len(source.unlabelled_x),
    )


def mean_guess(found: Audit) -> Floats:
    """Return what the rounds said on average."""
    guess = found.rounds[0].view.probability.copy()
    for each in found.rounds[1:]:
        guess += each.view.probability
    guess /= len(found.rounds)
    return guess


def with_rate(belief: Belief, request: Request) -> Belief:
    """Take the rate that a person knows."""
    if (known := request.noise_rate) is None:
        return belief
    return replace(belief, rate=Rate(known, known, known), rate_was_found=False)


def with_cut(belief: Belief, request: Request) -> Belief:
    """Flag as many labels as a person asked for; one that was checked, never."""
    if request.top is None and request.min_suspicion is None:
        return belief
    suspicion = np.where(belief.p_right < 1, 1 - belief.p_right, np.nan)
    flagged = cut(suspicion, top=request.top, min_suspicion=request.min_suspicion)
    return replace(belief, flagged=flagged)


def rows_of(belief: Belief, part: slice) -> Belief:
    """Return what is held of some of the rows."""
    of_rows = ("p_right", "suggestion", "confidence", "flagged")
    return replace(belief, **{name: getattr(belief, name)[part] for name in of_rows})


def _for_all(values: npt.NDArray[Any] | None, n: int) -> npt.NDArray[Any] | None:
    """Fill up what is known of the rows to learn from, for rows that are only judged."""
    if values is None:
        return None
    filled = np.zeros(n, dtype=values.dtype)
    filled[: len(values)] = values
    return filled
