"""How well a run finds out the noise rate, and what it costs not to know it. Writes results/noise-rate.json.

Each row: Step-E+ with `rho_max="auto", warmup="auto", probe="auto"` on data with planted noise, beside the same with
the known rate; on clean labels, beside plain training. A fifth of the samples, their labels untouched, is held out for
the accuracy. CIFAR-N, with its human noise, comes from the runs of benchmarks/step_e_plus.py; its test is clean.
A row is written as soon as it is there, and an interrupted grid goes on where it stopped.

    STEPE_DATA=DATA python benchmarks/noise_rate.py [--seeds 10] [--first-seed 0] [--processes 2] [--only digits]
"""

import json
import statistics
from pathlib import Path

import torch
from planted import SOURCES, Key, Row, grid_keys, grid_options, load, measure_grid

from stepe.run.environment import commit
from stepe.run.record import Summary

NOISES = (
    "none",
    *(f"symmetric:{rate}" for rate in (0.1, 0.2, 0.4, 0.6)),
    *(f"{kind}:{rate}" for kind in ("asymmetric", "instance") for rate in (0.2, 0.4)),
)
STUDY = Path("results/step-e-plus")
"""human noise: a GPU trains its runs, the rate found out and known, for the study of Step-E+"""


def measure(key: Key) -> Row:
    torch.set_num_threads(1)
    name, noise, seed = key
    case = load(name)
    divided = case.divided(noise, seed)
    rate = float(divided.noisy.double().mean())
    data = divided.x, divided.labels, seed
    found = case.clean(*data, test=divided.test, rho_max="auto", warmup="auto")
    if noise == "none":
        known = case.train(*data, test=divided.test, method="plain")
    else:
        known = case.clean(*data, test=divided.test, noise_rate=rate)
    return row_of(key, rate, found.summary, known.summary)


def row_of(key: Key, rate: float, found: Summary, known: Summary) -> Row:
    name, noise, seed = key
    estimate = found.noise_rate
    return {
        "data": name,
        "noise": noise,
        "seed": seed,
        "true_rate": rate,
        "estimate": estimate.rate,
        "low": estimate.low,
        "high": estimate.high,
        "dropped": found.dropped / found.samples,
        "flagged": found.flagged / found.samples,
        "accuracy_auto": found.test_accuracy,
        "accuracy_known": known.test_accuracy,
        "probe": found.probe.reach,
        "warmup": found.warmup,
        "seconds": found.seconds,
        "commit": commit(),  # a grid may be interrupted, and go on with another
    }


def human_rows(study: Path = STUDY) -> list[Row]:
    """CIFAR-N, from the runs of the study that found the rate out, beside those that were told it."""
    runs = [run for name in ("cifar100n", "cifar10n", "found") for run in read(study / f"{name}.json")]
    known = {(run["data"], run["labels"], run["seed"], run["variant"]): run["test_accuracy"] for run in runs}
    rows = []
    for run in runs:
        told, found_out, _ = run["variant"].partition(", rate found out")
        accuracy = known.get((run["data"], run["labels"], run["seed"], told))
        if not found_out or accuracy is None:
            continue
        rows.append(
            {
                "data": run["data"],
                "noise": run["labels"],
                "seed": run["seed"],
                "true_rate": run["true_rate"],
                "estimate": run["noise_rate"]["rate"],
                "low": run["noise_rate"]["low"],
                "high": run["noise_rate"]["high"],
                "dropped": run["history"][-1]["drop_fraction"],
                "accuracy_auto": run["test_accuracy"] / 100,
                "accuracy_known": accuracy / 100,
                "probe": "in-sample",
                "commit": run["commit"],
            }
        )
    return rows


def read(path: Path) -> list[Row]:
    return json.loads(path.read_text(encoding="utf-8"))["runs"] if path.exists() else []


def key_of(row: Row) -> Key:
    return row["data"], row["noise"], row["seed"]


def table(rows: list[Row]) -> str:
    lines = [
        "| data | noise | n | true rate | estimate | off by | covered | dropped | auto | known | difference |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    groups = sorted({(row["data"], row["noise"]) for row in rows}, key=_in_order)
    for group in [*groups, *((data, None) for data in dict.fromkeys(data for data, _ in groups))]:
        mine = [row for row in rows if row["data"] == group[0] and group[1] in (None, row["noise"])]
        apart = [100 * (row["accuracy_auto"] - row["accuracy_known"]) for row in mine]
        error = statistics.stdev(apart) / len(apart) ** 0.5 if len(apart) > 1 else float("nan")
        cells = [
            group[0],
            group[1] or "all",
            str(len(mine)),
            f"{_mean(mine, 'true_rate'):.3f}",
            f"{_mean(mine, 'estimate'):.3f}",
            f"{statistics.mean(abs(row['estimate'] - row['true_rate']) for row in mine):.3f}",
            f"{statistics.mean(row['low'] <= row['true_rate'] <= row['high'] for row in mine):.0%}",
            f"{_mean(mine, 'dropped'):.3f}",
            f"{100 * _mean(mine, 'accuracy_auto'):.1f}",
            f"{100 * _mean(mine, 'accuracy_known'):.1f}",
            f"{statistics.mean(apart):+.1f} ± {error:.1f}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _in_order(group: tuple[str, str]) -> tuple[int, int, str]:
    """As the grid has them, then human noise."""
    data, noise = group
    planted = noise in NOISES
    return [*SOURCES, data].index(data), NOISES.index(noise) if planted else len(NOISES), f"{data} {noise}"


def _mean(rows: list[Row], name: str) -> float:
    return statistics.mean(row[name] for row in rows)


def main() -> None:
    arguments = grid_options(__doc__, Path("results/noise-rate.json")).parse_args()
    keys = grid_keys(arguments, [(data, noise) for data in SOURCES for noise in NOISES])
    print(table(measure_grid(arguments, keys, measure, key_of, human_rows())))


if __name__ == "__main__":
    main()
