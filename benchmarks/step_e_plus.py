"""The study behind Step-E+: what each part brings, chosen on a hold-out; then the frozen presets, on the test set.

    python benchmarks/step_e_plus.py screen   --data-dir DATA    # settings, on 10% held out under their noisy labels
    python benchmarks/step_e_plus.py finalists --data-dir DATA   # what may become the preset, at its full length
    python benchmarks/step_e_plus.py final    --data-dir DATA    # CIFAR-100N, three seeds
    python benchmarks/step_e_plus.py found    --data-dir DATA    # the same, the noise rate not known
    python benchmarks/step_e_plus.py backbone-screen --data-dir DATA    # settings for the paper's network, held out
    python benchmarks/step_e_plus.py ramp-screen --data-dir DATA    # ramps for where most labels are wrong, held out
    python benchmarks/step_e_plus.py backbone --data-dir DATA    # with the paper's network and epochs
    python benchmarks/step_e_plus.py peers    --data-dir DATA    # what others propose, with those
    python benchmarks/step_e_plus.py clean    --data-dir DATA    # the preset where no label is wrong
    python benchmarks/step_e_plus.py aggre    --data-dir DATA    # CIFAR-10N, aggregated labels
    python benchmarks/step_e_plus.py check    --data-dir DATA    # other labels, and synthetic noise
    python benchmarks/step_e_plus.py long     --data-dir DATA    # 300 epochs, as the peers train
    python benchmarks/step_e_plus.py cost     --data-dir DATA    # seconds an epoch, against plain training

Writes results/step-e-plus/. Several phases can be given; runs that are there already are not run again. Once the cost
is known, every run of a preset names its own.
"""

import argparse
import json
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import mean, median
from typing import Any

import torch

from stepe.files import write_text
from stepe.reproduction.grid import IDENTITY, SEEDS, TIMED_SEED, Cell
from stepe.reproduction.runner import Bench, carry_out, job_of, warm_up
from stepe.samples.strong import Strong
from stepe.training.building import Silent, Training
from stepe.training.environment import describe_environment
from stepe.training.session import Row

HOLD_OUT: dict[str, Any] = {"held_out": 0.1}
SCREENED_EPOCHS = 40
EPOCHS, LONG_EPOCHS, PAPER_EPOCHS = 100, 300, 60
WARM_UP = 1 / 9
PRESETS: dict[str, dict[str, Any]] = {
    "step-e-plus": {},
    "step-e-plus, later ramp": {"ramp": 0.8},
    "step-e-plus, later ramp, windows": {"ramp": 0.8, "cutmix": 0.5},
    "step-e-plus, windows": {"ramp": 0.6, "cutmix": 0.5},
    "step-e-plus, all windows": {"ramp": 0.6, "cutmix": 1.0},
}
PRESET = "step-e-plus, later ramp, windows"
FROZEN = ("step-e-plus", PRESET)
"""one after the other; no other preset has read the test set"""

SCREENED: dict[str, dict[str, Any]] = {
    "as it is": {},
    "score by the loss": {"score": "loss"},
    "score by the posterior": {"score": "posterior"},
    "prior from what is given": {"prior": "given"},
    "no prior": {"prior": "none"},
    "averaged over two epochs": {"average": 2.0},
    "no averaging": {"average": 0},
    "no correction": {"correct": False},
    "no refinement": {"refine": 0},
    "refined by 0.8": {"refine": 0.8},
    "no mixup": {"mixup": 0},
    "mixup 0.5": {"mixup": 0.5},
    "half of the blends cut": {"ramp": 0.6, "cutmix": 0.5},
    "all blends cut": {"ramp": 0.6, "cutmix": 1.0},
    "0.05 fewer dropped": {"rho_max": 0.35},
    "ramp done at 0.8": {"ramp": 0.8},
}
SEED_OF_DOUBT = 13
IN_DOUBT = ("as it is", "ramp done at 0.8")
"""have a second seed"""
TRAININGS: dict[str, dict[str, Any]] = {
    "weight decay 0.001": {"weight_decay": 1e-3},
    "strong augmentation of 0.3": {"augment": Strong(share=0.3)},
    "batches of 256, rate 0.2": {"batch_size": 256, "learning_rate": 0.2},
}
LATE = {"ramp": 0.92}
USUAL = PRESETS[PRESET]
SMALL: dict[str, Any] = {"batch_size": 64, "learning_rate": 0.05}
BACKBONE_SCREENED: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "the preset": (USUAL, {}),
    "ramp done at 0.92": (LATE, {}),
    "ramp done at 0.92, windows": (LATE | {"cutmix": 0.5}, {}),
    "ramp done at 0.92, no blends": (LATE | {"mixup": 0}, {}),
    "ramp done at 0.92, averaged over two epochs": (LATE | {"average": 2.0}, {}),
    "ramp done at 0.92, weight decay 0.001": (LATE, {"weight_decay": 1e-3}),
    "ramp done at 0.92, windows, weight decay 0.001": (LATE | {"cutmix": 0.5}, {"weight_decay": 1e-3}),
    "ramp done at 0.92, batches of 64, rate 0.05": (LATE, SMALL),
    "memory 0.7": (USUAL | {"guess_memory": 0.7}, {}),
    "batches of 64, rate 0.05": (USUAL, SMALL),
    "batches of 64, rate 0.05, memory 0.7": (USUAL | {"guess_memory": 0.7}, SMALL),
    "batches of 64, rate 0.05, memory 0.7, fewer windows": (USUAL | {"guess_memory": 0.7, "cutmix": 0.25}, SMALL),
    "rate 0.05": (USUAL, {"learning_rate": 0.05}),
    "ramp done at 0.92, batches of 64, rate 0.05, memory 0.7": (LATE | {"guess_memory": 0.7}, SMALL),
    "batches of 64, rate 0.1": (USUAL, {"batch_size": 64}),
    "refined by 0.8": (USUAL | {"refine": 0.8}, {}),
    "0.05 fewer dropped": (USUAL | {"rho_max": 0.35}, {}),
    "mixup 0.5, no windows": ({"ramp": 0.8, "mixup": 0.5}, {}),
}


def purifying(rate: float, progress: float) -> float:
    """A ramp, steep at first, along which the wrong among the kept labels fall evenly, if only those are dropped."""
    return progress / (1 - rate * (1 - progress))


RAMPS: dict[str, tuple[bool, dict[str, Any]]] = {
    "the preset": (False, {}),
    "done at 0.4": (False, {"ramp": 0.4}),
    "purifying": (True, {}),
    "purifying, done at 0.5": (True, {"ramp": 0.5}),
    "purifying, no windows": (True, {"cutmix": 0.0}),
    "purifying, done at 0.5, no windows": (True, {"ramp": 0.5, "cutmix": 0.0}),
}
"""whether they purify, and what else they change of the preset"""
RAMPS_FOR = (("cifar10", "symmetric:0.72", 0.72, tuple(RAMPS)), ("cifar100n", "noisy", 0.402, ("purifying",)))
"""data, labels, how many of them are wrong, and what was screened there"""

PEERS: dict[str, dict[str, Any]] = {
    "label-smoothing": {},
    "gce": {},
    "sce": {"alpha": 6.0, "beta": 0.1},
    "mixup": {},
    "elr": {"strength": 7.0, "memory": 0.9},
    "co-teaching": {},
    "margins": {},
}
"""with their papers' settings for 100 classes"""
FOUND_OUT = f"{PRESET}, rate found out"
COST_OF = {
    "step-e-plus": "Step-E+ without windows",
    PRESET: "Step-E+, the preset",
    FOUND_OUT: "Step-E+, the preset",
}
"""preset -> what the cost file calls it"""
HUMAN = (("cifar100n", "noisy"), ("cifar10n", "worst"), ("cifar10n", "aggre"), ("cifar10n", "rand1"))
SYNTHETIC = {
    # Papers draw the wrong label among all classes, the right one included: fewer are wrong than they say.
    "cifar10": ("symmetric:0.18", "symmetric:0.45", "symmetric:0.72", "pairs:0.4"),
    "cifar100": ("symmetric:0.198", "symmetric:0.495", "symmetric:0.792", "asymmetric:0.4"),
}
DIVIDEMIX = {
    ("cifar10", "symmetric:0.18"): 95.7,
    ("cifar10", "symmetric:0.45"): 94.4,
    ("cifar10", "symmetric:0.72"): 92.9,
    ("cifar10", "pairs:0.4"): 92.1,
    ("cifar100", "symmetric:0.198"): 76.9,
    ("cifar100", "symmetric:0.495"): 74.2,
    ("cifar100", "symmetric:0.792"): 59.6,
}
"""published (Li et al., 2020, tables 1 and 2): two networks, means of the last 10 of 300 epochs"""


def plus(
    file: str, data: str, labels: str, seed: int = TIMED_SEED, *, preset: str | None = PRESET, **other: Any
) -> Cell:
    """A run of a preset of Step-E+ with the stem that CIFAR networks usually have."""
    settings: dict[str, Any] = {"stem": "cifar", "variant": preset, "epochs": EPOCHS} | other
    settings["warmup"] = round(WARM_UP * settings["epochs"])
    # All of CIFAR's classes have equally many images, which is public.
    options = {"prior": "uniform"} | (PRESETS[preset] if preset else {}) | settings.get("options", {})
    if "ramp" in options:  # as a share of the run
        options["ramp_end"] = round(options.pop("ramp") * settings["epochs"])
    return Cell(file, data, labels, "step-e-plus", seed, **settings | {"options": options})


def screened() -> list[Cell]:
    """One seed, part of the epochs, and no look at the test set; a second seed for what is in doubt."""

    def held_out(name: str, seed: int = TIMED_SEED, **settings: Any) -> Cell:
        settings |= HOLD_OUT | {"preset": None, "variant": name, "epochs": SCREENED_EPOCHS}
        return plus("screen", "cifar100n", "noisy", seed, **settings)

    return [
        *(held_out(name, options=options) for name, options in SCREENED.items()),
        *(held_out(name, SEED_OF_DOUBT, options=SCREENED[name]) for name in IN_DOUBT),
        *(held_out(name, training=training) for name, training in TRAININGS.items()),
    ]


def finalists() -> list[Cell]:
    """What may become the preset, at its full length; still no look at the test set."""
    return [plus("finalists", "cifar100n", "noisy", preset=preset, **HOLD_OUT) for preset in PRESETS]


def final() -> list[Cell]:
    """The frozen preset on the data it was chosen on, and the one that was frozen before it."""
    return [plus("cifar100n", "cifar100n", "noisy", seed, preset=preset) for preset in FROZEN for seed in SEEDS]


def found_out() -> list[Cell]:
    """The frozen preset, not told how many labels are wrong."""
    settings: dict[str, Any] = {"variant": FOUND_OUT, "options": {"rho_max": "auto", "score": "guess"}}
    return [plus("found", data, labels, **settings) for data, labels in HUMAN]


def backbone_screened() -> list[Cell]:
    """Settings for the paper's network and number of epochs; no look at the test set."""
    settings = HOLD_OUT | {"preset": None, "stem": "imagenet", "epochs": PAPER_EPOCHS}
    return [
        plus(
            "backbone-screen", "cifar100n", "noisy", seed, variant=name, options=options, training=training, **settings
        )
        for seed in SEEDS
        for name, (options, training) in BACKBONE_SCREENED.items()
    ]


def ramps_screened() -> list[Cell]:
    """Ramps for where most labels are wrong, with the paper's network, for it is quick; no look at the test set."""
    settings = HOLD_OUT | {"preset": None, "stem": "imagenet", "epochs": PAPER_EPOCHS}

    def options(name: str, rate: float) -> dict[str, Any]:
        purifies, changed = RAMPS[name]
        return USUAL | changed | ({"schedule": partial(purifying, rate)} if purifies else {})

    return [
        plus("ramp-screen", data, labels, variant=name, options=options(name, rate), **settings)
        for data, labels, rate, names in RAMPS_FOR
        for name in names
    ]


def backbone() -> list[Cell]:
    """The paper's network and number of epochs."""
    return [plus("backbone", "cifar100n", "noisy", seed, stem="imagenet", epochs=PAPER_EPOCHS) for seed in SEEDS]


def peers() -> list[Cell]:
    """What others propose, with the paper's network and number of epochs, which are not theirs."""
    return [
        Cell("peers", "cifar100n", "noisy", method, seed, options=options)
        for seed in (TIMED_SEED, *SEEDS[:-1])
        for method, options in PEERS.items()
    ]


def clean() -> list[Cell]:
    """The preset where no label is wrong: what it would reach if it corrected all of them."""
    return [plus("clean", "cifar100", "symmetric:0", stem="imagenet", epochs=PAPER_EPOCHS)]


def aggregated() -> list[Cell]:
    """CIFAR-10N with its mildest labels."""
    return [plus("cifar10n", "cifar10n", "aggre", seed) for seed in SEEDS]


def checked() -> list[Cell]:
    """Data that had no say in the choice, one seed each."""
    return [
        *(plus("cifar10n", "cifar10n", labels) for labels in ("worst", "rand1")),
        *(plus("synthetic", data, noise) for data, kinds in SYNTHETIC.items() for noise in kinds),
        *(plus("cifar10n", "cifar10n", labels) for labels in ("rand2", "rand3")),
    ]


def long() -> list[Cell]:
    """At the peers' budget."""
    return [plus("long", "cifar100n", "noisy", epochs=LONG_EPOCHS)]


PHASES = {
    "screen": screened,
    "finalists": finalists,
    "final": final,
    "found": found_out,
    "backbone-screen": backbone_screened,
    "ramp-screen": ramps_screened,
    "backbone": backbone,
    "peers": peers,
    "clean": clean,
    "aggre": aggregated,
    "check": checked,
    "long": long,
}


def shortened(cell: Cell, epochs: int) -> Cell:
    """The same in fewer epochs, to try it out."""
    share, options = epochs / cell.epochs, dict(cell.options)
    if "ramp_end" in options:
        options["ramp_end"] = round(share * options["ramp_end"])
    warmup = None if cell.warmup is None else max(1, round(share * cell.warmup))
    return replace(cell, epochs=epochs, warmup=warmup, options=options)


def measured(out: Path) -> set[tuple[Any, ...]]:
    """What the result files have."""
    files = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in out.glob("*.json")}
    return {
        (name, *(run.get(field) for field in IDENTITY)) for name, file in files.items() for run in file.get("runs", [])
    }


class Printed(Silent):
    """A line now and then."""

    def __init__(self, name: str):
        self.name, self.started = name, time.perf_counter()

    def epoch_ended(self, training: Training, row: Row) -> None:
        """Where the run stands."""
        if training.epoch % 20 == 0 or training.epoch == training.task.epochs:
            print(
                f"{self.name}: epoch {training.epoch}, {100 * row['test_accuracy']:.2f}, F1 {100 * row['f1']:.1f}, "
                f"AUROC {100 * (row['auroc'] or 0):.1f}, {time.perf_counter() - self.started:.0f} s",
                flush=True,
            )


def cost(bench: Bench, epochs: int = 8) -> Iterator[Row]:
    """Seconds an epoch once everything is dropped that will be, each run alone, against plain training."""
    base = plus("cost", "cifar100n", "noisy", epochs=epochs)
    data = bench.load(base)
    early: dict[str, Any] = {"warmup": 1, "ramp_end": 2}
    variants: list[tuple[str, str, dict[str, Any]]] = [
        ("plain", "baseline", {}),
        ("Step-E", "step-e", early),
        ("Step-E+, the preset", "step-e-plus", early | {"cutmix": PRESETS[PRESET]["cutmix"]}),
        ("Step-E+ without windows", "step-e-plus", early),
        ("Step-E+ without mixup", "step-e-plus", early | {"mixup": 0}),
        ("Step-E+ without averaging", "step-e-plus", early | {"average": 0}),
    ]
    for stem in ("imagenet", "cifar"):
        warm_up(replace(base, stem=stem), data, bench)
        plain = None
        for name, method, options in variants:
            cell = replace(base, stem=stem, method=method, options=options)
            history = job_of(cell, data, Path(), bench, lambda key: Silent(), epochs=epochs).finish().history
            seconds = median(row["seconds"] for row in history[3:])
            plain = plain or seconds
            yield {"stem": stem, "variant": name, "seconds_per_epoch": seconds, "relative_time": seconds / plain}


def name_cost(out: Path) -> None:
    """Write into every run of a preset what it takes beside plain training, where that was measured."""
    if not (out / "cost.json").exists():
        return
    rows = json.loads((out / "cost.json").read_text(encoding="utf-8"))["rows"]
    cost = {(row["stem"], row["variant"]): row["relative_time"] for row in rows}
    for path in out.glob("*.json"):
        report = json.loads(path.read_text(encoding="utf-8"))
        for run in report.get("runs", []):
            if (measured_as := COST_OF.get(run["variant"])) and (run["stem"], measured_as) in cost:
                run["relative_time"] = cost[run["stem"], measured_as]
        write_text(path, json.dumps(report, indent=1) + "\n")


def screen_table(runs: list[Row]) -> str:
    """What was tried, by what it gave on the hold-out."""
    lines = ["| setting | seed | accuracy on the noisy hold-out | against as it is |", "|---|---|---|---|"]
    base = {run["seed"]: run["test_accuracy"] for run in runs if run["variant"] == "as it is"}
    for run in sorted(runs, key=lambda run: (run["seed"] == SEED_OF_DOUBT, -run["test_accuracy"])):
        apart = "" if run["variant"] == "as it is" else f"{run['test_accuracy'] - base[run['seed']]:+.2f}"
        lines.append(f"| {run['variant']} | {run['seed']} | {run['test_accuracy']:.2f} | {apart} |")
    return "\n".join(lines)


def final_table(runs: list[Row]) -> str:
    """A line per seed of a preset, and their mean."""
    measured = ("test_accuracy", "best_test_accuracy", "noise_f1", "noise_precision", "noise_recall", "noise_auroc")
    measured += ("relative_time",)
    lines = [
        "| preset | seed | accuracy, last epoch | best epoch | F1 | precision | recall | AUROC | time, plain = 1 |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for preset in dict.fromkeys(run["variant"] for run in runs):
        mine = [run for run in runs if run["variant"] == preset]
        means = {name: mean(run[name] for run in mine) for name in measured}
        rows = mine + ([{"seed": "mean"} | means] if len(mine) > 1 else [])
        lines += [
            f"| {preset} | {row['seed']} | {' | '.join(f'{row[name]:.2f}' for name in measured)} |" for row in rows
        ]
    return "\n".join(lines)


def finalists_table(runs: list[Row]) -> str:
    """What might have become the preset, by what it gave on the hold-out."""
    lines = ["| preset | accuracy on the noisy hold-out |", "|---|---|"]
    best_first = sorted(runs, key=lambda run: -run["test_accuracy"])
    lines += [f"| {run['variant']} | {run['test_accuracy']:.2f} |" for run in best_first]
    return "\n".join(lines)


def ramps_table(runs: list[Row]) -> str:
    """The ramps of a kind of labels, by what they gave on the hold-out."""
    lines = ["| data | labels | ramp | accuracy on the noisy hold-out |", "|---|---|---|---|"]
    best_first = sorted(runs, key=lambda run: (run["data"], -run["test_accuracy"]))
    named = ("data", "labels", "variant")
    lines += [f"| {' | '.join(run[name] for name in named)} | {run['test_accuracy']:.2f} |" for run in best_first]
    return "\n".join(lines)


def labels_table(runs: list[Row]) -> str:
    """A line per kind of labels, and the mean where there are several seeds."""
    measured = ("test_accuracy", "best_test_accuracy", "noise_f1", "noise_auroc")
    lines = [
        "| data | labels | seeds | accuracy, last epoch | best epoch | F1 | AUROC |",
        "|---|---|---|---|---|---|---|",
    ]
    for data, labels in dict.fromkeys((run["data"], run["labels"]) for run in runs):
        mine = [run for run in runs if (run["data"], run["labels"]) == (data, labels)]
        cells = [f"{mean(run[name] for run in mine):.2f}" for name in measured]
        lines.append(f"| {data} | {labels} | {len(mine)} | {' | '.join(cells)} |")
    return "\n".join(lines)


def synthetic_table(runs: list[Row]) -> str:
    """A line per kind of noise, with what DivideMix publishes for it."""
    lines = [
        "| data | labels | accuracy, last epoch | best epoch | F1 | AUROC | DivideMix, published | ahead |",
        "|---|---|---|---|---|---|---|---|",
    ]
    measured = {(run["data"], run["labels"]): run for run in runs}
    for key in [(data, noise) for data, kinds in SYNTHETIC.items() for noise in kinds]:
        if run := measured.get(key):
            numbers = (run[name] for name in ("test_accuracy", "best_test_accuracy", "noise_f1", "noise_auroc"))
            cells = [*key, *(f"{number:.2f}" for number in numbers)]
            theirs = DIVIDEMIX.get(key)
            cells += ["", ""] if theirs is None else [f"{theirs:.1f}", f"{run['test_accuracy'] - theirs:+.1f}"]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def found_table(runs: list[Row]) -> str:
    """What was found out, beside the truth and what came of it."""
    lines = [
        "| data | labels | true rate | found out | 90% range | accuracy | F1 | AUROC |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for run in runs:
        found = run["noise_rate"]
        cells = [run["data"], run["labels"], f"{run['true_rate']:.3f}", f"{found['rate']:.3f}"]
        cells += [f"{found['low']:.2f} to {found['high']:.2f}"]
        cells += [f"{run[name]:.2f}" for name in ("test_accuracy", "noise_f1", "noise_auroc")]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def cost_table(rows: list[Row]) -> str:
    """Seconds an epoch, and relative to plain training."""
    lines = ["| stem | variant | seconds an epoch | relative to plain training |", "|---|---|---|---|"]
    for row in rows:
        cells = [row["stem"], row["variant"], f"{row['seconds_per_epoch']:.2f}", f"{row['relative_time']:.2f}"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    """Run some phases."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("phases", nargs="+", choices=[*PHASES, "cost"], metavar="phase", help="as above")
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--engine", choices=("resident", "compiled"), default="resident")
    parser.add_argument("--only", nargs="*", help="variants, files or labels to run, instead of all")
    parser.add_argument("--data", nargs="*", help="data sets to run, instead of all")
    parser.add_argument("--seeds", nargs="*", type=int)
    parser.add_argument("--at-once", type=int, help="runs that share the GPU at a time, instead of all")
    parser.add_argument("--epochs", type=int, help="instead of the phase's own, to try it out")
    parser.add_argument("--limit", type=int, help="images, to try it out")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--out", type=Path, default=Path("results/step-e-plus"))
    arguments = parser.parse_args()
    bench = Bench(
        torch.device(arguments.device),
        arguments.data_dir,
        train_limit=arguments.limit,
        test_limit=arguments.limit,
        checkpoint_every=0,
        fleet_engine=arguments.engine,
        at_once=arguments.at_once,
    )
    if "cost" in arguments.phases:
        if len(arguments.phases) > 1:
            parser.error("cost is measured with nothing beside it: give it alone")
        rows = list(cost(bench))
        report = {"rows": rows, "environment": describe_environment(device=arguments.device)}
        write_text(arguments.out / "cost.json", json.dumps(report, indent=1) + "\n")
        for row in rows:
            print(row)
        name_cost(arguments.out)
        return
    there = measured(arguments.out)
    cells = [
        cell
        for phase in arguments.phases
        for cell in (shortened(cell, arguments.epochs or cell.epochs) for cell in PHASES[phase]())
        if (not arguments.only or {cell.variant, cell.file, cell.labels} & set(arguments.only))
        and (not arguments.data or cell.data in arguments.data)
        and (not arguments.seeds or cell.seed in arguments.seeds)
        and (cell.file, *cell.describe().values()) not in there
    ]
    carry_out(cells, arguments.out, bench, Printed)
    name_cost(arguments.out)


if __name__ == "__main__":
    main()
