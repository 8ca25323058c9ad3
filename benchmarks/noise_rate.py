"""How well a run finds out the noise rate, and what it costs not to know it. Writes results/noise-rate.json.

Each row: Step-E+ with `rho_max="auto", warmup="auto", probe="auto"` on data with planted noise, beside the same with
the known rate; on clean labels, beside plain training. A fifth of the samples, their labels untouched, is held out for
the accuracy. Where there is a GPU, also CIFAR-N with its human noise, as `stepe clean` trains it; its test is clean.
A row is written as soon as it is there, and an interrupted grid goes on where it stopped.

    STEPE_DATA=DATA python benchmarks/noise_rate.py [--seeds 10] [--first-seed 0] [--processes 2] [--only digits]
"""

import statistics
import tempfile
from pathlib import Path
from typing import Any

import torch
from planted import SOURCES, Key, Row, grid_keys, grid_options, load, measure_grid

import stepe

NOISES = (
    "none",
    *(f"symmetric:{rate}" for rate in (0.1, 0.2, 0.4, 0.6)),
    *(f"{kind}:{rate}" for kind in ("asymmetric", "instance") for rate in (0.2, 0.4)),
)
HUMAN = ("cifar10n:aggre", "cifar10n:rand1", "cifar10n:worst", "cifar100n")


def measure(key: Key) -> Row:
    torch.set_num_threads(1)
    return measure_human(key) if key[0] in HUMAN else measure_planted(key)


def measure_human(key: Key) -> Row:
    data, _, seed = key
    with tempfile.TemporaryDirectory() as folder:

        def train(name: str, **options: Any) -> Row:
            run = stepe.clean(
                data, seed=seed, device="cuda", probe="auto", compare=False, out=Path(folder, name), **options
            )
            return run.summary

        found = train("auto", rho_max="auto", warmup="auto")
        known = train("known")
    return row_of(key, found["noise"]["noisy"] / found["samples"], found, known)


def measure_planted(key: Key) -> Row:
    name, noise, seed = key
    case = load(name)
    source = case.plant(noise, seed)
    assert source.truth is not None
    held_out, rest = case.held_out(seed)
    rate = float(source.truth.noisy[rest].double().mean())
    test = case.source.x[held_out], case.source.labels[held_out]

    data = source.x[rest], source.labels[rest], seed
    found = case.clean(*data, test=test, rho_max="auto", warmup="auto")
    if noise == "none":
        known = case.train(*data, test=test, method="plain")
    else:
        known = case.clean(*data, test=test, noise_rate=rate)
    return row_of(key, rate, found.summary, known.summary)


def row_of(key: Key, rate: float, found: Row, known: Row) -> Row:
    name, noise, seed = key
    estimate = found["noise_rate"]
    return {
        "data": name,
        "noise": noise,
        "seed": seed,
        "true_rate": rate,
        "estimate": estimate["rate"],
        "low": estimate["low"],
        "high": estimate["high"],
        "unrelated": estimate["unrelated"],
        "dropped": found["dropped"] / found["samples"],
        "flagged": found["flagged"] / found["samples"],
        "accuracy_auto": found["test_accuracy"],
        "accuracy_known": known["test_accuracy"],
        "probe": found["probe"]["reach"],
        "warmup": found["warmup"],
        "seconds": found["seconds"],
    }


def key_of(row: Row) -> Key:
    return row["data"], row["noise"], row["seed"]


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


def main() -> None:
    arguments = grid_options(__doc__, Path("results/noise-rate.json")).parse_args()
    human = [(data, "human") for data in HUMAN] if torch.cuda.is_available() else []
    keys = grid_keys(arguments, [*((data, noise) for data in SOURCES for noise in NOISES), *human])
    print(table(measure_grid(arguments, keys, measure, key_of)))


if __name__ == "__main__":
    main()
