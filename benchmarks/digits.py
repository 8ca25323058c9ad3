"""What `stepe clean digits` reaches, over seeds, as a person would run it. Writes results/digits.json.

python benchmarks/digits.py [--seeds 10] [--out results/digits.json]
"""

import argparse
import json
import multiprocessing
import statistics
import tempfile
from pathlib import Path

import stepe
from stepe.run.record import Summary
from stepe.training.environment import describe_environment

SETTINGS = {
    "symmetric:0.4": "step-e-plus,step-e,plain,oracle,one-shot,self-paced,truncation",
    "symmetric:0.2": "step-e-plus,step-e,plain,oracle",
    "asymmetric:0.2": "step-e-plus,step-e,plain,oracle",
    "instance:0.2": "step-e-plus,step-e,plain,oracle",
    "outliers:0.2": "step-e-plus,step-e,plain,oracle",
    "symmetric:0.02": "step-e-plus,step-e,plain",
    "none": "step-e-plus,step-e,plain",
}


def measure(job: tuple[str, int]) -> list[dict[str, object]]:
    noise, seed = job
    methods = SETTINGS[noise]
    with tempfile.TemporaryDirectory() as folder:
        run = stepe.clean(
            "bundled:digits",
            noise=noise,
            method=methods,
            seed=seed,
            out=Path(folder) / "run",
            compare=False,
            device="cpu",
        )
        return [row(noise, seed, each.summary) for each in [run, *run.others]]


def row(noise: str, seed: int, summary: Summary) -> dict[str, object]:
    found = summary.noise
    return {
        "noise": noise,
        "method": summary.method,
        "seed": seed,
        "accuracy": summary.test_accuracy,
        "dropped_f1": found.dropped.f1,
        "flagged_precision": found.flagged.precision,
        "flagged_recall": found.flagged.recall,
        "flagged_f1": found.flagged.f1,
        "flagged": summary.flagged,
        "auroc": found.auroc,
        "seconds": summary.seconds,
    }


def mean(rows: list[dict[str, object]], key: str) -> float | None:
    values = [row[key] for row in rows if row[key] is not None]
    return statistics.mean(values) if values else None


def table(rows: list[dict[str, object]]) -> str:
    lines = [
        "| noise | method | accuracy | F1 dropped | AUROC | flagged | precision | recall |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for noise, method in dict.fromkeys((row["noise"], row["method"]) for row in rows):
        mine = [row for row in rows if (row["noise"], row["method"]) == (noise, method)]
        spread = statistics.stdev([100 * row["accuracy"] for row in mine]) if len(mine) > 1 else 0.0
        drops = any(row["flagged"] for row in mine)
        cells = [
            f"{100 * mean(mine, 'accuracy'):.1f} ± {spread:.1f}",
            f"{mean(mine, 'dropped_f1'):.3f}" if drops else "",
            f"{mean(mine, 'auroc'):.4f}" if mean(mine, "auroc") is not None and method != "oracle" else "",
            f"{mean(mine, 'flagged'):.0f}" if drops else "",
            f"{mean(mine, 'flagged_precision'):.3f}" if drops else "",
            f"{mean(mine, 'flagged_recall'):.3f}" if drops else "",
        ]
        lines.append(f"| {noise} | {method} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--out", type=Path, default=Path("results/digits.json"))
    parser.add_argument("--processes", type=int, default=2)
    arguments = parser.parse_args()
    jobs = [(noise, seed) for noise in SETTINGS for seed in range(arguments.seeds)]
    with multiprocessing.get_context("spawn").Pool(arguments.processes) as pool:
        rows = [row for found in pool.map(measure, jobs, chunksize=1) for row in found]
    print(table(rows))
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    result = {"rows": rows, "environment": describe_environment()}
    arguments.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
