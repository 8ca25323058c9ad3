"""Networks under the belief that judges without a network are held to: what it gives them, beside the rules before it.

Each row is one run of Step-E+ as `stepe clean --method step-e-plus` trains it: who judges, and how much is dropped, are
found out. A fifth of the samples, their labels untouched, is held out for the accuracy. Two versions of the code are
measured by the same script, each told by PYTHONPATH and `--version`:

    STEPE_DATA=DATA PYTHONPATH=OLD/src python benchmarks/networks.py --version before
    STEPE_DATA=DATA PYTHONPATH=src python benchmarks/networks.py --version now [--seeds 3] [--only digits]

Writes results/networks.json, row by row, and goes on where it stopped. Settings were chosen on seeds from 100 on.
"""

import json
import statistics
from pathlib import Path

import torch
from planted import Key, Row, grid_keys, grid_options, load, measure_grid

from stepe import Truth
from stepe.loop.metrics import auroc
from stepe.run.environment import commit

SETTINGS = [
    *(("digits", noise) for noise in ("symmetric:0.2", "symmetric:0.4", "asymmetric:0.2", "none")),
    *((data, noise) for data in ("text", "table") for noise in ("symmetric:0.2", "asymmetric:0.2", "none")),
]
MEASURED = ("accuracy", "f1", "auroc")
VERSIONS = ("before", "now")


def measure(key: Key) -> Row:
    """One run."""
    torch.set_num_threads(1)
    name, noise, version, seed = key
    case = load(name)
    data = case.divided(noise, seed)
    result = case.clean(data.x, data.labels, seed, test=data.test, truth=Truth(data.noisy), rho_max="auto")
    summary = result.summary
    return {
        "data": name,
        "noise": noise,
        "version": version,
        "seed": seed,
        "commit": commit(),
        "accuracy": summary.test_accuracy,
        "f1": summary.noise.flagged.f1 if data.noisy.any() else None,
        "auroc": auroc(1 - result.belief.p_right, data.noisy),
        "true_rate": float(data.noisy.double().mean()),
        "noise_rate": summary.noise_rate.rate,
        "low": summary.noise_rate.low,
        "high": summary.noise_rate.high,
        "rho_max": summary.rho_max,
        "flagged": summary.flagged / summary.samples,
        "probe": summary.probe.reach,
        "seconds": summary.seconds,
    }


def key_of(row: Row) -> Key:
    """What tells rows apart."""
    return row["data"], row["noise"], row["version"], row["seed"]


def table(rows: list[Row]) -> str:
    """Means over the seeds that both versions have, how far the new one is ahead, and what share is flagged."""
    found = {key_of(row): row for row in rows}
    lines = [
        "| data | noise | n | accuracy before | now | ahead | F1 before | now | ahead | AUROC before | now | ahead "
        "| flagged before | now |",
        f"|{'---|' * 14}",
    ]
    for setting in [*SETTINGS, ("all", "")]:
        pairs = [
            (row, found[data, noise, "now", seed])
            for (data, noise, version, seed), row in found.items()
            if version == "before" and setting in ((data, noise), ("all", "")) and (data, noise, "now", seed) in found
        ]
        if not pairs:
            continue
        cells = [*setting, str(len(pairs))]
        for what in MEASURED:
            known = [(one[what], other[what]) for one, other in pairs if None not in (one[what], other[what])]
            cells += _compared(known) if known else ["-"] * 3
        cells += [f"{statistics.mean(row['flagged'] for row in rows):.3f}" for rows in zip(*pairs, strict=True)]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _compared(pairs: list[tuple[float, float]]) -> list[str]:
    ahead = [now - before for before, now in pairs]
    error = statistics.stdev(ahead) / len(ahead) ** 0.5 if len(ahead) > 1 else float("nan")
    worse = " (worse)" if statistics.mean(ahead) < -2 * error else ""
    means = [f"{statistics.mean(values):.3f}" for values in zip(*pairs, strict=True)]
    return [*means, f"{statistics.mean(ahead):+.3f} ± {error:.3f}{worse}"]


def main() -> None:
    """Measure what is missing, and print the table."""
    parser = grid_options(__doc__, Path("results/networks.json"))
    parser.set_defaults(seeds=3, processes=1)
    parser.add_argument("--version", choices=VERSIONS, required=True, help="which code PYTHONPATH names")
    arguments = parser.parse_args()
    settings = [(*setting, arguments.version) for setting in SETTINGS]
    keys = grid_keys(arguments, settings)
    measure_grid(arguments, keys, measure, key_of)
    print(table(json.loads(arguments.out.read_text(encoding="utf-8"))["rows"]))


if __name__ == "__main__":
    main()
