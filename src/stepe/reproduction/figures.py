"""The paper's four figures from the result files, as pure functions: runs -> ``Figure``.

A curve whose run is not there is left out, a figure without any curve is ``None``.
"""

import statistics
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

import matplotlib.style
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from stepe.files import replacing, reporting
from stepe.report.figures import COLOURS, INK, LINES, STYLE, styled
from stepe.reproduction.numbers import FIGURE_SEED, METHOD_TITLES
from stepe.reproduction.tables import Epoch, MeasuredRun, by_seed, cifar10n_runs, read_runs

# One look per method in all figures; no two differ by colour alone (Step-E and the oracle differ by width).
LOOKS = {
    "baseline": (INK, LINES[1]),
    "truncation": (COLOURS["purple"], LINES[2]),
    "self-paced": (COLOURS["yellow"], LINES[3]),
    "one-shot": (COLOURS["orange"], (0, (3, 1, 1, 1, 1, 1))),
    "step-e": (COLOURS["blue"], LINES[0]),
    "oracle": (COLOURS["green"], LINES[0]),
}
WIDTH, DYNAMICS_WIDTH, HEIGHT = 5.6, 4.6, 3.6
"""of a panel, inches"""
PIXELS_PER_INCH = 200


@styled
def convergence(runs: Sequence[MeasuredRun]) -> Figure | None:
    """Draw Figure 1: test accuracy by epoch of all methods on CIFAR-100N, one seed."""
    settings = {method: by_seed(runs, method) for method in METHOD_TITLES}
    return _accuracy_of_one_seed(settings, "CIFAR-100N")


@styled
def dynamics(runs: Sequence[MeasuredRun]) -> Figure | None:
    """Draw Figure 2: how much Step-E keeps and drops, and how well it finds the noise, by epoch; one seed."""
    mine = by_seed(runs, "step-e")
    history = mine[seed]["history"] if (seed := _shown_seed([mine])) is not None else []
    if not history:
        return None
    figure = Figure(figsize=(2 * DYNAMICS_WIDTH, HEIGHT), layout="constrained", facecolor="white")
    left, right = figure.subplots(1, 2)
    figure.suptitle(f"Step-E on CIFAR-100N, seed {seed}", fontsize=10, color=INK, x=0.01, ha="left")
    _keep_and_drop(left, history)
    _detection(right, history)
    for panel in (left, right):
        _shade_warmup(panel, history)
        panel.set_ylim(0, 102)
        _epoch_axis(panel, history[-1]["epoch"] + 1)
        _legend(panel, columns=4)
    return figure


@styled
def seed_band(runs: Sequence[MeasuredRun]) -> Figure | None:
    """Draw Figure 3: test accuracy of baseline and Step-E on CIFAR-100N, mean and sample deviation over seeds."""
    curves = {method: _over_seeds(list(by_seed(runs, method).values())) for method in ("baseline", "step-e")}
    if not any(curves.values()):
        return None
    figure, axes = _chart("Test accuracy on CIFAR-100N, mean ± standard deviation over seeds")
    for method, points in curves.items():
        if points:
            _band(axes, method, points, len(by_seed(runs, method)))
    _accuracy_axis(axes)
    _epoch_axis(axes, max(points[-1][0] for points in curves.values() if points))
    _legend(axes)
    return figure


@styled
def cifar10n(runs: Sequence[MeasuredRun]) -> Figure | None:
    """Draw Figure 4: test accuracy by epoch of baseline, Step-E and oracle on CIFAR-10N (aggre), one seed."""
    settings = {method: cifar10n_runs(runs, method, "aggre") for method in ("baseline", "step-e", "oracle")}
    return _accuracy_of_one_seed(settings, "CIFAR-10N (aggre)", skip_the_climb=True)


FIGURES: dict[str, Callable[[Sequence[MeasuredRun]], Figure | None]] = {
    "convergence": convergence,
    "dynamics": dynamics,
    "seed-band": seed_band,
    "cifar10n": cifar10n,
}


def write_figures(results: Path, out: Path) -> list[Path]:
    """Write ``out/figures/*.png`` and ``*.svg``: the paper's figures for which there are runs."""
    runs = read_runs(results)
    drawn = {name: draw(runs) for name, draw in FIGURES.items()}
    return [path for name, figure in drawn.items() if figure is not None for path in _write(figure, name, out)]


def _write(figure: Figure, name: str, out: Path) -> list[Path]:
    """Write both files, the same bytes each time: no date, no version, ids that do not depend on chance."""
    folder = out / "figures"
    with reporting(folder):
        folder.mkdir(parents=True, exist_ok=True)
    unsigned = {"png": {"Software": None}, "svg": {"Date": None, "Creator": None}}
    paths = []
    for kind, metadata in unsigned.items():
        paths.append(folder / f"{name}.{kind}")
        with (
            replacing(paths[-1]) as temporary,
            matplotlib.style.context(["default", {**STYLE, "svg.hashsalt": name}]),
        ):
            figure.savefig(temporary, format=kind, dpi=PIXELS_PER_INCH, metadata=metadata)
    return paths


def _accuracy_of_one_seed(
    settings: dict[str, dict[int, MeasuredRun]], data: str, *, skip_the_climb: bool = False
) -> Figure | None:
    seed = _shown_seed(settings.values())
    if seed is None:
        return None
    figure, axes = _chart(f"Test accuracy on {data}, seed {seed}")
    shown = {method: setting[seed]["history"] for method, setting in settings.items() if seed in setting}
    for method, history in shown.items():
        _line(axes, method, [(row["epoch"] + 1, row["test_accuracy"]) for row in history])
    _accuracy_axis(axes)
    if skip_the_climb:
        _skip_the_climb(axes, list(shown.values()))
    _epoch_axis(axes, max(history[-1]["epoch"] + 1 for history in shown.values() if history))
    _legend(axes)
    return figure


def _shown_seed(settings: Collection[dict[int, MeasuredRun]]) -> int | None:
    """Choose the paper's seed, or the first there is, of runs that have a history."""
    seeds = {seed for setting in settings for seed, run in setting.items() if run["history"]}
    return FIGURE_SEED if FIGURE_SEED in seeds else min(seeds, default=None)


def _over_seeds(runs: Sequence[MeasuredRun]) -> list[tuple[int, float, float]]:
    """Epoch, mean and sample deviation of the test accuracy, for the epochs that every run has."""
    curves = [
        {row["epoch"] + 1: value for row in run["history"] if (value := row["test_accuracy"]) is not None}
        for run in runs
    ]
    shared = set.intersection(*(set(curve) for curve in curves)) if curves else set()
    points = []
    for epoch in sorted(shared):
        values = [curve[epoch] for curve in curves]
        deviation = statistics.stdev(values) if len(values) > 1 else 0.0
        points.append((epoch, statistics.fmean(values), deviation))
    return points


def _band(axes: Axes, method: str, points: Sequence[tuple[int, float, float]], seeds: int) -> None:
    epochs = [epoch for epoch, _, _ in points]
    low, high = ([mean + sign * deviation for _, mean, deviation in points] for sign in (-1, 1))
    axes.fill_between(epochs, low, high, color=LOOKS[method][0], alpha=0.22, linewidth=0)
    counted = f"{METHOD_TITLES[method]} ({seeds} {'seed' if seeds == 1 else 'seeds'})"
    _line(axes, method, [(epoch, mean) for epoch, mean, _ in points], label=counted)


def _keep_and_drop(axes: Axes, history: Sequence[Epoch]) -> None:
    axes.set_title("Share of the samples (%)")
    epochs = [row["epoch"] + 1 for row in history]
    kept = [100 * row["kept"] / max(1, row["kept"] + row["dropped"]) for row in history]
    axes.plot(epochs, kept, color=COLOURS["blue"], linestyle=LINES[0], label="kept")
    axes.plot(epochs, [100 - share for share in kept], color=COLOURS["orange"], linestyle=LINES[1], label="dropped")


def _detection(axes: Axes, history: Sequence[Epoch]) -> None:
    axes.set_title("Detection of wrong labels (%)")
    # Before anything is dropped the ratios are 0 by convention only.
    rows = [row for row in history if row["dropped"]]
    epochs = [row["epoch"] + 1 for row in rows]
    lines = {
        "precision": ([row["precision"] for row in rows], COLOURS["orange"], LINES[1]),
        "recall": ([row["recall"] for row in rows], COLOURS["green"], LINES[3]),
        "F1": ([row["f1"] for row in rows], COLOURS["blue"], LINES[0]),
    }
    for name, (values, colour, dash) in lines.items():
        axes.plot(epochs, _gaps(values), color=colour, linestyle=dash, label=name)


def _shade_warmup(axes: Axes, history: Sequence[Epoch]) -> None:
    """Mark the epochs before the first drop."""
    first = next((row["epoch"] + 1 for row in history if row["dropped"]), None)
    if first is not None and first > 1:
        axes.axvspan(1, first - 0.5, color=INK, alpha=0.14, linewidth=0, label="no drops yet", zorder=1.5)


def _chart(title: str) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(WIDTH, HEIGHT), layout="constrained", facecolor="white")
    figure.suptitle(title, fontsize=10, color=INK, x=0.01, ha="left")
    return figure, figure.subplots()


def _line(axes: Axes, method: str, points: Sequence[tuple[int, float | None]], label: str | None = None) -> None:
    colour, dash = LOOKS[method]
    front = method == "step-e"
    axes.plot(
        [epoch for epoch, _ in points],
        _gaps([value for _, value in points]),
        color=colour,
        linestyle=dash,
        linewidth=2.4 if front else 1.6,
        zorder=3 if front else 2,
        # A run of one epoch is a point, which a line would not show.
        marker="o" if len(points) == 1 else None,
        label=label or METHOD_TITLES[method],
    )


def _gaps(values: Sequence[float | None]) -> list[float]:
    return [float("nan") if value is None else value for value in values]


def _accuracy_axis(axes: Axes) -> None:
    axes.set_ylabel("test accuracy (%)")
    axes.set_ylim(bottom=0)


def _skip_the_climb(axes: Axes, histories: Sequence[Sequence[Epoch]]) -> None:
    """Start the axis below all but the first sixth of each run, whose climb would flatten what tells runs apart."""
    settled = [
        value
        for history in histories
        for row in history[len(history) // 6 :]
        if (value := row["test_accuracy"]) is not None
    ]
    if settled:
        margin = max(1.0, 0.08 * (max(settled) - min(settled)))
        axes.set_ylim(max(0.0, min(settled) - margin), min(100.0, max(settled) + margin))


def _epoch_axis(axes: Axes, last: int) -> None:
    axes.set_xlim(*((1, last) if last > 1 else (0.5, 1.5)))
    axes.xaxis.set_major_locator(MaxNLocator(8, integer=True, steps=[1, 2, 5, 10]))
    axes.set_xlabel("epoch")


def _legend(axes: Axes, columns: int = 3) -> None:
    axes.legend(loc="upper left", bbox_to_anchor=(0, -0.17), ncols=columns)
