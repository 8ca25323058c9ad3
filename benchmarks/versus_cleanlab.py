"""stepe against cleanlab: who finds planted noise better, and in what time. Writes results/versus-cleanlab.json.

Both get the same noisy data, network, epochs and processor core, in the same process. cleanlab gets out-of-fold
probabilities of plain training, 5 folds; stepe one run that knows nothing about the noise. A row is written as soon as
it is there, and an interrupted grid goes on where it stopped.

    STEPE_DATA=DATA python benchmarks/versus_cleanlab.py [--seeds 10] [--processes 2] [--only digits symmetric]
"""

import argparse
import json
import multiprocessing
import statistics
import sys
import time
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from planted import GRID, TABLE, Data, SlowMLP, load, packages_path, plant, train
from sklearn.model_selection import StratifiedKFold
from torch import Tensor

from stepe.environment import describe_environment
from stepe.files import write_text
from stepe.issues import flags
from stepe.metrics import auroc, detection
from stepe.recipes.clean import Preset

try:
    import cleanlab
    from cleanlab.filter import find_label_issues
    from cleanlab.rank import get_label_quality_scores
except ImportError as error:
    sys.exit(f'{error}; this benchmark needs cleanlab: pip install "stepe[cleanlab]"')

FOLDS = 5
RATES = (0.1, 0.2, 0.4)
NOISES = [f"{kind}:{rate}" for kind in ("symmetric", "asymmetric", "instance", "outliers") for rate in RATES]
Row = dict[str, Any]
Key = tuple[str, str, str, int]


def by_stepe(data: Data, x: Tensor, y: Tensor, preset: Preset, seed: int) -> tuple[Tensor, Tensor, Row]:
    result = train(data, x, y, preset, seed, method="step-e", rho_max="auto", probe="auto")
    trust = result.ledger["trust"]
    found = {"probe": result.summary["probe"]["reach"], "noise_rate": result.summary["noise_rate"]["rate"]}
    flagged = flags(result.ledger, y, result.training.method.most_flagged(result.ledger))
    return 1 - trust.double(), flagged, found


def by_cleanlab(data: Data, x: Tensor, y: Tensor, preset: Preset, seed: int) -> tuple[Tensor, Tensor, Row]:
    probability = np.zeros((len(y), data.classes))
    for inside, outside in StratifiedKFold(FOLDS, shuffle=True, random_state=seed).split(y, y):
        model = train(data, x[inside], y[inside], preset, seed, method="plain").model.eval()
        with torch.no_grad():
            probability[outside] = torch.softmax(model(x[outside]), 1).double().numpy()
    labels = y.numpy()
    quality = get_label_quality_scores(labels, probability)
    issues = find_label_issues(labels, probability, n_jobs=1)
    return torch.tensor(1 - quality), torch.tensor(issues), {}


CONTENDERS = {"stepe": by_stepe, "cleanlab": by_cleanlab}


@lru_cache(maxsize=1)
def warm_up() -> None:
    """What is imported and compiled at first use is nobody's time."""
    torch.set_num_threads(1)
    x, y = torch.randn(128, 8, generator=torch.Generator().manual_seed(0)), torch.arange(128) % 2
    data = Data(x, y, lambda: SlowMLP(8, 2), looks=x)
    for find in CONTENDERS.values():
        find(data, x, y, Preset(epochs=6), 0)


def measure(key: Key, epochs: int | None = None) -> Row:
    warm_up()
    name, model, noise, seed = key
    data = load(name, model)
    preset = replace(GRID[name, model][0], epochs=length(key, epochs))
    x, y, noisy = plant(data, noise, seed)
    row: Row = {"data": name, "model": model, "noise": noise, "seed": seed, "epochs": preset.epochs}
    for contender, find in CONTENDERS.items():
        started = time.perf_counter()
        suspicion, flagged, more = find(data, x, y, preset, seed)
        seconds = time.perf_counter() - started
        found = detection(flagged, noisy)
        row[contender] = {"auroc": auroc(suspicion, noisy), "f1": found.f1, "seconds": seconds, **more}
    return row


# ---------------------------------------------------------------------------------------------------------------
# The grid


def length(key: Key, epochs: int | None) -> int:
    return GRID[key[:2]][0].epochs if epochs is None else epochs


def key_of(row: Row) -> Key:
    return row["data"], row["model"], row["noise"], row["seed"]


def jobs(seeds: range, only: list[str]) -> list[Key]:
    """Seed by seed, so that an unfinished grid says something about everything."""
    keys = [
        (data, model, noise, seed)
        for seed in seeds
        for (data, model), (_, most) in GRID.items()
        for noise in NOISES
        if seed - seeds.start < most
    ]
    return [key for key in keys if all(any(part.startswith(word) for part in key[:3]) for word in only)]


def differences(rows: list[Row], what: str) -> list[float]:
    return [row["stepe"][what] - row["cleanlab"][what] for row in rows]


def standard_error(values: list[float]) -> float:
    return statistics.stdev(values) / len(values) ** 0.5 if len(values) > 1 else float("nan")


def table(rows: list[Row]) -> str:
    lines = [
        "| data | model | noise | n | AUROC stepe | cleanlab | difference | F1 stepe | cleanlab | difference | time |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    groups = dict.fromkeys((row["data"], row["model"], row["noise"]) for row in rows)
    for group in [*groups, None]:
        mine = [row for row in rows if group is None or (row["data"], row["model"], row["noise"]) == group]
        cells = [*(group or ("all", "", "")), str(len(mine))]
        for what in ("auroc", "f1"):
            apart = differences(mine, what)
            means = [statistics.mean(row[contender][what] for row in mine) for contender in CONTENDERS]
            error = standard_error(apart)
            behind = " (behind)" if statistics.mean(apart) < -2 * error else ""
            cells += [f"{mean:.4f}" for mean in means] + [f"{statistics.mean(apart):+.4f} ± {error:.4f}{behind}"]
        times = [statistics.mean(row[contender]["seconds"] for row in mine) for contender in CONTENDERS]
        cells.append(f"{times[0]:.1f} / {times[1]:.1f} s = {times[0] / times[1]:.2f}")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def write(path: Path, rows: dict[Key, Row]) -> None:
    result = {"rows": list(rows.values()), "cleanlab": cleanlab.__version__, "environment": describe_environment()}
    write_text(path, json.dumps(result, indent=1) + "\n")


def work(job: tuple[Key, int | None]) -> Row:
    return measure(*job)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10, help="text and table have 5 at most")
    parser.add_argument("--first-seed", type=int, default=0, help="settings are chosen on other seeds than measured")
    parser.add_argument("--epochs", type=int, help="another length for all, to try it out")
    parser.add_argument("--only", nargs="*", default=[], help="rows whose data, model or noise begin like this")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("results/versus-cleanlab.json"))
    arguments = parser.parse_args()
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    stored = json.loads(arguments.out.read_text(encoding="utf-8"))["rows"] if arguments.out.exists() else []
    rows = {key_of(row): row for row in stored}
    seeds = range(arguments.first_seed, arguments.first_seed + arguments.seeds)
    wanted = jobs(seeds, arguments.only)
    if any(data in ("text", "table") for data, *_ in wanted) and not packages_path().exists():
        parser.error(f"set STEPE_DATA to the folder that holds {TABLE}, or choose other rows with --only")
    open_jobs = [
        (key, arguments.epochs)
        for key in wanted
        if key not in rows or rows[key]["epochs"] != length(key, arguments.epochs)
    ]
    with multiprocessing.get_context("spawn").Pool(arguments.processes) as pool:
        for done, row in enumerate(pool.imap_unordered(work, open_jobs), start=1):
            rows[key_of(row)] = row
            write(arguments.out, rows)
            print(f"{done}/{len(open_jobs)} {' '.join(map(str, key_of(row)))}", file=sys.stderr)
    print(table([rows[key] for key in wanted]))


if __name__ == "__main__":
    main()
