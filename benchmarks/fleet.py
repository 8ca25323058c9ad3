"""All 18 runs of the paper's main table in one fleet on one GPU. Writes results/fleet.json.

With --runs, runs that `stepe reproduce` would put into a fleet too are kept for it there.

    python benchmarks/fleet.py --data-dir DATA [--engine compiled] [--runs results/paper] [--out results/fleet.json]
"""

import argparse
import json
import time
from dataclasses import replace
from pathlib import Path

import torch

from stepe.reproduction import grid, runner
from stepe.training.building import Silent
from stepe.training.environment import describe_environment
from stepe.training.fleet import run_together


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--epochs", type=int, default=grid.EPOCHS)
    parser.add_argument("--engine", choices=("resident", "compiled"), default="resident")
    parser.add_argument("--runs", type=Path)
    parser.add_argument("--out", type=Path, default=Path("results/fleet.json"))
    arguments = parser.parse_args()
    bench = runner.Bench(torch.device("cuda", 0), arguments.data_dir, checkpoint_every=0, fleet_engine=arguments.engine)
    cells = [cell.lasting(arguments.epochs) for cell in grid.cifar100n()]
    data = bench.load(cells[0])
    started = time.perf_counter()
    runner.warm_up(replace(cells[0], seed=0), data, bench)
    warm_up = time.perf_counter() - started
    jobs = [
        runner.job_of(
            replace(cell, file="fleet"),  # none of them is alone
            data,
            arguments.runs or Path(),
            bench,
            lambda name: Silent(),
            epochs=None if arguments.runs and not cell.timed else cell.epochs,
        )
        for cell in cells
    ]
    torch.cuda.synchronize()
    started = time.perf_counter()
    results = run_together(jobs)
    torch.cuda.synchronize()
    seconds = time.perf_counter() - started
    steps = sum(-(-row["kept"] // runner.BATCH) for result in results for row in result.history)
    report = {
        "runs": len(cells),
        "engine": arguments.engine,
        "warm_up_seconds": warm_up,
        "epochs": arguments.epochs,
        "seconds": seconds,
        "run_steps": steps,
        "ms_per_run_step": 1000 * seconds / steps,
        "peak_memory_gib": torch.cuda.max_memory_allocated() / 2**30,
        "environment": describe_environment(device="cuda"),
    }
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    print(
        f"{len(cells)} runs of {arguments.epochs} epochs: {seconds:.1f} s, {1000 * seconds / steps:.3f} ms a run-step"
    )
    for cell, result in zip(cells, results, strict=True):
        noise = result.summary.noise
        print(
            f"{cell.method:12} {cell.seed:3} accuracy {100 * result.summary.test_accuracy:.2f}"
            f"  F1 {100 * noise.dropped.f1:.2f}  AUROC {100 * noise.auroc:.2f}"
        )


if __name__ == "__main__":
    main()
