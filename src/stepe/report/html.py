"""``report.html``: what a run found, in one self-contained file.

This file turns a run folder into plain values; ``templates/`` turns those into a page. Everything that comes from the
data is escaped there, or is JSON that a script puts into the page as text; the charts alone are trusted markup, and
they are drawn here.
"""

import base64
import hashlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from importlib.resources import files as package_files
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import jinja2
from markupsafe import Markup

from stepe.errors import RunError
from stepe.files import write_text
from stepe.report import figures
from stepe.report.findings import findings, headline, who_judged
from stepe.report.suspects import FIRST, all_names, embedded, suspects
from stepe.report.wording import DASH, duration, percent, share, size, suspicion, visible

if TYPE_CHECKING:
    import pandas as pd

    from stepe.run.folder import RunFolder

SCRIPTS = ("elements.js", "dom.js", "decisions.js", "gallery.js", "choose.js", "review.js", "charts.js")
"""the parts of the one script, in their order"""
WORST, CONFUSED, FIRST_FILES = 5, 5, 6
"""classes, pairs and files on the first screen"""
CLASSES, PAIRS, GROUPS = 100, 10, 100
PIXELATED = 64
"""pictures up to this many pixels wide are shown pixel by pixel"""
FILES = {
    "issues.csv": "the flagged samples, most suspicious first: open it in a spreadsheet",
    "cleaned.*": "the data again, the suspicious rows marked, removed or corrected",
    "samples.parquet": "every sample, with the same columns",
    "belief.npz": "what is held of the labels: how many are wrong, how they go wrong, and how likely each is right",
    "model.safetensors": "the trained model",
    "history.jsonl": "one line per epoch",
    "summary.json": "the run in a few numbers",
    "config.json": "settings and versions",
    "trace.bin": "each sample's loss, prediction and fate at every epoch",
    "probabilities.npz": "the running guess of the class of every training sample",
    "preprocessing.json": "how inputs were turned into numbers; `stepe predict` does it again",
    "duplicates.csv": "the same input under different labels",
    "unreadable.csv": "files that could not be read",
    "exhibits.parquet": "what the suspects and some clean examples look like: pictures, texts or rows",
    "reviewed.csv": "what people decided, for spreadsheets and `stepe apply`",
    "decisions.sqlite": "what people decided, as a log",
    "checkpoint": "what an interrupted run is resumed from",
    "compare": "the runs this one is compared with, each in a folder like this",
}


@dataclass(frozen=True)
class Comparison:
    """Several runs side by side: rows of cells, the first of which names its row, and ``notes`` below the names."""

    columns: list[str]
    rows: list[list[str]]
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Chart:
    """A figure with the words around it."""

    name: str
    title: str
    caption: str
    alt: str
    svg: Markup
    readings: str
    """what a pointer reads off it, as JSON"""


@dataclass(frozen=True)
class Health:
    """The counts of flags and drops in a class, or a group, of training samples."""

    name: str
    number: int
    """the number of the class"""
    samples: int
    flagged: int
    dropped: int
    accuracy: float | None = None
    """the model's accuracy on held-out samples of the class"""
    confused: str = ""
    """the class most often suggested for its flagged samples"""

    @property
    def flagged_share(self) -> float:
        """The share of its samples that are flagged."""
        return self.flagged / max(1, self.samples)

    @property
    def dropped_share(self) -> float:
        """The share of its samples that are dropped."""
        return self.dropped / max(1, self.samples)


@dataclass(frozen=True)
class Confusion:
    """A given label and what the model says instead, with how often that happens."""

    given: str
    suggested: str
    count: int


def write_report(run: "RunFolder") -> Path:
    """Build the report of a finished run from its folder; returns its path."""
    path = run.file("report.html")
    write_text(path, render(run))
    return path


def render(run: "RunFolder") -> str:
    """Write the report as text; the same run gives the same text."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("stepe.report", "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"thousands": "{:,}".format, "percent": percent, "share": share}
    environment.filters |= {"suspicion": suspicion, "visible": visible}
    if not run.history:
        raise RunError(f"{run.path / 'history.jsonl'} is gone or empty; make the run again")
    others = run.others
    found, names = suspects(run), all_names(run)
    by_class, by_pair = classes(run), pairs(run)
    script = "\n".join(_template(name) for name in SCRIPTS).replace("\nexport ", "\n")  # one script, no modules
    data = {
        "run": run.digest,
        "names": names,
        "classes": len(run.class_names),
        "pixelated": PIXELATED,
        "suspects": found,
    }
    return environment.get_template("report.html").render(
        data=run.request.name,
        method=run.method,
        headline=headline(run),
        findings=findings(run),
        judged=who_judged(run),
        looks_for_suspects=figures.drops(run) or run.belief.rate_was_found,
        truth_known=run.summary.noise is not None,
        accuracies=accuracies(run, others),
        facts=facts(run),
        comparison=comparison([run, *others]) if others else None,
        suspects=found,
        kind=next((kind for kind in ("picture", "text", "cells") if any(kind in each for each in found)), "nothing"),
        first=FIRST,
        pixelated=PIXELATED,
        names=names,
        numbers={name: i for i, name in enumerate(names)},
        flagged=run.summary.flagged,
        charts=list(charts(run, others)),
        classes=by_class[:CLASSES],
        worst=[each for each in by_class[:WORST] if each.flagged],
        class_count=len(run.class_names),
        groups=groups(run)[:GROUPS],
        pairs=by_pair,
        confused=by_pair[:CONFUSED],
        files=files(run),
        first_files=FIRST_FILES,
        command=run.config.environment.command,
        versions=versions(run),
        settings=settings(run),
        # The page's own script and nothing else may run, whatever a class may be called.
        digest=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        script=Markup(script),
        embedded=Markup(embedded(data)),
    )


def _template(name: str) -> str:
    return package_files("stepe.report").joinpath("templates", name).read_text(encoding="utf-8")


def accuracies(run: "RunFolder", others: "list[RunFolder]") -> list[tuple[str, str]]:
    """Give the model's accuracy with and without cleaning, and with clean labels, as far as these were trained."""
    called = {run.method: "with cleaning" if figures.drops(run) else run.method}
    called |= {"plain": "without cleaning", "oracle": "with clean labels"} if figures.drops(run) else {}
    measured = {each.method: each.summary.test_accuracy for each in (run, *others)}
    return [(words, percent(measured[name])) for name, words in called.items() if measured.get(name) is not None]


def facts(run: "RunFolder") -> list[tuple[str, str]]:
    """List the facts of the run for a glance."""
    summary = run.summary
    found = [
        ("Data", f"{run.request.name}: {summary.samples:,} training samples, {len(run.class_names):,} classes"),
        ("Method", ", ".join(filter(None, (run.method, run.method_summary)))),
    ]
    if figures.drops(run):
        found.append(("Dropped", f"{summary.dropped:,} ({share(summary.dropped / summary.samples)})"))
    found.append(("Training", f"{summary.epochs} epochs, {duration(summary.seconds)}, seed {run.config.fit.seed}"))
    return found


def comparison(runs: "list[RunFolder]") -> Comparison:
    """Put this run beside the others; columns that nobody can fill are left out."""
    columns: list[tuple[str, Callable[[RunFolder], str]]] = [("Test accuracy", _accuracy)]
    if any(figures.noise_known(run) for run in runs):
        columns += [
            ("F1 dropped", lambda run: _found(run, "dropped")),
            ("F1 flagged", lambda run: _found(run, "flagged")),
            ("AUROC", _auroc),
        ]
    columns += [
        ("Flagged", lambda run: f"{run.summary.flagged:,}" if run.summary.dropped else DASH),
        ("Seconds", lambda run: f"{run.summary.seconds:,.1f}"),
        ("Time, plain = 1", lambda run: _relative_time(run, runs)),
    ]
    rows = [[run.method, *(cell(run) for _, cell in columns)] for run in runs]
    empty = {i for i in range(1, len(columns) + 1) if all(row[i] == DASH for row in rows)}
    names = ["Method", *(name for name, _ in columns)]
    return Comparison(
        columns=[name for i, name in enumerate(names) if i not in empty],
        rows=[[cell for i, cell in enumerate(row) if i not in empty] for row in rows],
        notes=[run.method_summary for run in runs],
    )


def _relative_time(run: "RunFolder", runs: "list[RunFolder]") -> str:
    """Compare the time with that of plain training of the same network for as many epochs, if that was part of it."""
    plain = next((each.summary.seconds for each in runs if each.method == "plain"), 0)
    return f"{run.summary.seconds / plain:.2f}" if plain else DASH


def charts(run: "RunFolder", others: "list[RunFolder]") -> Iterator[Chart]:
    """Draw the charts in which this run has something to show."""
    runs = [run, *others]
    n = run.summary.samples
    last = run.history[-1]
    measured = [(each.method, each.summary.test_accuracy) for each in runs]
    ends = ", ".join(f"{method} {percent(accuracy)}" for method, accuracy in measured if accuracy is not None)
    noise, estimate = run.summary.noise, run.belief.found_rate
    unsure = "" if run.request.held_out_is_clean or noise is not None else " The held-out labels may be wrong too."
    known = f", of {percent(noise.noisy / n)} that are" if noise is not None else ""
    yield from _chart(
        "noise",
        "How many labels are wrong",
        ("The bar around the estimate is its range. " if estimate else "")
        + "Dropping is cautious and goes further than the noise; a flag says that the model doubts the label.",
        f"Bar chart of shares of the training labels: {share(run.summary.flagged / n)} flagged{known}.",
        figures.noise_range(run),
    )
    yield from _chart(
        "accuracy",
        "Test accuracy",
        f"Share of held-out samples the model gets right, by epoch.{unsure}",
        f"Line chart of the test accuracy by epoch. At the end: {ends}.",
        figures.accuracy_curves(runs),
    )
    losses = ", ".join(f"{each.method} {each.history[-1]['train_loss']:.3g}" for each in runs if each.history)
    yield from _chart(
        "loss",
        "Training loss",
        "Mean over the samples that were trained on"
        + (", so it falls as the hard ones are dropped." if figures.drops(run) else "."),
        f"Line chart of the training loss by epoch. At the end: {losses}.",
        figures.loss_curves(runs),
    )
    warmup = figures.warmup_epochs(run)
    yield from _chart(
        "kept",
        "Trained on and dropped",
        (f"In the warm-up (the first {warmup} epochs) everything is trained on. " if warmup else "")
        + "How many samples each epoch trains on follows a fixed schedule; which ones, their losses decide.",
        f"Area chart of the share of samples trained on by epoch; in the last one {share(last['kept'] / n)}, "
        f"with {share(last['dropped'] / n)} dropped.",
        figures.kept_share(run),
    )
    yield from _chart(
        "turnover",
        "Coming and going",
        "A drop is not for ever: samples whose loss falls again come back (above the line).",
        f"Bar chart of the samples that came back and were newly dropped by epoch; in the last epoch {last['came']:,} "
        f"came back and {last['went']:,} were newly dropped.",
        figures.turnover(run),
    )
    yield from _chart(
        "losses",
        "Losses at the end",
        "A high loss says that the model finds the given label implausible."
        + (" The cut is the last epoch's." if last["cut"] is not None else ""),
        "Histogram of the final losses of all training samples, those trained on and those dropped.",
        figures.loss_histogram(run),
    )
    yield from _chart(
        "detection",
        "How much of the noise is dropped",
        "Precision: how many of the dropped are corrupted. Recall: how many of the corrupted are dropped. "
        "F1 balances the two.",
        "Line chart of precision, recall and F1 of the dropped samples by epoch; "
        f"F1 ends at {percent(last.get('f1'))}.",
        figures.detection(run),
    )


def _chart(name: str, title: str, caption: str, alt: str, drawing: figures.Drawing | None) -> Iterator[Chart]:
    if drawing is not None:
        # Matplotlib escapes the texts in its SVG.
        svg = Markup(figures.svg(drawing.figure, f"chart-{name}"))
        yield Chart(name, title, caption, alt, svg, embedded(figures.readings(drawing)))


def classes(run: "RunFolder") -> list[Health]:
    """List the classes, those with the largest share of suspects first."""
    samples = run.samples
    training, held_out = (samples[samples["split"] == split] for split in ("train", "test"))
    right = (held_out["suggested_label"] == held_out["given_label"]).groupby(held_out["given_label"]).mean().to_dict()
    confused: dict[str, str] = {}
    for pair in reversed(_counted_pairs(run)):
        confused[pair.given] = pair.suggested
    by_name = {found.name: found for found in _health(training, "given_label")}
    rows = [
        replace(
            by_name.get(name, Health(name, number, 0, 0, 0)),
            number=number,
            accuracy=right.get(name),
            confused=confused.get(name, ""),
        )
        for number, name in enumerate(run.class_names)
    ]
    return sorted(rows, key=lambda row: (-row.flagged_share, -row.flagged))


def groups(run: "RunFolder") -> list[Health]:
    """List the groups that were named, those with the largest share of drops first."""
    samples = run.samples
    if "group" not in samples.columns:
        return []
    found = _health(samples[samples["split"] == "train"], "group")
    return sorted(found, key=lambda row: (-row.dropped_share, -row.samples))


def _health(training: "pd.DataFrame", column: str) -> list[Health]:
    counted = training.groupby(column, sort=False)[["flagged", "dropped"]].agg(["size", "sum"])
    return [
        Health(str(name), -1, int(row["flagged", "size"]), int(row["flagged", "sum"]), int(row["dropped", "sum"]))
        for name, row in counted.iterrows()
    ]


def pairs(run: "RunFolder") -> list[Confusion]:
    """List the most frequent confusions among the flagged."""
    return _counted_pairs(run)[:PAIRS]


def _counted_pairs(run: "RunFolder") -> list[Confusion]:
    issues = run.issues
    counted = Counter(zip(issues["given_label"], issues["suggested_label"], strict=True))
    ranked = sorted(counted.items(), key=lambda item: (-item[1], item[0]))
    return [Confusion(given, suggested, count) for (given, suggested), count in ranked if suggested]


def files(run: "RunFolder") -> list[tuple[str, str, str]]:
    """List what is in the folder: name, purpose, size. The report is left out, so as not to depend on itself."""
    found = []
    for pattern, purpose in FILES.items():
        for path in sorted(run.path.glob(pattern)):
            folder = path.is_dir()
            found.append(
                (f"{path.name}/" if folder else path.name, purpose, "" if folder else size(path.stat().st_size))
            )
    return found


def versions(run: "RunFolder") -> list[tuple[str, str]]:
    """List what the run was made with."""
    return [
        (name.replace("_", " "), str(value))
        for name, value in asdict(run.config.environment).items()
        if name not in ("command", "seed") and value is not None
    ]


def settings(run: "RunFolder") -> list[tuple[str, str]]:
    """List how the run was made."""
    flat: dict[str, Any] = {}
    for name, value in asdict(run.config.fit).items():
        flat |= {f"{name}: {key}": each for key, each in value.items()} if isinstance(value, dict) else {name: value}
    return [(name.replace("_", " "), DASH if value is None else str(value)) for name, value in flat.items()]


def _accuracy(run: "RunFolder") -> str:
    return percent(run.summary.test_accuracy)


def _found(run: "RunFolder", what: Literal["dropped", "flagged"]) -> str:
    """Give the F1 of the dropped or flagged; a run that drops nothing has none."""
    noise = run.summary.noise
    return percent(getattr(noise, what).f1) if noise is not None and noise.noisy and run.summary.dropped else DASH


def _auroc(run: "RunFolder") -> str:
    # The oracle's losses are those of the clean labels: they cannot tell where the given ones are wrong.
    noise = run.summary.noise
    return DASH if run.knows_clean_labels or noise is None or not noise.noisy else percent(noise.auroc)
