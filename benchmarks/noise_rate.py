"""How well a run finds out the noise rate, and what it costs not to know it. Writes results/noise-rate.json.

Each row: `rho_max="auto", warmup="auto", probe="auto"` on data with planted noise, beside the same with the known rate;
on clean labels, beside plain training. A fifth of the samples, their labels untouched, is held out for the accuracy.
A row is written as soon as it is there, and an interrupted grid goes on where it stopped.

    STEPE_DATA=DATA python benchmarks/noise_rate.py [--seeds 10] [--first-seed 0] [--processes 2] [--only digits]
"""

import argparse
import json
import multiprocessing
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import torch
from planted import GRID, TABLE, load, packages_path, plant, train

from stepe.environment import describe_environment
from stepe.files import write_text
from stepe.randomness import Stream

NETWORKS = {"digits": "mlp", "features": "mlp", "text": "bag", "table": "tabular"}
NOISES = (
    "none",
    *(f"symmetric:{rate}" for rate in (0.1, 0.2, 0.4, 0.6)),
    *(f"{kind}:{rate}" for kind in ("asymmetric", "instance") for rate in (0.2, 0.4)),
)
HOLD_OUT = 0.2

Row = dict[str, Any]
Key = tuple[str, str, int]


def measure(key: Key) -> Row:
    torch.set_num_threads(1)
    name, noise, seed = key
    data = load(name, NETWORKS[name])
    preset, _ = GRID[name, NETWORKS[name]]
    order = Stream.named(seed, "hold-out").shuffle(torch.arange(len(data.labels)))
    held_out, rest = order[: round(HOLD_OUT * len(order))], order[round(HOLD_OUT * len(order)) :]
    clean = noise == "none"
    x, given, noisy = data.x, data.labels, torch.zeros(len(order), dtype=torch.bool)
    if not clean:
        x, given, noisy = plant(data, noise, seed)
    rate = float(noisy[rest].double().mean())

    def accuracy(**options: Any) -> tuple[float, Row]:
        test = data.x[held_out], data.labels[held_out]
        summary = train(data, x[rest], given[rest], preset, seed, test=test, **options).summary
        return summary["test_accuracy"], summary

    started = time.perf_counter()
    auto, found = accuracy(method="step-e", rho_max="auto", warmup="auto", probe="auto")
    seconds = time.perf_counter() - started
    known, _ = accuracy(method="plain") if clean else accuracy(method="step-e", noise_rate=rate, probe="auto")
    estimate = found["noise_rate"]
    return {
        "data": name,
        "noise": noise,
        "seed": seed,
        "true_rate": rate,
        "estimate": estimate["rate"],
        "low": estimate["low"],
        "high": estimate["high"],
        "dropped": found["dropped"] / found["samples"],
        "flagged": found["flagged"] / found["samples"],
        "accuracy_auto": auto,
        "accuracy_known": known,
        "probe": found["probe"]["reach"],
        "warmup": found["warmup"],
        "seconds": seconds,
    }


def jobs(seeds: range, only: list[str]) -> list[Key]:
    """Seed by seed, so that an unfinished grid says something about everything."""
    keys = [
        (data, noise, seed)
        for seed in seeds
        for data, model in NETWORKS.items()
        for noise in NOISES
        if seed - seeds.start < GRID[data, model][1]
    ]
    return [key for key in keys if all(any(part.startswith(word) for part in key[:2]) for word in only)]


def table(rows: list[Row]) -> str:
    lines = [
        "| data | noise | n | true rate | estimate | off by | covered | dropped | auto | known | difference |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    groups = dict.fromkeys((row["data"], row["noise"]) for row in rows)
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


def _mean(rows: list[Row], name: str) -> float:
    return statistics.mean(row[name] for row in rows)


def key_of(row: Row) -> Key:
    return row["data"], row["noise"], row["seed"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10, help="text and table have 5 at most")
    parser.add_argument("--first-seed", type=int, default=0, help="settings are chosen on other seeds than measured")
    parser.add_argument("--only", nargs="*", default=[], help="rows whose data or noise begin like this")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("results/noise-rate.json"))
    arguments = parser.parse_args()
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    stored = json.loads(arguments.out.read_text(encoding="utf-8"))["rows"] if arguments.out.exists() else []
    rows = {key_of(row): row for row in stored}
    seeds = range(arguments.first_seed, arguments.first_seed + arguments.seeds)
    wanted = jobs(seeds, arguments.only)
    if any(data in ("text", "table") for data, *_ in wanted) and not packages_path().exists():
        parser.error(f"set STEPE_DATA to the folder that holds {TABLE}, or choose other rows with --only")
    with multiprocessing.get_context("spawn").Pool(arguments.processes) as pool:
        open_jobs = [key for key in wanted if key not in rows]
        for done, row in enumerate(pool.imap_unordered(measure, open_jobs), start=1):
            rows[key_of(row)] = row
            result = {"rows": list(rows.values()), "environment": describe_environment()}
            write_text(arguments.out, json.dumps(result, indent=1) + "\n")
            print(f"{done}/{len(open_jobs)} {' '.join(map(str, key_of(row)))}", file=sys.stderr)
    print(table([rows[key] for key in wanted]))


if __name__ == "__main__":
    main()
