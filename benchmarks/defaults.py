"""Step-E+ beside Step-E where nothing can be augmented: what `stepe clean` does by default must not be worse.

Both find everything out for themselves (`rho_max`, `warmup` and `probe` are "auto"). A fifth of the samples, their
labels untouched, is held out for the accuracy. Writes results/defaults.json, row by row, and goes on where it stopped.

    STEPE_DATA=DATA python benchmarks/defaults.py [--seeds 10] [--first-seed 0] [--processes 2] [--only digits]
"""

import json
import statistics
from functools import partial
from pathlib import Path
from typing import Any

import torch
from planted import SOURCES, Key, Row, grid_keys, grid_options, load, measure_grid

from stepe import Truth
from stepe.run.environment import commit

NOISES = ("none", "symmetric:0.2", "symmetric:0.4", "asymmetric:0.2", "asymmetric:0.4", "instance:0.4")
SETTINGS = [*((data, "own") for data in SOURCES), ("digits", "batchnorm")]
MEASURED = ("accuracy", "f1", "auroc")


def measure(key: Key, plus: dict[str, Any]) -> Row:
    """One row; ``plus`` are further options of Step-E+."""
    torch.set_num_threads(1)
    name, model, noise, seed = key
    case = load(name, model)
    data = case.divided(noise, seed)
    row: Row = {"data": name, "model": model, "noise": noise, "seed": seed, "commit": commit()}
    for method, options in (("step-e", {}), ("step-e-plus", plus)):
        summary = case.clean(
            data.x,
            data.labels,
            seed,
            test=data.test,
            truth=Truth(data.noisy),
            method=method,
            rho_max="auto",
            warmup="auto",
            **options,
        ).summary
        row[method] = {
            "accuracy": summary.test_accuracy,
            "f1": summary.noise.flagged.f1,
            "auroc": summary.noise.auroc,
            "noise_rate": summary.noise_rate.rate,
            "flagged": summary.flagged / summary.samples,
            "probe": summary.probe.reach,
            "seconds": summary.seconds,
        }
    return row


def key_of(row: Row) -> Key:
    """What tells rows apart."""
    return row["data"], row["model"], row["noise"], row["seed"]


def table(rows: list[Row]) -> str:
    """Means over the seeds, and how far Step-E+ is ahead."""
    lines = [
        "| data | model | noise | n | accuracy Step-E | Step-E+ | ahead | F1 Step-E | Step-E+ | ahead "
        "| AUROC Step-E | Step-E+ | ahead |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    every = [(*setting, noise) for setting in SETTINGS for noise in NOISES]
    measured = {key_of(row)[:-1] for row in rows}
    for group in [*(group for group in every if group in measured), ("all", "", "")]:
        mine = [row for row in rows if group[0] == "all" or key_of(row)[:-1] == group]
        cells = [*group, str(len(mine))]
        for what in MEASURED:
            pairs = [(row["step-e"][what], row["step-e-plus"][what]) for row in mine]
            known = [(one, other) for one, other in pairs if one is not None and other is not None]
            cells += _compared(known) if known else ["-"] * 3
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _compared(pairs: list[tuple[float, float]]) -> list[str]:
    ahead = [other - one for one, other in pairs]
    error = statistics.stdev(ahead) / len(ahead) ** 0.5 if len(ahead) > 1 else float("nan")
    worse = " (worse)" if statistics.mean(ahead) < -2 * error else ""
    means = [f"{statistics.mean(values):.4f}" for values in zip(*pairs, strict=True)]
    return [*means, f"{statistics.mean(ahead):+.4f} ± {error:.4f}{worse}"]


def main() -> None:
    """Measure what is missing, and print the table."""
    parser = grid_options(__doc__, Path("results/defaults.json"))
    parser.add_argument(
        "--options", type=json.loads, default={}, help="of Step-E+, as JSON, to try out in another --out"
    )
    arguments = parser.parse_args()
    settings = [(*setting, noise) for setting in SETTINGS for noise in NOISES]
    keys = grid_keys(arguments, settings, most_seeds=lambda data: arguments.seeds)
    print(table(measure_grid(arguments, keys, partial(measure, plus=arguments.options), key_of)))


if __name__ == "__main__":
    main()
