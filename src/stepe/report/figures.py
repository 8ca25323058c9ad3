"""The charts, as pure functions: run(s) -> ``Drawing``, a figure with what can be read off it; ``Figure`` -> SVG.

Colours are fixed here, for files that stand alone; inside a page each becomes a CSS variable (``--chart-blue``...), so
that a style sheet can adapt them to a dark background. All drawing goes through ``Figure`` itself: pyplot's global
state belongs to the user.
"""

import functools
import io
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import matplotlib.style
import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter

from stepe.errors import InputError
from stepe.report.wording import percent
from stepe.run.trace import Trace

if TYPE_CHECKING:
    from stepe.run.folder import RunFolder

# After Okabe and Ito: told apart by people with any colour vision.
COLOURS = {
    "ink": "#57606a",
    "grid": "#d7dce1",
    "blue": "#0072b2",
    "green": "#009e73",
    "purple": "#cc79a7",
    "yellow": "#b38600",
    "sky": "#4fa8dc",
    "orange": "#d55e00",
}
INK, GRID, *SERIES = COLOURS.values()
KEPT, DROPPED = COLOURS["blue"], COLOURS["orange"]
FILL: dict[str, Any] = {"fill": True, "alpha": 0.85}
LINES = ("-", (0, (5, 2)), (0, (1, 1.5)), (0, (6, 2, 1, 2)))
STYLE = {
    "font.family": "sans-serif",
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "axes.labelsize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": GRID,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "axes.facecolor": "none",
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.7,
    "xtick.color": GRID,
    "ytick.color": GRID,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "ytick.major.size": 0,
    "text.color": INK,
    "legend.frameon": False,
    "legend.borderaxespad": 0,
    "legend.handlelength": 1.8,
    "lines.linewidth": 1.6,
    "lines.solid_capstyle": "round",
    "svg.fonttype": "none",
}
SIZE = (4.6, 2.75)
"""inches; small, so that the text is still legible when the chart is as wide as a phone"""
SMALLEST_LOSS = 1e-4
"""what lies below it on a logarithmic axis is of no interest and shares the first bin"""


@dataclass(frozen=True)
class Stop:
    """A reading of a chart at one place."""

    x: float
    """the place in the units of the axis"""
    title: str
    values: list[tuple[str, str]]
    """name of a series, and its value"""


@dataclass(frozen=True)
class Drawing:
    """A figure, and what a pointer reads off it, from left to right."""

    figure: Figure
    stops: list[Stop]


P = ParamSpec("P")
R = TypeVar("R")


def styled(draw: Callable[P, R]) -> Callable[P, R]:
    """Draw in the house style, whatever style the user has set for their own figures."""

    @functools.wraps(draw)
    def drawn(*args: P.args, **kwargs: P.kwargs) -> R:
        with matplotlib.style.context(["default", STYLE]):
            return draw(*args, **kwargs)

    return drawn


@styled
def accuracy_curves(runs: "Sequence[RunFolder]") -> Drawing | None:
    """Draw the test accuracy by epoch, the first run in front; ``None`` where no run has any."""
    return _curves(runs, "test_accuracy", share=True)


@styled
def loss_curves(runs: "Sequence[RunFolder]") -> Drawing | None:
    """Draw the mean training loss by epoch."""
    return _curves(runs, "train_loss", share=False)


@styled
def kept_share(run: "RunFolder") -> Drawing | None:
    """Draw what share of the samples was trained on and dropped, by epoch; ``None`` if nothing was ever dropped."""
    if not drops(run):
        return None
    figure, axes = _chart()
    kept = np.array([row["kept"] for row in run.history]) / _samples(run)
    edges = np.arange(len(kept) + 1) + 0.5
    axes.stairs(kept, edges, color=KEPT, **FILL, label="trained on")
    axes.stairs(np.ones_like(kept), edges, baseline=kept, color=DROPPED, **FILL, label="dropped")
    _shade_warmup(axes, run)
    _share_axis(axes)
    _epoch_axis(axes, len(kept), by_edge=True)
    axes.set_ylim(0, 1)
    axes.grid(visible=False)
    _legend(axes)
    return Drawing(figure, _by_epoch({"trained on": kept, "dropped": 1 - kept}, percent))


@styled
def turnover(run: "RunFolder") -> Drawing | None:
    """Draw how many samples came back and were newly dropped, by epoch; ``None`` if nothing was ever dropped."""
    if not drops(run):
        return None
    figure, axes = _chart()
    edges = np.arange(len(run.history) + 1) + 0.5
    came, went = (np.array([row[field] for row in run.history]) for field in ("came", "went"))
    axes.stairs(came, edges, color=KEPT, **FILL, label="came back")
    axes.stairs(-went, edges, color=DROPPED, **FILL, label="newly dropped")
    axes.axhline(0, color=INK, linewidth=0.8)
    _shade_warmup(axes, run)
    axes.yaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.yaxis.set_major_formatter(lambda value, _: f"{abs(value):,.0f}")
    _epoch_axis(axes, len(came), by_edge=True)
    axes.set_ylabel("samples")
    _legend(axes)
    return Drawing(figure, _by_epoch({"came back": came, "newly dropped": went}, "{:,.0f}".format))


@styled
def detection(run: "RunFolder") -> Drawing | None:
    """Draw precision, recall and F1 of the drops by epoch; ``None`` without a truth, wrong labels or drops."""
    if not noise_known(run) or not drops(run):
        return None
    figure, axes = _chart()
    # Before anything is dropped the ratios are 0 by convention only.
    rows = [(row["epoch"] + 1, row) for row in run.history if row["dropped"]]
    epochs = [epoch for epoch, _ in rows]
    found = {name: [row[name.lower()] for _, row in rows] for name in ("F1", "precision", "recall")}
    for position, (name, values) in enumerate(found.items()):
        _line(axes, epochs, values, position, label=name, front=name == "F1")
    _shade_warmup(axes, run)
    _share_axis(axes)
    axes.set_ylim(-0.02, 1.02)
    _epoch_axis(axes, len(run.history))
    _legend(axes)
    return Drawing(figure, _by_epoch(found, percent, epochs))


@styled
def loss_histogram(run: "RunFolder") -> Drawing | None:
    """Draw how the final losses are spread, kept and dropped, with the last epoch's cut; ``None`` without losses."""
    loss, dropped = final_losses(run)
    known = np.isfinite(loss)
    loss, dropped = loss[known], dropped[known]
    if len(loss) == 0:
        return None
    figure, axes = _chart()
    cut = run.history[-1]["cut"] if run.history else None
    lowest, highest = float(loss.min()), float(loss.max())
    if lowest >= 0 and highest > SMALLEST_LOSS:
        loss = np.maximum(loss, SMALLEST_LOSS)
        bins = np.geomspace(loss.min(), highest * 1.0001, 46)
        axes.set_xscale("log")
        # Over a narrow range the powers of ten alone would be one label, or none.
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if highest < 100 * loss.min() else (1,)))
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    else:
        bins = np.linspace(lowest, max(highest, lowest + 1e-6), 46)
    kept_counts, dropped_counts = (np.histogram(loss[chosen], bins)[0] for chosen in (~dropped, dropped))
    axes.stairs(kept_counts, bins, color=KEPT, **FILL, label="trained on")
    if dropped.any():
        both = kept_counts + dropped_counts
        axes.stairs(both, bins, baseline=kept_counts, color=DROPPED, **FILL, label="dropped")
    if cut is not None and dropped.any():
        axes.axvline(cut, color=INK, linewidth=1.2, linestyle=LINES[1], label=f"cut at {cut:.3g}")
    axes.set_xlabel("loss of a sample under the final model")
    axes.set_ylabel("samples")
    axes.yaxis.set_major_locator(MaxNLocator(5, integer=True))
    _legend(axes)
    middles = np.sqrt(bins[:-1] * bins[1:]) if axes.get_xscale() == "log" else (bins[:-1] + bins[1:]) / 2
    counts = {"trained on": kept_counts} | ({"dropped": dropped_counts} if dropped.any() else {})
    return Drawing(
        figure,
        [
            Stop(
                float(middles[i]),
                f"loss {bins[i]:.3g} to {bins[i + 1]:.3g}",
                [(name, f"{count[i]:,}") for name, count in counts.items()],
            )
            for i in range(len(middles))
        ],
    )


@styled
def noise_range(run: "RunFolder") -> Drawing | None:
    """Draw how many labels are wrong: the estimate with its range, what was flagged and dropped, and any truth."""
    samples = run.summary.samples
    estimate, known = run.belief.found_rate, run.summary.noise
    if estimate is not None and estimate.is_unknown:
        estimate = None
    if estimate is None and known is None:
        return None
    shares = {"flagged": run.summary.flagged / samples, "dropped": run.summary.dropped / samples}
    if known is not None:
        shares = {"wrong": known.noisy / samples} | shares
    figure, axes = _chart()
    names = [*(["estimated"] if estimate else []), *shares]
    rows = dict(zip(names, range(len(names))[::-1], strict=True))
    values = {name: [(name, percent(value))] for name, value in shares.items()}
    if estimate:
        axes.barh(rows["estimated"], estimate.high - estimate.low, 0.5, estimate.low, color=KEPT, alpha=0.3)
        axes.plot(estimate.rate, rows["estimated"], "o", color=KEPT, markersize=8)
        shares["estimated"] = estimate.rate
        span = f"{percent(estimate.low)} to {percent(estimate.high)}"
        values["estimated"] = [("estimated wrong", percent(estimate.rate)), ("range", span)]
    for name, colour in (("wrong", INK), ("flagged", DROPPED), ("dropped", DROPPED)):
        if name in shares:
            axes.barh(rows[name], shares[name], 0.5, color=colour, alpha=0.45 if name == "dropped" else 0.85)
    widest = max([*shares.values(), estimate.high if estimate else 0.0, 0.01])
    axes.set_xlim(0, min(1.0, 1.08 * widest))
    axes.set_ylim(-0.6, len(names) - 0.4)
    axes.xaxis.set_major_formatter(lambda value, _: f"{100 * value:.6g}%")
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.set_yticks(list(rows.values()), list(rows))
    axes.grid(visible=False, axis="y")
    axes.grid(visible=True, axis="x")
    axes.set_xlabel("share of the training labels")
    ordered = sorted(values, key=lambda name: shares[name])
    return Drawing(figure, [Stop(shares[name], "share of the labels", values[name]) for name in ordered])


@styled
def overlaid(runs: "Sequence[RunFolder]") -> Figure:
    """Draw curves of several runs over each other: test accuracy, kept share and, where it is known, F1.

    Runs may differ in length; a curve that a run does not have is left out.
    """
    if not runs:
        raise InputError("there is no run to draw; name at least one run folder")
    panels: list[tuple[str, Callable[[RunFolder], list[float | None]]]] = [
        ("Test accuracy", lambda run: [row.get("test_accuracy") for row in run.history]),
        ("Share of samples trained on", lambda run: [row["kept"] / _samples(run) for row in run.history]),
        ("F1 of the dropped", lambda run: [row.get("f1") if row["dropped"] else None for row in run.history]),
    ]
    curves = [(title, [values(run) for run in runs]) for title, values in panels]
    curves = [(title, lines) for title, lines in curves if any(value is not None for line in lines for value in line)]
    if not curves:
        raise InputError("none of the runs has finished an epoch yet; there is nothing to draw")
    figure = Figure(figsize=(4.2 * len(curves), 3.2), layout="constrained", facecolor="white")
    axes = figure.subplots(1, len(curves), squeeze=False)[0]
    longest = max(len(run.history) for run in runs)
    for panel, (title, lines) in zip(axes, curves, strict=True):
        panel.set_title(title)
        for position, line in enumerate(lines):
            _line(panel, range(1, len(line) + 1), line, position)
        _share_axis(panel)
        if title == "Test accuracy":
            _skip_the_climb(panel, lines)
        _epoch_axis(panel, longest)
    labels = [
        name if name == run.method else f"{name} ({run.method})"
        for name, run in zip(folder_names(runs), runs, strict=True)
    ]
    handles = axes[0].get_lines()
    legend = figure.legend(
        handles, [str(i) for i in range(len(runs))], loc="outside lower left", ncols=max(1, len(curves))
    )
    _name(legend.get_texts(), labels)
    return figure


def final_losses(run: "RunFolder") -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
    """Return every training sample's loss under the final model, and whether the last epoch dropped it."""
    samples = run.samples[run.samples["split"] == "train"]
    dropped = samples["dropped"].to_numpy(dtype=np.bool_)
    last = Trace(run.file("trace.bin"), len(samples)).last()
    if len(last):
        return last["loss"].astype(np.float64), dropped
    # Data too large for a trace: the suspicion is 1 - the probability of the given label, smoothed over the probes.
    trust = 1 - samples["suspicion"].to_numpy(dtype=np.float64)
    return -np.log(np.clip(trust, 1e-7, 1)), dropped


def drops(run: "RunFolder") -> bool:
    """Say whether any epoch dropped anything."""
    return any(row["dropped"] for row in run.history)


def noise_known(run: "RunFolder") -> bool:
    """Say whether it is known which labels are wrong, and some are: then finding them can be measured."""
    return run.summary.noise is not None and run.summary.noise.noisy > 0


def warmup_epochs(run: "RunFolder") -> int:
    """Return how many epochs there are before anything is dropped."""
    return run.summary.warmup or 0


def folder_names(runs: "Sequence[RunFolder]") -> list[str]:
    """Name the runs by as much of their paths as tells them apart."""
    parts = [run.path.resolve().parts for run in runs]
    for depth in range(1, max(len(path) for path in parts)):
        names = ["/".join(path[-depth:]) for path in parts]
        if len(set(names)) == len(set(parts)):
            return names
    return [str(run.path) for run in runs]


def svg(figure: Figure, name: str) -> str:
    """Write a figure as an ``<svg>`` for a page: themed by CSS variables, as wide as its place, the same each time.

    ``name`` keeps the ids of several charts on one page apart.
    """
    buffer = io.StringIO()
    with matplotlib.style.context(["default", {**STYLE, "svg.hashsalt": name}]), warnings.catch_warnings():
        # The page brings the fonts; what matplotlib's own lacks is of no matter.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        figure.savefig(buffer, format="svg", transparent=True)
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>\s*|<!--.*?-->\s*", "", text, flags=re.DOTALL)
    opening, rest = text.split(">", 1)
    box = re.search(r'viewBox="[^"]*"', opening)
    assert box is not None
    rest = re.sub(r'\b(id="|xlink:href="#|url\(#)', rf"\g<1>{name}-", rest).replace("xlink:href", "href")
    rest = re.sub(r'(?<=style=")[^"]*', lambda style: _themed(style[0]), rest)
    return f'<svg {box[0]} aria-hidden="true" focusable="false">{rest}'.rstrip()


def readings(drawing: Drawing) -> dict[str, Any]:
    """Tell the page's script where each stop lies, in shares of the drawing's width, and what to say there.

    To be asked once the figure is drawn, for drawing lays it out.
    """
    figure = drawing.figure
    (axes,) = figure.axes
    to_figure = figure.transFigure.inverted()
    (left, bottom), (right, top) = to_figure.transform(axes.get_window_extent().get_points())
    places = [to_figure.transform(axes.transData.transform((stop.x, axes.get_ylim()[0])))[0] for stop in drawing.stops]
    return {
        "box": [round(float(side), 4) for side in (left, 1 - top, right, 1 - bottom)],
        "stops": [
            [round(float(place), 4), stop.title, stop.values]
            for place, stop in zip(places, drawing.stops, strict=True)
            if stop.values
        ],
    }


def _themed(style: str) -> str:
    for name, colour in COLOURS.items():
        style = style.replace(colour, f"var(--chart-{name}, {colour})")
    return style


def _chart() -> tuple[Figure, Axes]:
    figure = Figure(figsize=SIZE, layout="constrained", facecolor="white")
    return figure, figure.subplots()


def _curves(runs: "Sequence[RunFolder]", field: str, *, share: bool) -> Drawing | None:
    """Draw one line per run, named by its method."""
    lines = [(run, [row.get(field) for row in run.history]) for run in runs]
    lines = [(run, values) for run, values in lines if any(value is not None for value in values)]
    if not lines:
        return None
    figure, axes = _chart()
    # The first run is drawn last, over the others; it keeps the first colour.
    for position, (_, values) in reversed(list(enumerate(lines))):
        _line(axes, range(1, len(values) + 1), values, position, front=position == 0)
    if share:
        _share_axis(axes)
        _skip_the_climb(axes, [values for _, values in lines])
    else:
        axes.set_ylim(bottom=min(0.0, axes.get_ylim()[0]))
    _epoch_axis(axes, max(len(values) for _, values in lines))
    legend = axes.legend(
        axes.get_lines()[::-1],
        [str(i) for i in range(len(lines))],
        loc="lower left",
        bbox_to_anchor=(0, 1.02),
        ncols=min(3, len(lines)),
    )
    _name(legend.get_texts(), [run.method for run, _ in lines])
    written = percent if share else "{:.3g}".format
    return Drawing(figure, _by_epoch({run.method: values for run, values in lines}, written))


def _by_epoch(
    series: Mapping[str, Sequence[float | None] | npt.NDArray[Any]],
    written: Callable[[float], str],
    epochs: Sequence[int] | None = None,
) -> list[Stop]:
    """Collect what several series say in each epoch; those that ended before, or say nothing there, are left out."""
    epochs = epochs or range(1, max(len(values) for values in series.values()) + 1)
    stops = []
    for i, epoch in enumerate(epochs):
        here = {name: values[i] for name, values in series.items() if i < len(values)}
        stops.append(Stop(epoch, f"epoch {epoch}", [(k, written(v)) for k, v in here.items() if v is not None]))
    return stops


def _line(
    axes: Axes,
    epochs: Sequence[int],
    values: Sequence[float | None],
    position: int,
    *,
    front: bool = False,
    label: str | None = None,
) -> None:
    known = [np.nan if value is None else value for value in values]
    axes.plot(
        epochs,
        known,
        color=SERIES[position % len(SERIES)],
        linestyle=LINES[0] if front else LINES[(position + position // len(SERIES)) % len(LINES)],
        linewidth=2.4 if front else 1.6,
        # A run of one epoch is a point, which a line would not show.
        marker="o" if int(np.isfinite(known).sum()) == 1 else None,
        markersize=5,
        zorder=3 if front else 2,
        label=label,
    )


def _samples(run: "RunFolder") -> int:
    return run.config.fit.samples


def _shade_warmup(axes: Axes, run: "RunFolder") -> None:
    end = min(warmup_epochs(run), len(run.history))
    if end:
        axes.axvspan(0.5, end + 0.5, color=INK, alpha=0.22, linewidth=0, label="warm-up", zorder=1.5)


def _epoch_axis(axes: Axes, last: int, *, by_edge: bool = False) -> None:
    margin = 0.5 if by_edge or last == 1 else 0.0
    axes.set_xlim(1 - margin, last + margin)
    axes.xaxis.set_major_locator(MaxNLocator(8, integer=True, steps=[1, 2, 5, 10]))
    axes.set_xlabel("epoch")


def _share_axis(axes: Axes) -> None:
    axes.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.6g}%")


def _skip_the_climb(axes: Axes, lines: Sequence[Sequence[float | None]]) -> None:
    """Start the axis below all but the first sixth of each run, whose climb would flatten what tells runs apart."""
    settled = [value for line in lines for value in line[len(line) // 6 :] if value is not None]
    lowest, highest = min(settled), max(settled)
    margin = max(0.01, 0.08 * (highest - lowest))
    axes.set_ylim(max(0.0, lowest - margin), min(1.0, highest + margin))


def _legend(axes: Axes) -> None:
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1.02), ncols=4)


def _name(texts: Sequence[Any], names: Sequence[str]) -> None:
    """Write names as they are: no ``$`` is mathematics, no leading underscore hides a line."""
    for text, name in zip(texts, names, strict=True):
        text.set_parse_math(False)
        text.set_text(name if len(name) <= 48 else f"{name[:22]}…{name[-22:]}")
