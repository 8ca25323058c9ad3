"""The three limitations that the paper names, and what answers them. Writes results/limitations.json.

*learnable*: most of one class carries the label of one other, which a model learns as a rule. *ramp*: when the warm-up
ends and the drops begin, for a network that learns slowly and for one that memorises. *tail*: the rarest class has a
fiftieth of the samples of the most common one. All on the bundled digits, whose test part is clean and balanced.
A row is written as soon as it is there, and an interrupted grid goes on where it stopped.

    python benchmarks/limitations.py [--seeds 5] [--first-seed 0] [--processes 2] [--only tail]
    python tools/limitations_figures.py

Settings were chosen on seeds from 100 on.
"""

import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from planted import Case, Key, Row, grid_keys, grid_options, load, measure_grid
from torch import Tensor

import stepe
from stepe.app.networks import Tuning
from stepe.data.encoders import Array
from stepe.data.noise import Noise
from stepe.data.source import Source
from stepe.loop.ledger import Ledger
from stepe.loop.randomness import Stream
from stepe.methods.step_e import StepwiseElimination
from stepe.models.mlp import MLP

SHARES = (0.5, 0.7, 0.9)
"""of one class, that carry the label of another"""
WARMUPS = (1, 5, 10, 20, 40)
"""of 60 epochs"""
RAMP_NOISE = "symmetric:0.4"
TAIL_NOISES = ("symmetric:0.05", "symmetric:0.2")
LARGEST, IMBALANCE = 140, 50
FLOORS = (0.0, 0.5, 0.7, 0.9)
PARTS = {"common": range(4), "middle": range(4, 7), "rare": range(7, 10)}
"""classes of the long tail, from the most common on"""

BY_GUESS_ALONE = {
    "method": "step-e-plus",
    "score": "guess",
    "average": 0.0,
    "correct": False,
    "refine": 0.0,
    "mixup": 0.0,
}
"""Step-E+ without all that it does beyond ranking by the guess: Step-E by another score"""
ALL_FOUND_OUT = {"rho_max": "auto", "warmup": "auto", "probe": "auto"}
"""as `stepe clean` does where nothing is known; all others are told the noise rate"""
LEARNABLE: dict[str, dict[str, Any]] = {
    "plain": {"method": "plain"},
    "loss (Step-E)": {"score": "loss"},
    "entropy of the guess": {"method": "entropy"},
    "guess and how labels go wrong": {"score": "posterior"},
    "guess": {**BY_GUESS_ALONE, "prior": "none"},
    "guess, aligned": {**BY_GUESS_ALONE, "prior": "uniform"},
    "Step-E+": {"method": "step-e-plus"},
    "Step-E+, uniform prior": {"method": "step-e-plus", "prior": "uniform"},
    "Step-E, all found out": ALL_FOUND_OUT,
    "Step-E+, uniform prior, all found out": {"method": "step-e-plus", "prior": "uniform", **ALL_FOUND_OUT},
}
RAMP: dict[str, dict[str, Any]] = {
    f"{probe}, {schedule}, {warmup}": {"probe": probe, "schedule": schedule, "warmup": warmup}
    for probe, schedule, warmups in (
        ("in-sample", "linear", WARMUPS),
        ("auto", "linear", (*WARMUPS, "auto")),
        ("auto", "proportional", (*WARMUPS, "auto")),
    )
    for warmup in warmups
}
"""in-sample and linear are the paper's; ``auto`` judges by models that never saw a sample, where others memorise"""
TAIL: dict[str, dict[str, Any]] = {
    "plain": {"method": "plain"},
    "clean labels": {"method": "oracle"},
    **{f"Step-E, floor {floor:.0%}" if floor else "Step-E": {"score": "loss", "min_keep": floor} for floor in FLOORS},
    "guess, aligned": {**BY_GUESS_ALONE, "prior": "uniform"},
}


@dataclass
class ByEntropy(StepwiseElimination):
    """Step-E that drops what the running guess is least sure of, whatever the label is."""

    score: Literal["auto", "loss", "guess", "posterior"] = "guess"

    def scores(self, ledger: Ledger) -> Tensor:
        guess = self.guess.of(ledger)
        return -torch.special.xlogy(guess, guess).sum(1)


def slow(source: Source) -> Case:
    """As `stepe clean digits` trains, on a smaller network, to be done sooner."""
    preset = Tuning(hidden=(128, 128), dropout=0.5)
    return Case(source, preset, lambda: MLP(source.x.shape[1], source.classes, preset.hidden, preset.dropout), 10)


def measure(key: Key) -> Row:
    torch.set_num_threads(1)
    _, limitation, setting, variant, seed = key
    named = {"data": key[0], "limitation": limitation, "setting": setting, "variant": variant, "seed": seed}
    return named | {"learnable": measure_learnable, "ramp": measure_ramp, "tail": measure_tail}[limitation](key)


def key_of(row: Row) -> Key:
    return row["data"], row["limitation"], row["setting"], row["variant"], row["seed"]


def pair_of(seed: int) -> tuple[int, int]:
    """Another class, and what it is taken for, every seed: 4 for 9, 7 for 2, 0 for 5, 3 for 8, 6 for 1..."""
    hidden = (4 + 3 * seed) % 10
    return hidden, (hidden + 5) % 10


def mistake(labels: Tensor, share: float, seed: int) -> Tensor:
    """The labels, after most of one class has become another."""
    hidden, other = pair_of(seed)
    order = Stream.named(seed, "noise/sample").shuffle(torch.arange(len(labels)))
    members = order[labels[order] == hidden]
    given = labels.clone()
    given[members[: round(share * len(members))]] = other
    return given


def measure_learnable(key: Key) -> Row:
    _, _, setting, variant, seed = key
    source = load("digits").source
    options = dict(LEARNABLE[variant])
    clean = torch.from_numpy(source.labels)
    given = mistake(clean, float(setting), seed)
    noisy, (hidden, other) = given != clean, pair_of(seed)
    if options.get("method") == "entropy":
        options["method"] = ByEntropy()
    result = slow(source).train(source.x, given, seed, noise_rate=share_of(noisy), test=held_out_of(source), **options)
    dropped = result.ledger["dropped"]
    return {
        "class": hidden,
        "taken_for": other,
        "accuracy": result.summary.test_accuracy,
        "class_accuracy": accuracy_of(result, [hidden]),
        "wrong_dropped": share_of(dropped[noisy]),
        "right_dropped": share_of(dropped[~noisy & (clean == hidden)]),
        "others_dropped": share_of(dropped[~noisy & (clean != hidden)]),
    }


def measure_ramp(key: Key) -> Row:
    _, _, setting, variant, seed = key
    case = load("digits", "batchnorm") if setting == "fast" else slow(load("digits").source)
    source = case.plant(RAMP_NOISE, seed)
    result = case.train(
        source.x,
        source.labels,
        seed,
        noise_rate=source.noise_rate,
        test=held_out_of(source),
        truth=source.truth,
        **RAMP[variant],
    )
    summary = result.summary
    return {
        "warmup": summary.warmup,
        "reach": summary.probe.reach,
        "accuracy": summary.test_accuracy,
        "best_accuracy": max(epoch["test_accuracy"] for epoch in result.history),
        "dropped_f1": summary.noise.dropped.f1,
        "auroc": summary.noise.auroc,
    }


def long_tail(labels: Tensor, seed: int) -> tuple[Tensor, list[int]]:
    """Which samples stay, and the classes from the most common to the rarest: another order every seed."""
    classes = Stream.named(seed, "tail/classes").shuffle(torch.arange(10)).tolist()
    order = Stream.named(seed, "tail/samples").shuffle(torch.arange(len(labels)))
    sizes = [round(LARGEST * IMBALANCE ** (-place / (len(classes) - 1))) for place in range(len(classes))]
    stay = [order[labels[order] == which][:size] for which, size in zip(classes, sizes, strict=True)]
    return torch.cat(stay).sort().values, classes


def measure_tail(key: Key) -> Row:
    _, _, setting, variant, seed = key
    source, options = load("digits").source, TAIL[variant]
    index, classes = long_tail(torch.from_numpy(source.labels), seed)
    x, clean = source.x[index.numpy()], source.labels[index.numpy()]
    noise = Noise.parse(setting)
    assert noise is not None
    planted = noise.plant(x, clean, source.classes, seed)
    labels = clean if options.get("method") == "oracle" else planted.labels
    noisy = torch.from_numpy(planted.noisy)
    result = slow(source).train(x, labels, seed, noise_rate=share_of(noisy), test=held_out_of(source), **options)
    dropped = result.ledger["dropped"]
    row: Row = {"accuracy": result.summary.test_accuracy, "wrong_dropped": share_of(dropped[noisy])}
    for part, places in PARTS.items():
        members = [classes[place] for place in places]
        right = ~noisy & torch.from_numpy(np.isin(clean, members))
        row |= {f"{part}_accuracy": accuracy_of(result, members), f"{part}_right_dropped": share_of(dropped[right])}
    return row


def held_out_of(source: Source) -> tuple[Array, Array]:
    return source.test_x, source.test_labels


def accuracy_of(result: stepe.Result, classes: list[int]) -> float:
    """On the test samples that are of these classes."""
    assert result.held_out is not None
    assert result.held_out.prediction is not None
    assert result.held_out_labels is not None
    mine = torch.isin(result.held_out_labels, torch.tensor(classes))
    return share_of(result.held_out.prediction[mine] == result.held_out_labels[mine])


def share_of(chosen: Tensor) -> float:
    return float(chosen.double().mean())


COLUMNS = {
    "learnable": ["accuracy", "class_accuracy", "wrong_dropped", "right_dropped", "others_dropped"],
    "ramp": ["warmup", "accuracy", "best_accuracy", "dropped_f1", "auroc"],
    "tail": [
        "accuracy",
        *(f"{part}_accuracy" for part in PARTS),
        *(f"{part}_right_dropped" for part in PARTS),
        "wrong_dropped",
    ],
}
HEADINGS = {
    "learnable": "| mislabelled | ranked by | accuracy | of the class | wrong labels dropped | right ones of the class "
    "| other right ones |",
    "ramp": "| network | probe, ramp, warm-up | warm-up found | accuracy | best epoch's | F1 dropped | AUROC |",
    "tail": "| noise | method | accuracy | common | middle | rare | right labels dropped: common | middle | rare "
    "| wrong ones |",
}


def table(limitation: str, rows: list[Row]) -> str:
    """Means over seeds, with the standard deviation of accuracies."""
    # In the order of the settings, however the rows came in; rows of options that are gone stay in the file alone.
    order = settings()
    known = [row for row in rows if row["limitation"] == limitation and key_of(row)[:-1] in order]
    mine = sorted(known, key=lambda row: order.index(key_of(row)[:-1]))
    heading = HEADINGS[limitation]
    lines = [heading, "|---" * (heading.count("|") - 1) + "|"]
    for setting, variant in dict.fromkeys((row["setting"], row["variant"]) for row in mine):
        group = [row for row in mine if (row["setting"], row["variant"]) == (setting, variant)]
        cells = [_cell(column, [row[column] for row in group]) for column in COLUMNS[limitation]]
        name = f"{float(setting):.0%}" if limitation == "learnable" else setting
        lines.append(f"| {name} | {variant} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _cell(column: str, values: list[float]) -> str:
    mean = statistics.mean(values)
    if column == "warmup":
        return f"{mean:.1f}".removesuffix(".0")
    if column in ("dropped_f1", "auroc"):
        return f"{mean:.3f}"
    if column.endswith("accuracy"):
        return f"{100 * mean:.1f} ± {100 * statistics.stdev(values) if len(values) > 1 else 0:.1f}"
    return f"{mean:.0%}"


def settings() -> list[Key]:
    return [
        *(("digits", "learnable", str(share), variant) for share in SHARES for variant in LEARNABLE),
        *(("digits", "ramp", network, variant) for network in ("slow", "fast") for variant in RAMP),
        *(("digits", "tail", noise, variant) for noise in TAIL_NOISES for variant in TAIL),
    ]


def main() -> None:
    parser = grid_options(__doc__, Path("results/limitations.json"))
    parser.set_defaults(seeds=5)
    arguments = parser.parse_args()
    rows = measure_grid(arguments, grid_keys(arguments, settings()), measure, key_of)
    for limitation in COLUMNS:
        print(f"{limitation}\n\n{table(limitation, rows)}\n")


if __name__ == "__main__":
    main()
