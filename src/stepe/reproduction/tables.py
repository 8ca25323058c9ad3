"""The paper's tables with its numbers beside ours, and the ones it should have had: runs -> ``Table`` -> text.

A dash stands for a run that is not there, n/a for a number that a run, or the paper, does not have.
"""

import json
import re
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any, Literal, TypedDict

from stepe.errors import RunError
from stepe.files import reporting, write_text
from stepe.reproduction.numbers import CIFAR10N, FIGURE_SEED, MAIN, METHOD_TITLES, NOISE, PER_SEED

RESULT_FILES = ("cifar100n", "cifar10n", "sensitivity", "cifar-stem")
DASH = "–"
NOT_APPLICABLE = "n/a"

Metric = Literal["test_accuracy", "noise_f1", "noise_auroc", "seconds_per_epoch", "total_seconds"]


class Epoch(TypedDict):
    """A line of a run's history; shares in percent."""

    epoch: int
    test_accuracy: float | None
    kept: int
    dropped: int
    precision: float | None
    recall: float | None
    f1: float | None
    auroc: float | None


class MeasuredRun(TypedDict):
    """A run, as the result files hold it; shares in percent."""

    data: str
    labels: str
    method: str
    seed: int
    stem: str
    variant: str | None
    epochs: int
    test_accuracy: float | None
    noise_f1: float | None
    noise_auroc: float | None
    seconds_per_epoch: float | None
    total_seconds: float | None
    history: list[Epoch]


@dataclass(frozen=True)
class Column:
    """A column; neighbours of one group share a heading in LaTeX."""

    name: str
    group: str = ""
    align: str = "r"
    """as LaTeX has it: ``l``, ``r``, or ``p{...}`` for running text"""


@dataclass(frozen=True)
class Table:
    """A table of text. What stands between backticks is code."""

    name: str
    """of its files, and of its LaTeX label"""
    caption: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()


def read_runs(results: Path) -> list[MeasuredRun]:
    """Read the runs of all result files that are there."""
    return [run for name in RESULT_FILES for run in read_json(results / f"{name}.json").get("runs", [])]


def read_json(path: Path) -> dict[str, Any]:
    """Read a result file; return nothing if it is not there."""
    if not path.exists():
        return {}
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RunError(f"cannot read {path}: {error}; remove the file, then run `stepe reproduce` again") from error
    if not isinstance(content, dict):
        raise RunError(f"{path} is no result file: it holds no object; remove it, then run `stepe reproduce` again")
    return content


def by_seed(
    runs: Iterable[MeasuredRun],
    method: str,
    data: str = "cifar100n",
    labels: str = "noisy",
    stem: str = "imagenet",
    variant: str | None = None,
) -> dict[int, MeasuredRun]:
    """Return the runs of one setting, in the order of their seeds; one a seed, so that none counts twice."""
    wanted = (method, data, labels, stem, variant)
    found: dict[int, MeasuredRun] = {}
    for run in runs:
        if (run["method"], run["data"], run["labels"], run["stem"], run["variant"]) == wanted:
            found.setdefault(run["seed"], run)
    return dict(sorted(found.items()))


def cifar10n_runs(runs: Iterable[MeasuredRun], method: str, labels: str) -> dict[int, MeasuredRun]:
    """Do as ``by_seed``, on CIFAR-10N; clean labels are the same beside any noisy ones, so one oracle serves all."""
    every = list(runs)
    own = by_seed(every, method, "cifar10n", labels)
    return own or by_seed(every, method, "cifar10n", "aggre") if method == "oracle" else own


def known(runs: Iterable[MeasuredRun], metric: Metric) -> list[float]:
    """Collect a metric of the runs that have it."""
    return [value for run in runs if (value := run[metric]) is not None]


def mean(values: Sequence[float]) -> float | None:
    """Average the values; ``None`` of nothing."""
    return statistics.fmean(values) if values else None


def mean_gain(ours: Mapping[int, MeasuredRun], reference: Mapping[int, MeasuredRun]) -> float | None:
    """Average the difference in test accuracy over the seeds that both have."""
    gains = [
        after - before
        for seed in ours.keys() & reference.keys()
        if (after := ours[seed]["test_accuracy"]) is not None
        and (before := reference[seed]["test_accuracy"]) is not None
    ]
    return mean(gains)


def overhead(seconds: float | None, baseline_seconds: float | None) -> float | None:
    """Return by how many percent an epoch takes longer than the baseline's."""
    if seconds is None or not baseline_seconds:
        return None
    return 100 * (seconds / baseline_seconds - 1)


# The paper's tables


def main_table(runs: Sequence[MeasuredRun]) -> Table:
    """Make Table 1: test accuracy on CIFAR-100N."""
    rows = []
    for method, paper in MAIN.items():
        mine = by_seed(runs, method)
        ours = mean(known(mine.values(), "test_accuracy"))
        cells = (f"{paper.mean:.1f} ± {paper.deviation:.1f}", _spread(mine), signed(ours, paper.mean), seeds_of(mine))
        rows.append((METHOD_TITLES[method], *cells))
    return Table(
        "main",
        "Test accuracy (%) on CIFAR-100N with human label noise, mean ± sample standard deviation over seeds "
        "(the paper's Table 1).",
        (Column("Method", align="l"), *_compared_columns("Test accuracy"), Column("Seeds")),
        tuple(rows),
    )


def noise_table(runs: Sequence[MeasuredRun]) -> Table:
    """Make Table 2: noise detection and training time on CIFAR-100N."""
    baseline_seconds = mean(known(by_seed(runs, "baseline").values(), "seconds_per_epoch"))
    rows = []
    for method, paper in NOISE.items():
        mine = list(by_seed(runs, method).values())
        extra = overhead(mean(known(mine, "seconds_per_epoch")), baseline_seconds)
        rows.append(
            (
                METHOD_TITLES[method],
                *_compared(paper.f1, mine, "noise_f1"),
                *_compared(paper.auroc, mine, "noise_auroc"),
                *_compared(paper.seconds_per_epoch, mine, "seconds_per_epoch", decimals=2),
                _number(paper.overhead),
                _number(extra) if mine else DASH,
                signed(extra, paper.overhead),
            )
        )
    groups = ("F1 (%)", "AUROC (%)", "Time / epoch (s)", "Overhead (%)")
    return Table(
        "noise",
        "Noise detection and training-time overhead on CIFAR-100N, means over seeds (the paper's Table 2).",
        (Column("Method", align="l"), *(column for group in groups for column in _compared_columns(group))),
        tuple(rows),
        (f"Our times are those of seed {FIGURE_SEED}, whose runs have the device to themselves.",),
    )


def per_seed_table(runs: Sequence[MeasuredRun]) -> Table:
    """Make Table 3: every run on CIFAR-100N."""
    rows = []
    for method, title in METHOD_TITLES.items():
        mine = by_seed(runs, method)
        for seed in sorted({seed for name, seed in PER_SEED if name == method} | mine.keys()):
            paper = PER_SEED.get((method, seed))
            own = [mine[seed]] if seed in mine else []
            rows.append(
                (
                    title,
                    str(seed),
                    *_compared(paper and paper.accuracy, own, "test_accuracy"),
                    *_compared(paper and paper.seconds, own, "total_seconds"),
                    *_compared(paper and paper.f1, own, "noise_f1"),
                    *_compared(paper and paper.auroc, own, "noise_auroc"),
                )
            )
    groups = ("Accuracy (%)", "Time (s)", "F1 (%)", "AUROC (%)")
    return Table(
        "per-seed",
        "Each run on CIFAR-100N: test accuracy, total training time, noise detection (the paper's Table 3).",
        (
            Column("Method", align="l"),
            Column("Seed"),
            *(column for group in groups for column in _compared_columns(group)),
        ),
        tuple(rows),
        (f"Only runs of seed {FIGURE_SEED} have the device to themselves; of the others no time is given.",),
    )


def cifar10n_table(runs: Sequence[MeasuredRun]) -> Table:
    """Make Table 4: test accuracy on CIFAR-10N (aggre)."""
    rows = []
    for method, paper in CIFAR10N.items():
        mine = cifar10n_runs(runs, method, "aggre")
        own = [mine[FIGURE_SEED]] if FIGURE_SEED in mine else []
        rows.append((METHOD_TITLES[method], *_compared(paper, own, "test_accuracy"), _spread(mine), seeds_of(mine)))
    return Table(
        "cifar10n",
        f"Test accuracy (%) on CIFAR-10N (aggre), seed {FIGURE_SEED} (the paper's Table 4), and over our seeds.",
        (
            Column("Method", align="l"),
            *_compared_columns(f"Seed {FIGURE_SEED}"),
            Column("mean ± std", "All our seeds"),
            Column("seeds", "All our seeds"),
        ),
        tuple(rows),
    )


# What the paper does not have


def sensitivity_table(runs: Sequence[MeasuredRun]) -> Table:
    """Compare Step-E's settings, and the alternatives to what the paper leaves open, one at a time."""
    rows = []
    for method, title in METHOD_TITLES.items():
        mine = [run for run in runs if run["method"] == method and run["data"] == "cifar100n"]
        variants = dict.fromkeys(run["variant"] for run in mine if run["variant"] is not None)
        if not variants:
            continue
        settings = {variant: by_seed(mine, method, variant=variant) for variant in variants}
        seeds = {seed for setting in settings.values() for seed in setting}
        paper_setting = {seed: run for seed, run in by_seed(mine, method).items() if seed in seeds}
        rows.append((title, "the paper's", *_summary(paper_setting), DASH))
        rows += [
            (title, variant, *_summary(setting), signed(mean_gain(setting, paper_setting)))
            for variant, setting in settings.items()
        ]
    return Table(
        "sensitivity",
        "Other settings on CIFAR-100N, each beside the paper's setting with the same seeds.",
        (
            Column("Method", align="l"),
            Column("Setting", align="l"),
            Column("Test accuracy (%)"),
            Column("Noise F1 (%)"),
            Column("Noise AUROC (%)"),
            Column("Seeds"),
            Column("Change in accuracy"),
        ),
        tuple(rows),
    )


def cifar_stem_table(runs: Sequence[MeasuredRun]) -> Table:
    """Make the main table with both stems of the ResNet, on the seeds that the CIFAR stem has."""
    rows = []
    every = {method: by_seed(runs, method, stem="cifar") for method in METHOD_TITLES}
    seeds = {seed for setting in every.values() for seed in setting}
    for method, cifar in every.items() if seeds else ():
        imagenet = {seed: run for seed, run in by_seed(runs, method).items() if seed in seeds}
        both = [list(setting.values()) for setting in (imagenet, cifar)]
        rows.append(
            (
                METHOD_TITLES[method],
                _spread(imagenet),
                _spread(cifar),
                signed(mean_gain(cifar, imagenet)),
                *(_ours(own, "noise_f1") for own in both),
                *(_ours(own, "noise_auroc") for own in both),
                seeds_of(cifar),
            )
        )
    stems = ("ImageNet stem", "CIFAR stem")
    return Table(
        "cifar-stem",
        "CIFAR-100N with the paper's backbone (ResNet-18, ImageNet stem: 7x7 stride 2 and max-pool) and with the stem "
        "that is usual for 32x32 images (3x3, no pooling), on the same seeds.",
        (
            Column("Method", align="l"),
            *(Column(name, "Test accuracy (%)") for name in (*stems, "diff.")),
            *(Column(name, "Noise F1 (%)") for name in stems),
            *(Column(name, "Noise AUROC (%)") for name in stems),
            Column("Seeds"),
        ),
        tuple(rows),
    )


def cifar10n_more_table(runs: Sequence[MeasuredRun]) -> Table:
    """Make a table of the label sets of CIFAR-10N that the paper does not have."""
    rows = []
    for labels in ("worst", "rand1"):
        settings = {method: cifar10n_runs(runs, method, labels) for method in CIFAR10N}
        if not (settings["baseline"] or settings["step-e"]):
            continue
        seeds = settings["baseline"].keys() | settings["step-e"].keys()
        for method, setting in settings.items():
            mine = {seed: run for seed, run in setting.items() if seed in seeds}
            gain = DASH if method == "baseline" else signed(mean_gain(mine, settings["baseline"]))
            rows.append((labels, METHOD_TITLES[method], *_summary(mine), gain))
    return Table(
        "cifar10n-more",
        "CIFAR-10N with the label sets worst and rand1, which the paper does not have.",
        (
            Column("Labels", align="l"),
            Column("Method", align="l"),
            Column("Test accuracy (%)"),
            Column("Noise F1 (%)"),
            Column("Noise AUROC (%)"),
            Column("Seeds"),
            Column("Gain over baseline"),
        ),
        tuple(rows),
    )


TABLES: dict[str, Callable[[Sequence[MeasuredRun]], Table]] = {
    "main": main_table,
    "noise": noise_table,
    "per-seed": per_seed_table,
    "cifar10n": cifar10n_table,
    "sensitivity": sensitivity_table,
    "cifar-stem": cifar_stem_table,
    "cifar10n-more": cifar10n_more_table,
}
SOURCES = {"main": "cifar100n", "noise": "cifar100n", "per-seed": "cifar100n", "cifar10n-more": "cifar10n"}
"""which result file a table shows, where it is not called like the table"""


def write_tables(results: Path, out: Path) -> list[Path]:
    """Write ``out/tables/*.md`` and ``*.tex``: the paper's tables, and those beyond it for which there are runs."""
    runs = read_runs(results)
    written = []
    for name, build in TABLES.items():
        table = build(runs)
        if not table.rows:
            continue
        content = read_json(results / f"{SOURCES.get(name, name)}.json")
        commits = dict.fromkeys(run["commit"] for run in content.get("runs", []) if run.get("commit"))
        note = measured_with(content.get("environment", {}), list(commits))
        written += write_table(replace(table, notes=(*table.notes, *note)), out)
    return written


def write_table(table: Table, out: Path) -> list[Path]:
    """Write ``out/tables/NAME.md`` and ``.tex``."""
    folder = out / "tables"
    with reporting(folder):
        folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{table.name}.md", folder / f"{table.name}.tex"]
    for path, render in zip(paths, (markdown, latex), strict=True):
        write_text(path, render(table))
    return paths


def measured_with(environment: Mapping[str, Any], commits: Sequence[str] = ()) -> tuple[str, ...]:
    """Note what our numbers were measured with; say nothing where nothing is known."""
    commits = commits or ([environment["commit"]] if environment.get("commit") else [])
    parts = [
        str(environment.get("device_name") or ""),
        f"torch {environment['torch']}" if environment.get("torch") else "",
        f"commit {' and '.join(commits)}" if commits else "",
    ]
    said = ", ".join(part for part in parts if part)
    return (f"Ours: {said}.",) if said else ()


# Text


def markdown(table: Table) -> str:
    """Write the table in GitHub's Markdown; groups become part of the columns' names."""
    names = [f"{column.group}, {column.name}" if column.group else column.name for column in table.columns]
    rules = ["--:" if column.align == "r" else ":--" for column in table.columns]
    lines = [_markdown_row(names), f"|{'|'.join(rules)}|", *map(_markdown_row, table.rows)]
    return "\n\n".join([_markdown_text(table.caption), "\n".join(lines), *map(_markdown_text, table.notes)]) + "\n"


def latex(table: Table) -> str:
    """Write the table in LaTeX, with the rules of booktabs."""
    wide = len(table.columns) > 8
    body = [
        "% needs \\usepackage{booktabs}",
        "\\begin{table}[t]",
        "\\centering",
        *(["\\footnotesize", "\\setlength{\\tabcolsep}{3pt}"] if wide else []),
        f"\\caption{{{latex_text(table.caption)}}}",
        f"\\label{{tab:{table.name}}}",
        f"\\begin{{tabular}}{{{''.join(column.align for column in table.columns)}}}",
        "\\toprule",
        *_latex_groups(table.columns),
        _latex_row([column.name for column in table.columns]),
        "\\midrule",
        *map(_latex_row, table.rows),
        "\\bottomrule",
        "\\end{tabular}",
        *(f"\\par\\smallskip{{\\footnotesize {latex_text(note)}}}" for note in table.notes),
        "\\end{table}",
    ]
    return "\n".join(body) + "\n"


LATEX_CHARACTERS = {
    **{character: f"\\{character}" for character in "&%$#_{}"},
    "\\": "\\textbackslash{}",
    "~": "\\textasciitilde{}",
    "^": "\\textasciicircum{}",
    # At the start of a row it would be an argument of the row before.
    "[": "{[}",
    "<": "\\textless{}",
    ">": "\\textgreater{}",
    "|": "\\textbar{}",
    "±": "$\\pm$",
    "−": "$-$",
    "–": "--",
    "≥": "$\\geq$",
    "≤": "$\\leq$",
    "²": "$^2$",
    "“": "``",
    "”": "''",
}


def latex_text(text: str) -> str:
    r"""Write text as LaTeX prints it literally; code in typewriter, and free to break after an underscore.

    >>> print(latex_text("100% of `rho_max` ± 1"))
    100\% of \texttt{rho\_\allowbreak{}max} $\pm$ 1
    """
    parts = ["".join(LATEX_CHARACTERS.get(character, character) for character in part) for part in text.split("`")]
    parts[1::2] = [f"\\texttt{{{part}}}".replace("\\_", "\\_\\allowbreak{}") for part in parts[1::2]]
    return "".join(parts)


def signed(value: float | None, reference: float | None = 0.0, decimals: int = 1) -> str:
    """Write a difference with its sign, or a dash.

    >>> signed(50.6, 50.4), signed(-0.01), signed(None)
    ('+0.2', '0.0', '–')
    """
    if value is None or reference is None:
        return DASH
    # Rounding first: a difference that prints as nothing has no sign.
    rounded = round(value - reference, decimals)
    return _minus(f"{rounded:+.{decimals}f}") if rounded else f"{0:.{decimals}f}"


def seeds_of(runs: Mapping[int, MeasuredRun]) -> str:
    """List the seeds behind a number."""
    return ", ".join(map(str, runs)) or DASH


def _minus(number: str) -> str:
    return number.replace("-", "−")


def _spread(runs: Mapping[int, MeasuredRun]) -> str:
    """Write mean and sample standard deviation of the test accuracy; one run has no deviation."""
    values = known(runs.values(), "test_accuracy")
    if not values:
        return DASH
    deviation = f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""
    return f"{statistics.fmean(values):.1f}{deviation}"


def _ours(runs: Sequence[MeasuredRun], metric: Metric, decimals: int = 1) -> str:
    if not runs:
        return DASH
    return _number(mean(known(runs, metric)), decimals)


def _number(value: float | None, decimals: int = 1) -> str:
    if value is None:
        return NOT_APPLICABLE
    # Zero has no sign, however it was reached.
    return _minus(f"{round(value, decimals) or 0.0:.{decimals}f}")


def _compared(
    paper: float | None, runs: Sequence[MeasuredRun], metric: Metric, decimals: int = 1
) -> tuple[str, str, str]:
    """Return the paper's number, ours, and the difference."""
    difference = signed(mean(known(runs, metric)), paper, decimals)
    return _number(paper, decimals), _ours(runs, metric, decimals), difference


def _compared_columns(group: str) -> tuple[Column, ...]:
    return tuple(Column(name, group) for name in ("paper", "ours", "diff."))


def _summary(runs: Mapping[int, MeasuredRun]) -> tuple[str, str, str, str]:
    """Accuracy, noise F1, AUROC and seeds of one setting."""
    own = list(runs.values())
    return _spread(runs), _ours(own, "noise_f1"), _ours(own, "noise_auroc"), seeds_of(runs)


def _markdown_row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(map(_markdown_text, cells))} |"


def _markdown_text(text: str) -> str:
    """Text as Markdown shows it literally; inside code only the bar needs care, which would end a cell."""
    parts = text.replace("|", "\\|").split("`")
    parts[::2] = [re.sub(r"([*_<\[])", r"\\\1", part) for part in parts[::2]]
    return "`".join(parts)


def _latex_row(cells: Sequence[str]) -> str:
    return f"{' & '.join(map(latex_text, cells))} \\\\"


def _latex_groups(columns: Sequence[Column]) -> list[str]:
    """Write the line of shared headings, and the rules below them."""
    if not any(column.group for column in columns):
        return []
    headings, rules, first = [], [], 1
    for group, members in groupby(columns, key=lambda column: column.group):
        width = len(list(members))
        if group:
            headings.append(f"\\multicolumn{{{width}}}{{c}}{{{latex_text(group)}}}")
            rules.append(f"\\cmidrule(lr){{{first}-{first + width - 1}}}")
        else:
            headings += [""] * width
        first += width
    return [f"{' & '.join(headings)} \\\\", "".join(rules)]
