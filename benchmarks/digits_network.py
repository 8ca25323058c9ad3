"""Choose the network for the bundled digits on a hold-out. Writes results/digits-network.json.

A fifth of the *training* part is held out anew for every seed; the test part is never read. What is wanted is a
network that does not learn wrong labels by heart within the warm-up: high accuracy of Step-E on the hold-out and
losses that tell the noise apart at 40% noise, and few false flags at 2%.

    python benchmarks/digits_network.py [--seeds 8] [--processes 2] [--out results/digits-network.json]
"""

import argparse
import json
import multiprocessing
import statistics
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import torch

import stepe
from stepe.app.networks import Tuning
from stepe.data.noise import Noise
from stepe.data.source import digits
from stepe.loop.draws import Draws
from stepe.loop.randomness import Stream, seeded
from stepe.models.mlp import MLP
from stepe.training.environment import describe_environment

NOISES = (Noise("symmetric", 0.4), Noise("symmetric", 0.02))
# Seeds of the choice are other seeds than those of the final measurement.
FIRST_SEED = 1000

FAST = Tuning(hidden=(256, 256), dropout=0.0, learning_rate=0.05, batch_size=128, weight_decay=5e-4)
SLOW = replace(FAST, hidden=(512, 512), dropout=0.5)
DEEP = replace(SLOW, hidden=(512, 512, 512))
CANDIDATES = [
    FAST,
    replace(FAST, dropout=0.3),
    replace(FAST, dropout=0.5),
    *(replace(SLOW, dropout=dropout) for dropout in (0.3, 0.5, 0.6, 0.7)),
    *(replace(SLOW, learning_rate=rate) for rate in (0.02, 0.1)),
    replace(SLOW, weight_decay=2e-3),
    replace(SLOW, dropout=0.7, learning_rate=0.1),
    replace(SLOW, hidden=(1024, 512)),
    *(replace(DEEP, dropout=dropout) for dropout in (0.4, 0.5, 0.6)),
    replace(DEEP, learning_rate=0.02),
]


def measure(job: tuple[Tuning, Noise, int]) -> dict[str, object]:
    preset, noise, seed = job
    torch.set_num_threads(1)
    source = digits()
    order = Draws.named(seed, "hold-out").shuffle(np.arange(len(source.labels)))
    held_out, rest = order[: len(order) // 5], order[len(order) // 5 :]
    planted = noise.plant(source.x[rest], source.labels[rest], source.classes, seed)
    with seeded(Stream.named(seed, "init")):
        model = MLP(64, source.classes, preset.hidden, preset.dropout)
    summary = stepe.fit(
        model,
        planted.x,
        planted.labels,
        epochs=preset.epochs,
        noise_rate=noise.rate,
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
        "noise": f"{noise.kind}:{noise.rate}",
        "seed": seed,
        "hold_out_accuracy": summary.test_accuracy,
        "dropped_f1": summary.noise.dropped.f1,
        "flagged_precision": summary.noise.flagged.precision,
        "flagged_recall": summary.noise.flagged.recall,
        "auroc": summary.noise.auroc,
        "seconds": summary.seconds,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("results/digits-network.json"))
    arguments = parser.parse_args()
    seeds = range(FIRST_SEED, FIRST_SEED + arguments.seeds)
    jobs = [(preset, noise, seed) for preset in CANDIDATES for noise in NOISES for seed in seeds]
    with multiprocessing.get_context("spawn").Pool(arguments.processes) as pool:
        rows = pool.map(measure, jobs, chunksize=1)
    for start in range(0, len(rows), arguments.seeds):
        mine = rows[start : start + arguments.seeds]
        preset, noise, _ = jobs[start]
        figures = {
            key: statistics.mean(row[key] for row in mine)
            for key in ("hold_out_accuracy", "dropped_f1", "flagged_precision", "flagged_recall", "auroc", "seconds")
        }
        changed = {key: value for key, value in asdict(preset).items() if value != getattr(FAST, key)}
        print(noise.rate, " ".join(f"{key} {value:.4f}" for key, value in figures.items()), changed, flush=True)
    result = {"rows": rows, "environment": describe_environment()}
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
