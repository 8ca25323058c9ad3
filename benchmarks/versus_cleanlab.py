"""stepe against cleanlab: who finds planted noise better, and in what time. Writes results/versus-cleanlab.json.

Both get the same noisy data, network, epochs and processor core, in the same process. cleanlab gets out-of-fold
probabilities of plain training, 5 folds; stepe one run that knows nothing about the noise. A row is written as soon as
it is there, and an interrupted grid goes on where it stopped.

    STEPE_DATA=DATA python benchmarks/versus_cleanlab.py [--seeds 10] [--processes 2] [--only digits symmetric]
"""

import statistics
import sys
import time
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path

import numpy as np
import torch
from planted import SOURCES, Case, Key, Row, grid_keys, grid_options, load, measure_grid
from sklearn.model_selection import StratifiedKFold
from torch import Tensor

from stepe.app.networks import Tuning
from stepe.data.source import Source
from stepe.loop.metrics import auroc, detection
from stepe.run.environment import commit

try:
    import cleanlab
    from cleanlab.filter import find_label_issues
    from cleanlab.rank import get_label_quality_scores
except ImportError as error:
    sys.exit(f'{error}; this benchmark needs cleanlab: pip install "stepe[cleanlab]"')

FOLDS = 5
RATES = (0.1, 0.2, 0.4)
NOISES = [f"{kind}:{rate}" for kind in ("symmetric", "asymmetric", "instance", "outliers") for rate in RATES]
SETTINGS = [*((data, "own") for data in SOURCES), ("digits", "batchnorm")]


def by_stepe(case: Case, source: Source, preset: Tuning, seed: int) -> tuple[Tensor, Tensor, Row]:
    result = case.clean(source.x, source.labels, seed, preset, rho_max="auto")
    found = {"probe": result.summary.probe.reach, "noise_rate": result.summary.noise_rate.rate}
    belief = result.belief
    return 1 - torch.from_numpy(belief.p_right).double(), torch.from_numpy(belief.flagged), found


def by_cleanlab(case: Case, source: Source, preset: Tuning, seed: int) -> tuple[Tensor, Tensor, Row]:
    labels = source.labels
    probability = np.zeros((len(labels), source.classes))
    for inside, outside in StratifiedKFold(FOLDS, shuffle=True, random_state=seed).split(labels, labels):
        model = case.train(source.x[inside], source.labels[inside], seed, preset, method="plain").model.eval()
        with torch.no_grad():
            probability[outside] = torch.softmax(model(torch.from_numpy(source.x[outside])), 1).double().numpy()
    quality = get_label_quality_scores(labels, probability)
    issues = find_label_issues(labels, probability, n_jobs=1)
    return torch.tensor(1 - quality), torch.tensor(issues), {}


CONTENDERS = {"stepe": by_stepe, "cleanlab": by_cleanlab}


@lru_cache(maxsize=1)
def warm_up() -> None:
    """What is imported and compiled at first use is nobody's time."""
    torch.set_num_threads(1)
    case = load("digits")
    for find in CONTENDERS.values():
        find(case, case.plant("symmetric:0.4", 0), Tuning(epochs=6), 0)


def measure(key: Key, epochs: int | None = None) -> Row:
    warm_up()
    name, model, noise, seed = key
    case = load(name, model)
    preset = case.preset if epochs is None else replace(case.preset, epochs=epochs)
    source = case.plant(noise, seed)
    assert source.truth is not None
    row: Row = {"data": name, "model": model, "noise": noise, "seed": seed, "epochs": preset.epochs, "commit": commit()}
    for contender, find in CONTENDERS.items():
        started = time.perf_counter()
        suspicion, flagged, more = find(case, source, preset, seed)
        seconds = time.perf_counter() - started
        found = detection(flagged, source.truth.noisy)
        row[contender] = {"auroc": auroc(suspicion, source.truth.noisy), "f1": found.f1, "seconds": seconds, **more}
    return row


def key_of(row: Row) -> Key:
    return row["data"], row["model"], row["noise"], row["seed"]


def differences(rows: list[Row], what: str) -> list[float]:
    return [row["stepe"][what] - row["cleanlab"][what] for row in rows]


def standard_error(values: list[float]) -> float:
    return statistics.stdev(values) / len(values) ** 0.5 if len(values) > 1 else float("nan")


def table(rows: list[Row]) -> str:
    """A line per setting, where stepe is ahead and where it is behind by more than two standard errors."""
    every = [(*setting, noise) for setting in SETTINGS for noise in NOISES]
    grouped = {group: [row for row in rows if key_of(row)[:-1] == group] for group in every}
    return _lines({" | ".join(group): mine for group, mine in grouped.items() if mine}, "data | model | noise")


def overview(rows: list[Row]) -> str:
    """A line per data and model, and one for all."""
    grouped = {
        f"{data}{'' if model == 'own' else f', {model}'}": [row for row in rows if key_of(row)[:2] == (data, model)]
        for data, model in SETTINGS
    }
    return _lines({name: mine for name, mine in (grouped | {"all": rows}).items() if mine}, "data")


def _lines(groups: dict[str, list[Row]], names: str) -> str:
    head = f"| {names} | n | AUROC stepe | cleanlab | difference | F1 stepe | cleanlab | difference | time |"
    lines = [head, "|---" * (head.count("|") - 1) + "|"]
    for name, mine in groups.items():
        cells = [name, str(len(mine))]
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


def main() -> None:
    parser = grid_options(__doc__, Path("results/versus-cleanlab.json"))
    parser.add_argument("--epochs", type=int, help="another length for all, to try it out in another --out")
    arguments = parser.parse_args()
    keys = grid_keys(arguments, [(*setting, noise) for setting in SETTINGS for noise in NOISES])
    find = partial(measure, epochs=arguments.epochs)
    rows = measure_grid(arguments, keys, find, key_of, cleanlab=cleanlab.__version__)
    print(table(rows), overview(rows), sep="\n\n")


if __name__ == "__main__":
    main()
