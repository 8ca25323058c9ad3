"""``python tools/limitations_figures.py`` draws docs/research/limitations.md, from results/limitations.json."""

import argparse
import json
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib.style
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator, PercentFormatter, ScalarFormatter

from stepe.report.figures import COLOURS, INK, LINES, STYLE, styled

ROOT = Path(__file__).resolve().parents[1]
PIXELS_PER_INCH = 160

Row = dict[str, Any]


@styled
def learnable(rows: list[Row]) -> Figure:
    """By what is ranked: accuracy on the class in question, and what is dropped of it."""
    figure, (left, right) = _panels("One class mostly under the label of one other", height=4.4, sharey=True)
    names = sorted(
        {row["variant"] for row in rows},
        key=lambda name: [_mean(rows, "class_accuracy", setting=share, variant=name) for share in ("0.7", "0.5")],
    )
    looks = {"0.5": ("o", COLOURS["sky"]), "0.7": ("D", COLOURS["blue"]), "0.9": ("s", COLOURS["purple"])}
    for share, (marker, colour) in looks.items():
        shown = [_mean(rows, "class_accuracy", setting=share, variant=name) for name in names]
        label = f"{float(share):.0%} of it"
        left.plot(shown, range(len(names)), linestyle="", marker=marker, color=colour, label=label)
    left.set_title("Test accuracy on that class")
    for offset, column, colour, label in (
        (-0.2, "wrong_dropped", COLOURS["blue"], "its wrong labels"),
        (0.2, "right_dropped", COLOURS["orange"], "its right labels"),
    ):
        shown = [_mean(rows, column, setting="0.7", variant=name) for name in names]
        right.barh([place + offset for place in range(len(names))], shown, height=0.36, color=colour, label=label)
    right.set_title("Dropped in the end, where it is 70%")
    left.set_yticks(range(len(names)), names)
    left.invert_yaxis()
    for panel in (left, right):
        panel.grid(visible=True, axis="x")
        panel.set_xlim(-0.03, 1.03)
        panel.xaxis.set_major_formatter(PercentFormatter(1))
        _legend(panel, below=-0.09)
    return figure


@styled
def ramp(rows: list[Row]) -> Figure:
    """Accuracy by the warm-up's length, set or found, for a network that learns slowly and one that memorises."""
    figure, panels = _panels("When elimination begins, 40% of the labels wrong", sharey=True)
    looks = {
        "in-sample, linear": (INK, LINES[1], "probe and ramp of the paper"),
        "auto, linear": (COLOURS["orange"], LINES[2], "probe auto"),
        "auto, proportional": (COLOURS["blue"], LINES[0], "probe auto, ramp as long as the warm-up"),
    }
    titles = {"slow": "A network that learns slowly", "fast": "A network that memorises"}
    for panel, (network, title) in zip(panels, titles.items(), strict=True):
        for kind, (colour, dash, label) in looks.items():
            mine = {row["variant"]: row["variant"].rpartition(", ")[2] for row in rows}
            lengths = [length for name, length in mine.items() if name.rpartition(", ")[0] == kind]
            fixed = [length for length in lengths if length != "auto"]
            shown = [_mean(rows, "accuracy", setting=network, variant=f"{kind}, {length}") for length in fixed]
            panel.plot([int(length) for length in fixed], shown, color=colour, linestyle=dash, marker=".", label=label)
            if "auto" in lengths:
                found = {"setting": network, "variant": f"{kind}, auto"}
                at = _mean(rows, "warmup", **found), _mean(rows, "accuracy", **found)
                panel.plot(*at, color=colour, linestyle="", marker="*", markersize=13)
        panel.set_title(title)
        panel.set_xscale("log")
        panel.set_xticks([1, 5, 10, 20, 40])
        panel.xaxis.set_minor_locator(NullLocator())
        panel.xaxis.set_major_formatter(ScalarFormatter())
        panel.set_xlabel("epochs of warm-up, of 60")
        panel.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    panels[0].set_ylabel("test accuracy")
    panels[0].plot([], [], color=INK, linestyle="", marker="*", markersize=13, label="warm-up found out")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower left", ncols=4)
    return figure


@styled
def tail(rows: list[Row]) -> Figure:
    """By the group floor: accuracy on the rare classes, and what is dropped of right and wrong labels."""
    figure, (left, right) = _panels(
        "A long tail, 1:50, by the share of every class that is never dropped (min_keep)", height=3.9
    )
    floors = {"Step-E": 0.0} | {f"Step-E, floor {floor}%": floor / 100 for floor in (50, 70, 90)}
    looks = {"symmetric:0.05": (LINES[0], "5% noise"), "symmetric:0.2": (LINES[1], "20% noise")}
    for noise, (dash, label) in looks.items():

        def over_floors(column: str, noise: str = noise) -> list[float]:
            return [_mean(rows, column, setting=noise, variant=name) for name in floors]

        places = list(floors.values())
        for part, colour in (("middle", COLOURS["green"]), ("rare", COLOURS["blue"])):
            shown = over_floors(f"{part}_accuracy")
            left.plot(places, shown, color=colour, linestyle=dash, marker=".", label=f"{part} classes, {label}")
        for column, colour, name in (
            ("rare_right_dropped", COLOURS["orange"], "right labels, rare classes"),
            ("wrong_dropped", INK, "wrong labels"),
        ):
            right.plot(places, over_floors(column), color=colour, linestyle=dash, marker=".", label=f"{name}, {label}")
    left.set_title("Test accuracy")
    right.set_title("Dropped in the end")
    for panel in (left, right):
        panel.set_xticks(list(floors.values()))
        panel.set_ylim(-0.03, 1.03)
        panel.set_xlabel("min_keep")
        for axis in (panel.xaxis, panel.yaxis):
            axis.set_major_formatter(PercentFormatter(1))
        _legend(panel, columns=1, below=-0.18)
    return figure


FIGURES: dict[str, Callable[[list[Row]], Figure]] = {"learnable": learnable, "ramp": ramp, "tail": tail}


def write(rows: list[Row], folder: Path) -> None:
    """One picture a limitation, the same bytes each time."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, draw in FIGURES.items():
        figure = draw([row for row in rows if row["limitation"] == name])
        with matplotlib.style.context(["default", STYLE]):
            path = folder / f"limitations-{name}.png"
            figure.savefig(path, dpi=PIXELS_PER_INCH, metadata={"Software": None})


def _panels(title: str, height: float = 3.4, **shared: bool) -> tuple[Figure, list[Axes]]:
    figure = Figure(figsize=(9.2, height), layout="constrained", facecolor="white")
    figure.suptitle(title, fontsize=10, color=INK, x=0.01, ha="left")
    return figure, list(figure.subplots(1, 2, **shared))


def _mean(rows: list[Row], column: str, **of: str) -> float:
    return statistics.mean(row[column] for row in rows if all(row[name] == value for name, value in of.items()))


def _legend(axes: Axes, below: float, columns: int = 3) -> None:
    axes.legend(loc="upper left", bbox_to_anchor=(0, below), ncols=columns)


def main() -> None:
    """Read the rows, write the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=Path, default=ROOT / "results" / "limitations.json")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "research" / "images")
    arguments = parser.parse_args()
    write(json.loads(arguments.results.read_text(encoding="utf-8"))["rows"], arguments.out)


if __name__ == "__main__":
    main()
