"""Selection of ten million scores against a bare numpy.argpartition of the same array, in time and memory.

The scores are float32, one in a thousand of them NaN. Times are the best of several, taken in turns. Memory is how far
a fresh process that already holds the scores rises above them, the result included. The targets are a ratio of at
most 2 and at most 32 bytes a sample.

    python benchmarks/selection.py
"""

import argparse
import json
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from stepe.loop.selection import keep_count, select
from stepe.training.environment import describe_environment

SEED = 0
DROP_FRACTIONS = (0.05, 0.4)
RATIO_TARGET, BYTES_TARGET = 2.0, 32


def make_scores(n: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(SEED)
    smooth = rng.exponential(size=n).astype(np.float32)
    cases = {
        "smooth": smooth,
        "half equal": np.where(rng.random(n) < 0.5, np.float32(0.7), smooth),
        "two decimals": smooth.round(2),
    }
    missing = rng.random(n) < 0.001
    return {name: np.where(missing, np.float32(np.nan), scores) for name, scores in cases.items()}


def by_partition(scores: np.ndarray, drop_fraction: float) -> object:
    return np.argpartition(scores, keep_count(len(scores), drop_fraction) - 1)


def by_selection(scores: np.ndarray, drop_fraction: float) -> object:
    return select(torch.from_numpy(scores), drop_fraction)


CONTESTANTS: dict[str, Callable[[np.ndarray, float], object]] = {
    "argpartition": by_partition,
    "selection": by_selection,
}


def best_seconds(scores: np.ndarray, drop_fraction: float, repeats: int) -> dict[str, float]:
    best = dict.fromkeys(CONTESTANTS, float("inf"))
    for _ in range(repeats):
        for name, contestant in CONTESTANTS.items():
            started = time.perf_counter()
            contestant(scores, drop_fraction)
            best[name] = min(best[name], time.perf_counter() - started)
    return best


def peak_memory() -> int:
    """The most bytes this process ever held."""
    status = Path("/proc/self/status")
    if status.exists():  # Linux's ru_maxrss begins at the size of the process that started this one
        return int(re.search(r"VmHWM:\s+(\d+) kB", status.read_text())[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def measure_memory(contestant: str, path: str, drop_fraction: float) -> None:
    """In a process of its own: what the contestant adds, in bytes, to a process that holds the scores."""
    run = CONTESTANTS[contestant]
    run(np.arange(1000, dtype=np.float32), drop_fraction)  # code that loads on first use is not the contestant's
    scores = np.load(path)
    before = peak_memory()
    result = run(scores, drop_fraction)
    print(peak_memory() - before)
    del result


def bytes_per_sample(contestant: str, scores: np.ndarray, drop_fraction: float) -> float:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "scores.npy"
        np.save(path, scores)
        command = [sys.executable, __file__, "--measure", contestant, str(path), str(drop_fraction)]
        return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout) / len(scores)


def measure(n: int, repeats: int) -> list[dict[str, Any]]:
    rows = []
    print(
        f"{'scores':<14}{'dropped':>8}{'argpartition':>14}{'selection':>11}{'ratio':>7}   bytes a sample (argpartition)"
    )
    for name, scores in make_scores(n).items():
        for drop_fraction in DROP_FRACTIONS:
            seconds = best_seconds(scores, drop_fraction, repeats)
            memory = {contestant: bytes_per_sample(contestant, scores, drop_fraction) for contestant in CONTESTANTS}
            row = {
                "scores": name,
                "samples": n,
                "drop_fraction": drop_fraction,
                "repeats": repeats,
                "argpartition_seconds": round(seconds["argpartition"], 4),
                "selection_seconds": round(seconds["selection"], 4),
                "ratio": round(seconds["selection"] / seconds["argpartition"], 3),
                "argpartition_bytes_per_sample": round(memory["argpartition"], 1),
                "selection_bytes_per_sample": round(memory["selection"], 1),
            }
            rows.append(row)
            print(
                f"{name:<14}{drop_fraction:>8.0%}"
                f"{row['argpartition_seconds']:>12.3f} s{row['selection_seconds']:>9.3f} s"
                f"{row['ratio']:>7.2f}{row['selection_bytes_per_sample']:>10.1f}"
                f" ({row['argpartition_bytes_per_sample']:.1f})"
            )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--samples", type=int, default=10_000_000)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--out", type=Path, default=Path("results/selection.json"))
    parser.add_argument("--measure", nargs=3, metavar=("WHO", "SCORES", "FRACTION"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        contestant, path, drop_fraction = options.measure
        measure_memory(contestant, path, float(drop_fraction))
        return

    rows = measure(options.samples, options.repeats)
    ratio = max(row["ratio"] for row in rows)
    memory = max(row["selection_bytes_per_sample"] for row in rows)
    met = ratio <= RATIO_TARGET and memory <= BYTES_TARGET
    print(
        f"worst: {ratio:.2f} times argpartition, {memory:.1f} bytes a sample: {'within' if met else 'OUTSIDE'} target"
    )
    options.out.parent.mkdir(parents=True, exist_ok=True)
    result = {"rows": rows, "environment": describe_environment(seed=SEED)}
    options.out.write_text(json.dumps(result, indent=2) + "\n")
    print(f"written to {options.out}")


if __name__ == "__main__":
    main()
