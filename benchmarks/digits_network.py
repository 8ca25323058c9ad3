"""Choose the network for the bundled digits on a hold-out. Writes results/digits-network.json.

A fifth of the *training* part is held out anew for every seed; the test part is never read. What is wanted is a
network that does not learn wrong labels by heart within the warm-up: high accuracy of Step-E on the hold-out, and
losses that tell the noise apart.

    python benchmarks/digits_network.py [--seeds 8] [--processes 2] [--out results/digits-network.json]
"""

import argparse
import json
import multiprocessing
import statistics
from dataclasses import asdict, replace
from pathlib import Path

import torch

import stepe
from stepe.data.noise import Noise
from stepe.data.source import digits
from stepe.environment import describe_environment
from stepe.models.mlp import MLP
from stepe.randomness import Stream, seeded
from stepe.recipes.clean import Preset

NOISE = Noise("symmetric", 0.4)
# Seeds of the choice are other seeds than those of the final measurement.
FIRST_SEED = 1000

FAST = Preset(hidden=(256, 256), dropout=0.0, learning_rate=0.05, batch_size=128, weight_decay=5e-4)
SLOW = replace(FAST, hidden=(512, 512), dropout=0.5)
CANDIDATES = [
    *(replace(FAST, dropout=dropout) for dropout in (0.0, 0.2, 0.3, 0.5, 0.6, 0.7)),
    replace(FAST, hidden=(512,), dropout=0.3),
    *(replace(SLOW, dropout=dropout) for dropout in (0.3, 0.5, 0.6, 0.7, 0.75, 0.8)),
    *(replace(SLOW, learning_rate=rate) for rate in (0.02, 0.1, 0.2)),
    *(replace(SLOW, weight_decay=decay) for decay in (2e-3, 5e-3)),
    *(replace(SLOW, hidden=hidden) for hidden in ((1024,), (1024, 512), (512, 512, 512))),
    replace(SLOW, batch_size=64),
    replace(SLOW, batch_size=64, learning_rate=0.02),
    replace(SLOW, batch_size=256, learning_rate=0.1),
    replace(SLOW, dropout=0.7, learning_rate=0.1),
    replace(SLOW, dropout=0.7, batch_size=64),
    replace(SLOW, dropout=0.7, hidden=(1024, 1024)),
    replace(SLOW, dropout=0.7, hidden=(1024, 512)),
    replace(SLOW, dropout=0.6, hidden=(512, 512, 512)),
]


def measure(job: tuple[Preset, int]) -> dict[str, object]:
    preset, seed = job
    torch.set_num_threads(1)
    source = digits()
    order = Stream.named(seed, "hold-out").shuffle(torch.arange(len(source.labels)))
    held_out, rest = order[: len(order) // 5], order[len(order) // 5 :]
    planted = NOISE.plant(source.x[rest], source.labels[rest], source.classes, seed)
    with seeded(Stream.named(seed, "init")):
        model = MLP(64, source.classes, preset.hidden, preset.dropout)
    summary = stepe.fit(
        model,
        planted.x,
        planted.labels,
        epochs=preset.epochs,
        noise_rate=NOISE.rate,
        test=(source.x[held_out], source.labels[held_out]),
        truth=stepe.Truth(planted.noisy),
        batch_size=preset.batch_size,
        learning_rate=preset.learning_rate,
        weight_decay=preset.weight_decay,
        seed=seed,
        device="cpu",
    ).summary
    return {
        **asdict(preset),
        "seed": seed,
        "hold_out_accuracy": summary["test_accuracy"],
        "dropped_f1": summary["noise"]["dropped"]["f1"],
        "flagged_f1": summary["noise"]["flagged"]["f1"],
        "auroc": summary["noise"]["auroc"],
        "seconds": summary["seconds"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("results/digits-network.json"))
    arguments = parser.parse_args()
    seeds = range(FIRST_SEED, FIRST_SEED + arguments.seeds)
    with multiprocessing.get_context("spawn").Pool(arguments.processes) as pool:
        rows = pool.map(measure, [(preset, seed) for preset in CANDIDATES for seed in seeds], chunksize=1)
    for position, preset in enumerate(CANDIDATES):
        mine = rows[position * arguments.seeds : (position + 1) * arguments.seeds]
        figures = {
            key: statistics.mean(row[key] for row in mine)
            for key in ("hold_out_accuracy", "dropped_f1", "flagged_f1", "auroc", "seconds")
        }
        changed = {key: value for key, value in asdict(preset).items() if value != getattr(FAST, key)}
        print(" ".join(f"{key} {value:.4f}" for key, value in figures.items()), changed or "as it is", flush=True)
    result = {"rows": rows, "environment": describe_environment()}
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
