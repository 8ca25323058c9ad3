"""``report.html``: what a run found, in one self-contained file.

This file turns a run folder into plain values; ``templates/`` turns those into a page. Everything that comes from the
data is escaped there; the charts alone are trusted markup, and they are drawn here.
"""

import base64
import io
import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jinja2
from markupsafe import Markup
from matplotlib.figure import Figure
from PIL import Image

from stepe.exhibits import media_type
from stepe.files import write_text
from stepe.methods import METHODS
from stepe.noise_rate import Estimate, stated_rate
from stepe.report import figures

if TYPE_CHECKING:
    from stepe.run import Run

SHOWN = 24
"""suspects in plain sight"""
LISTED = 60
"""suspects on the page, the rest of them folded away; ``issues.csv`` has all"""
CLASSES, PAIRS = 20, 10
PIXELATED = 64
"""pictures up to this many pixels wide are shown pixel by pixel"""
DASH = "–"
FILES = {
    "issues.csv": "the flagged samples, most suspicious first: open it in a spreadsheet",
    "samples.parquet": "every sample, with the same columns",
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
    "checkpoint": "what an interrupted run is resumed from",
    "compare": "the runs this one is compared with, each in a folder like this",
}


@dataclass(frozen=True)
class Fact:
    """One number worth knowing."""

    name: str
    value: str
    note: str = ""


@dataclass(frozen=True)
class Table:
    """Rows of cells, the first of each naming its row; ``notes`` stand below the names."""

    columns: list[str]
    rows: list[list[str]]
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Suspect:
    """A label that looks wrong."""

    rank: int
    id: str
    given: str
    suggested: str
    suspicion: str
    reason: str
    picture: str
    """a data URI, or nothing"""
    pixelated: bool


@dataclass(frozen=True)
class Chart:
    """A figure with the words around it."""

    name: str
    title: str
    caption: str
    alt: str
    svg: Markup


@dataclass(frozen=True)
class ClassRow:
    """How many samples of a class look wrong."""

    name: str
    samples: int
    flagged: int
    share: str
    width: float
    """of its bar, in percent"""


@dataclass(frozen=True)
class Pair:
    """A given label and what the model says instead, with how often that happens."""

    given: str
    suggested: str
    count: int


def write_report(run: "Run") -> Path:
    """Build the report of a finished run from its folder; returns its path."""
    path = run.path / "report.html"
    write_text(path, render(run))
    return path


def render(run: "Run") -> str:
    """The report as text; the same run gives the same text."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("stepe.report", "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["thousands"] = "{:,}".format
    others = run.others
    return environment.get_template("report.html").render(
        data=data_name(run),
        method=run.method,
        headline=headline(run),
        findings=findings(run, others),
        looks_for_suspects=figures.drops(run) or "noise_rate" in run.summary,
        truth_known="noise" in run.summary,
        facts=facts(run),
        comparison=comparison([run, *others]) if others else None,
        suspects=suspects(run),
        shown=SHOWN,
        flagged=run.summary["flagged"],
        charts=list(charts(run, others)),
        classes=classes(run),
        classes_shown=CLASSES,
        pairs=pairs(run),
        files=files(run),
        command=run.config["environment"]["command"],
        versions=versions(run),
        settings=settings(run),
    )


def data_name(run: "Run") -> str:
    """What the data is called."""
    return str(run.config["request"].get("name", "arrays"))


def headline(run: "Run") -> str:
    """The finding in one sentence.

    The share is of the training labels: held-out ones are never flagged.
    """
    flagged, n = run.summary["flagged"], run.summary["samples"]
    if rate := run.summary.get("noise_rate"):
        if Estimate(**rate).is_unknown:
            return f"Too little was learned to say which of the {n:,} labels look wrong."
    elif not figures.drops(run):
        return f"{_capital(run.method)} drops nothing, so it does not say which of the {n:,} labels look wrong."
    elif not run.summary["dropped"]:
        return f"{_capital(run.method)} ends with all {n:,} labels kept, so it does not say which look wrong."
    if not flagged:
        return f"None of the {n:,} labels looks wrong."
    return f"{flagged:,} of {n:,} labels look{'s' if flagged == 1 else ''} wrong ({share(flagged / n)})."


def findings(run: "Run", others: "list[Run]") -> list[str]:
    """What else to know at once, a sentence each."""
    found = _estimated(run)
    accuracy = run.summary.get("test_accuracy")
    plain = next((other for other in others if other.method == "plain"), None)
    if accuracy is not None and plain is not None and "test_accuracy" in plain.summary:
        against = "On held-out data" if "noise" in run.summary else "By held-out labels, which may be wrong too,"
        found.append(
            f"{against} the model is right {percent(accuracy)} of the time; "
            f"plain training on the same labels gives {percent(plain.summary['test_accuracy'])}."
        )
    noise = run.summary.get("noise")
    if noise is None:
        return found
    planted = run.config["request"].get("noise")
    kind = f" ({planted})" if planted not in (None, "none") else ""
    if not noise["noisy"]:
        found.append("No noise was planted here: if all the labels are right, each flag is a false alarm.")
    elif run.summary["flagged"]:
        found.append(
            f"The answer is known here{kind}: {noise['noisy']:,} samples are corrupted. The flags found "
            f"{percent(noise['flagged']['recall'])} of them, and {percent(noise['flagged']['precision'])} of the flags "
            "are right."
        )
    else:
        found.append(f"The answer is known here{kind}: {noise['noisy']:,} samples are corrupted.")
    return found


def _estimated(run: "Run") -> list[str]:
    """What the run found out about the data and about itself, without clean labels."""
    found = []
    if "noise_rate" in run.summary:
        rate = run.summary["noise_rate"]
        caution = "" if Estimate(**rate).is_unknown else " A model's own mistakes can pass for wrong labels."
        found.append(stated_rate(rate) + caution)
    probe = run.summary.get("probe", {})
    if (seen := probe.get("contradicted")) and probe["chosen"]:
        found.append(
            f"After the warm-up, models contradicted {share(seen['trained'])} of the labels they trained on and "
            f"{share(seen['unseen'])} of those they had not seen: "
            + (
                "they do not learn labels by heart, so the model judged its own samples."
                if probe["reach"] == "in-sample"
                else "they learn labels by heart, so every sample was judged by models that never trained on it."
            )
        )
    return found


def facts(run: "Run") -> list[Fact]:
    """The run at a glance."""
    summary, fit = run.summary, run.config["fit"]
    accuracy = summary.get("test_accuracy")
    found = [
        Fact("Data", data_name(run), f"{summary['samples']:,} training samples, {len(run.class_names):,} classes"),
        Fact("Method", run.method, describe_method(run.method)),
    ]
    if accuracy is not None:
        unsure = "" if "noise" in summary else "against held-out labels that may be wrong too"
        found.append(Fact("Test accuracy", percent(accuracy), unsure or "on held-out samples"))
    if figures.drops(run):
        dropped = summary["dropped"]
        note = f"{share(dropped / summary['samples'])} of the samples, in the last epoch"
        found.append(Fact("Dropped", f"{dropped:,}", note))
        found.append(Fact("Flagged", f"{summary['flagged']:,}", "dropped, and contradicted by the model throughout"))
    found.append(Fact("Training", f"{summary['epochs']} epochs", f"{duration(summary['seconds'])}, seed {fit['seed']}"))
    return found


def comparison(runs: "list[Run]") -> Table:
    """This run beside the others; columns that nobody can fill are left out."""
    columns: list[tuple[str, Callable[[Run], str]]] = [("Test accuracy", _accuracy)]
    if any(figures.noise_known(run) for run in runs):
        columns += [
            ("F1 dropped", lambda run: _found(run, "dropped")),
            ("F1 flagged", lambda run: _found(run, "flagged")),
            ("AUROC", _auroc),
        ]
    columns += [
        ("Flagged", lambda run: f"{run.summary['flagged']:,}" if run.summary["dropped"] else DASH),
        ("Seconds", lambda run: f"{run.summary['seconds']:,.1f}"),
    ]
    rows = [[run.method, *(cell(run) for _, cell in columns)] for run in runs]
    empty = {i for i in range(1, len(columns) + 1) if all(row[i] == DASH for row in rows)}
    names = ["Method", *(name for name, _ in columns)]
    return Table(
        columns=[name for i, name in enumerate(names) if i not in empty],
        rows=[[cell for i, cell in enumerate(row) if i not in empty] for row in rows],
        notes=[describe_method(run.method) for run in runs],
    )


def suspects(run: "Run") -> list[Suspect]:
    """The top of the list."""
    found = []
    for issue in run.issues.head(LISTED).to_dict("records"):
        exhibit = run.exhibits.get(issue["row"])
        picture = None if exhibit is None else exhibit.picture
        found.append(
            Suspect(
                rank=issue["rank"],
                id=issue["id"],
                given=issue["given_label"],
                suggested=issue["suggested_label"],
                suspicion=suspicion(issue["suspicion"]),
                reason=issue["reason"],
                picture="" if picture is None else data_uri(picture),
                pixelated=picture is not None and max(Image.open(io.BytesIO(picture)).size) <= PIXELATED,
            )
        )
    return found


def charts(run: "Run", others: "list[Run]") -> Iterator[Chart]:
    """The charts that this run has something to show in."""
    runs = [run, *others]
    n = run.summary["samples"]
    last = run.history[-1]
    ends = ", ".join(
        f"{each.method} {percent(each.summary['test_accuracy'])}" for each in runs if "test_accuracy" in each.summary
    )
    unsure = "" if "noise" in run.summary else " The held-out labels may be wrong too."
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


def _chart(name: str, title: str, caption: str, alt: str, figure: Figure | None) -> Iterator[Chart]:
    if figure is not None:
        # Matplotlib escapes the texts in its SVG.
        yield Chart(name, title, caption, alt, Markup(figures.svg(figure, f"chart-{name}")))


def classes(run: "Run") -> list[ClassRow]:
    """The classes, those with most suspects first."""
    training = run.samples[run.samples["split"] == "train"]
    counted = training.groupby("given_label", sort=False)["flagged"].agg(["size", "sum"])
    rows = [(name, int(counted["size"].get(name, 0)), int(counted["sum"].get(name, 0))) for name in run.class_names]
    rows.sort(key=lambda row: -row[2])
    highest = max((flagged / samples for _, samples, flagged in rows if samples), default=0.0)
    return [
        ClassRow(
            name,
            samples,
            flagged,
            share(flagged / samples) if samples else DASH,
            round(100 * flagged / samples / highest, 1) if samples and highest else 0.0,
        )
        for name, samples, flagged in rows
    ]


def pairs(run: "Run") -> list[Pair]:
    """The most frequent confusions among the flagged."""
    issues = run.issues
    counted = Counter(zip(issues["given_label"], issues["suggested_label"], strict=True))
    ranked = sorted(counted.items(), key=lambda item: (-item[1], item[0]))
    return [Pair(given, suggested, count) for (given, suggested), count in ranked if suggested][:PAIRS]


def files(run: "Run") -> list[tuple[str, str, str]]:
    """What is in the folder: name, purpose, size. The report itself is left out, so as not to depend on itself."""
    found = []
    for name, purpose in FILES.items():
        path = run.path / name
        if path.is_dir():
            found.append((f"{name}/", purpose, ""))
        elif path.exists():
            found.append((name, purpose, size(path.stat().st_size)))
    return found


def versions(run: "Run") -> list[tuple[str, str]]:
    """What the run was made with."""
    environment = run.config["environment"]
    return [
        (name.replace("_", " "), str(value))
        for name, value in environment.items()
        if name not in ("command", "seed") and value is not None
    ]


def settings(run: "Run") -> list[tuple[str, str]]:
    """How the run was made."""
    flat: dict[str, Any] = {}
    for name, value in run.config["fit"].items():
        flat |= {f"{name}: {key}": each for key, each in value.items()} if isinstance(value, dict) else {name: value}
    return [(name.replace("_", " "), DASH if value is None else str(value)) for name, value in flat.items()]


def data_uri(picture: bytes) -> str:
    """A picture for the page."""
    return f"data:{media_type(picture)};base64,{base64.b64encode(picture).decode()}"


def describe_method(name: str) -> str:
    """A method in a line, if it is one of ours."""
    return METHODS[name].summary if name in METHODS else ""


def percent(value: float | None) -> str:
    """A measured share, to a tenth of a percent."""
    return DASH if value is None else f"{100 * value:.1f}%"


def share(value: float) -> str:
    """A share in a sentence: whole percents, unless there are few of them.

    >>> share(0.393), share(0.0042)
    ('39%', '0.4%')
    """
    return f"{value:.0%}" if value == 0 or value >= 0.0995 else f"{value:.1%}"


def suspicion(value: float) -> str:
    """Three digits, rounded down: only what is certain is 1.

    >>> suspicion(0.99998)
    '0.999'
    """
    return DASH if math.isnan(value) else f"{math.floor(value * 1000) / 1000:.3f}"


def duration(seconds: float) -> str:
    """Seconds for people.

    >>> duration(14.7), duration(150), duration(4000)
    ('15 s', '2 min 30 s', '1 h 6 min')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s" if whole else "under a second"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def size(count: int) -> str:
    """Bytes for people.

    >>> size(540), size(78781)
    ('540 B', '79 kB')
    """
    value = float(count)
    for unit in ("B", "kB", "MB"):
        if value < 999.5:
            return f"{value:.0f} {unit}" if value >= 9.95 or unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} GB"


def _capital(name: str) -> str:
    return name[:1].upper() + name[1:]


def _accuracy(run: "Run") -> str:
    return percent(run.summary.get("test_accuracy"))


def _found(run: "Run", what: str) -> str:
    """F1 of the dropped or flagged; a run that drops nothing has none."""
    return percent(run.summary["noise"][what]["f1"]) if figures.noise_known(run) and run.summary["dropped"] else DASH


def _auroc(run: "Run") -> str:
    # The oracle's losses are those of the clean labels: they cannot tell where the given ones are wrong.
    knows = run.method in METHODS and METHODS[run.method].trains_on == "clean"
    return DASH if knows or not figures.noise_known(run) else percent(run.summary["noise"]["auroc"])
