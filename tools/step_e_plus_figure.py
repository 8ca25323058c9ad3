"""The figure of docs/research/step-e-plus.md, from results/step-e-plus: ``python tools/step_e_plus_figure.py``."""

import argparse
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib.style
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from stepe.report.figures import COLOURS, INK, LINES, STYLE, styled

ROOT = Path(__file__).resolve().parents[1]
PIXELS_PER_INCH = 160
PRESET = "step-e-plus, later ramp, windows"
SEED = 42

Row = dict[str, Any]


@dataclass(frozen=True)
class Panel:
    """One run, and the accuracy that was aimed at or published."""

    title: str
    file: str
    labels: str
    mark: float
    mark_is: str


PANELS = (
    Panel("CIFAR-100N, 100 epochs", "cifar100n", "noisy", 74.0, "stretch"),
    Panel("The same, the paper's network", "backbone", "noisy", 55.0, "goal"),
    Panel("CIFAR-100N, 300 epochs", "long", "noisy", 70.1, "DivideMix"),
    Panel("CIFAR-10, 72% wrong at random", "synthetic", "symmetric:0.72", 92.9, "DivideMix"),
)


def wrong_among_kept(run: Row) -> list[float]:
    """Of the labels that an epoch keeps, how many percent are wrong."""
    last = run["history"][-1]
    wrong = last["precision"] * last["dropped"] / last["recall"]
    return [100 * (wrong - row["precision"] / 100 * row["dropped"]) / row["kept"] for row in run["history"]]


@styled
def curves(runs: list[tuple[Panel, Row]]) -> Figure:
    """Accuracy by epoch, and what is still wrong among the kept labels."""
    figure = Figure(figsize=(11.2, 3.6), layout="constrained", facecolor="white")
    figure.suptitle(
        "What Step-E+ reaches, and what it still believes by mistake", fontsize=10, color=INK, x=0.01, ha="left"
    )
    panels = figure.subplots(1, len(runs), sharey=True)
    for axes, (panel, run) in zip(panels, runs, strict=True):
        epochs = [row["epoch"] + 1 for row in run["history"]]
        accuracy = [row["test_accuracy"] for row in run["history"]]
        axes.plot(epochs, accuracy, color=COLOURS["blue"], label="test accuracy")
        axes.plot(
            epochs,
            wrong_among_kept(run),
            color=COLOURS["orange"],
            linestyle=LINES[1],
            label="wrong among the kept labels",
        )
        axes.axhline(panel.mark, color=INK, linewidth=0.8, linestyle=LINES[2])
        axes.annotate(
            f"{panel.mark_is} {panel.mark:g}", (epochs[0], panel.mark), xytext=(2, 3), textcoords="offset points"
        )
        axes.set_title(panel.title)
        axes.set_xlabel("epoch")
        axes.yaxis.set_major_formatter(PercentFormatter(100, decimals=0))
        axes.set_ylim(0, 100)
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower left", ncols=2)
    return figure


def read(panel: Panel, folder: Path) -> Row:
    """The run of a panel."""
    runs = json.loads((folder / f"{panel.file}.json").read_text(encoding="utf-8"))["runs"]
    wanted = panel.labels, PRESET, SEED
    (found,) = [run for run in runs if (run["labels"], run["variant"], run["seed"]) == wanted]
    return found


def main() -> None:
    """Read the runs, write the figure, the same bytes each time."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=Path, default=ROOT / "results" / "step-e-plus")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "research" / "images" / "step-e-plus.png")
    arguments = parser.parse_args()
    figure = curves([(panel, read(panel, arguments.results)) for panel in PANELS])
    with matplotlib.style.context(["default", STYLE]):
        figure.savefig(arguments.out, dpi=PIXELS_PER_INCH, metadata={"Software": None})


if __name__ == "__main__":
    main()
