"""Every method on digits with planted noise, on a slow network and on one that memorises. Writes results/peers.json.

All of them train the same network for the same epochs and are told how many labels are wrong; the settings of peers are
their papers', at our budget. A fifth of the samples, their labels untouched, is held out for the accuracy.

    python benchmarks/peers.py [--seeds 10] [--processes 2] [--only batchnorm]
"""

import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from planted import Case, Key, Row, grid_keys, grid_options, load, measure_grid

import stepe
from stepe import Truth
from stepe.methods import EVERY_METHOD, METHODS, Method
from stepe.run.environment import commit
from stepe.training.building import Result
from stepe.training.prune import prune

NOISES = ("symmetric:0.4", "asymmetric:0.4")
MODELS = ("own", "batchnorm")
JUDGED = ("step-e", "step-e-plus")
"""find out who should judge their samples, as `stepe clean` has them do"""
FOR_PATTERNS: dict[str, dict[str, Any]] = {"elr": {"strength": 1.0, "memory": 0.9}}
"""what papers set otherwise for noise with a pattern"""


def train(case: Case, name: str, data: tuple[Any, ...], pattern: bool, **options: Any) -> Result:
    """One method; ``data`` are inputs, labels and the seed."""
    if name in METHODS:
        options |= {"method": name} | (FOR_PATTERNS.get(name, {}) if pattern else {})
        return case.clean(*data, **options) if name in JUDGED else case.train(*data, **options)
    x, y, seed = data

    def training(**options: Any) -> Callable[[Method], Result]:
        return lambda by: stepe.fit(case.untrained(seed), x, y, method=by, seed=seed, **case.budget(), **options)

    measured = {name: options.pop(name) for name in ("test", "truth") if name in options}
    return prune(training(**options, **measured), y, seed=seed, judge=training(**options))


def measure(key: Key) -> Row:
    """All methods on the same noise."""
    torch.set_num_threads(1)
    name, model, noise, seed = key
    case = load(name, model)
    data = case.divided(noise, seed)
    row: Row = {"data": name, "model": model, "noise": noise, "seed": seed, "commit": commit(), "methods": {}}
    for method in EVERY_METHOD:
        summary = train(
            case,
            method,
            (data.x, data.clean if method == "oracle" else data.labels, seed),
            pattern=not noise.startswith("symmetric"),
            test=data.test,
            truth=Truth(data.noisy),
            noise_rate=float(data.noisy.double().mean()),
        ).summary
        row["methods"][method] = {
            "accuracy": summary.test_accuracy,
            "best_accuracy": summary.best_test_accuracy,
            "auroc": None if method == "oracle" else summary.noise.auroc,
            "seconds": summary.seconds,
        }
    return row


def key_of(row: Row) -> Key:
    """What tells rows apart."""
    return row["data"], row["model"], row["noise"], row["seed"]


def table(rows: list[Row]) -> str:
    """Means over the seeds: accuracy in the last epoch, AUROC of the labels' ranking, time beside plain training."""
    measured = {(row["model"], row["noise"]) for row in rows}
    settings = [(model, noise) for model in MODELS for noise in NOISES if (model, noise) in measured]
    heads = [f"{model}, {noise}" for model, noise in settings]
    lines = [
        f"| method | {' | '.join(f'{head} | AUROC' for head in heads)} | time |",
        "|---" * (2 + 2 * len(heads)) + "|",
    ]
    for method in EVERY_METHOD:
        cells = []
        for model, noise in settings:
            mine = [row["methods"][method] for row in rows if (row["model"], row["noise"]) == (model, noise)]
            accuracies = [100 * each["accuracy"] for each in mine]
            spread = f" ± {statistics.stdev(accuracies):.1f}" if len(mine) > 1 else ""
            cells.append(f"{statistics.mean(accuracies):.1f}{spread}")
            ranked = [each["auroc"] for each in mine if each["auroc"] is not None]
            cells.append(f"{statistics.mean(ranked):.3f}" if ranked else "")
        times = [row["methods"][method]["seconds"] / row["methods"]["plain"]["seconds"] for row in rows]
        lines.append(f"| {method} | {' | '.join(cells)} | {statistics.mean(times):.1f} |")
    return "\n".join(lines)


def main() -> None:
    """Measure what is missing, and print the table."""
    parser = grid_options(__doc__, Path("results/peers.json"))
    arguments = parser.parse_args()
    settings = [("digits", model, noise) for model in MODELS for noise in NOISES]
    print(table(measure_grid(arguments, grid_keys(arguments, settings), measure, key_of)))


if __name__ == "__main__":
    main()
