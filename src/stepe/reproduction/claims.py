"""What becomes of the claims in the paper's text: each is read in one precise way and tested on the result files.

A test sees only what was measured; no verdict is written down anywhere, save the one that tests prove.
"""

import inspect
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TypedDict

from stepe.reproduction.numbers import CIFAR10N, FIGURE_SEED, MAIN, METHOD_TITLES, NOISE
from stepe.reproduction.tables import (
    Column,
    Epoch,
    MeasuredRun,
    Metric,
    Table,
    by_seed,
    cifar10n_runs,
    known,
    mean,
    mean_gain,
    overhead,
    read_json,
    read_runs,
    signed,
    write_table,
)

CHANCE = 1.0
"""test accuracy of guessing among 100 classes, percent"""
OUTLIERS = "outliers:0.2"
RIVALS = ("truncation", "self-paced", "one-shot")
UNDEFINED = {("noise_f1", "truncation"), ("noise_auroc", "truncation")}


class Verdict(Enum):
    """What the data say of a claim."""

    HOLDS = "holds"
    FAILS = "does not hold"
    CONDITIONAL = "holds on a condition"
    NOT_MEASURED = "not measured"


class DigitsRow(TypedDict):
    """A row of ``results/digits.json``; shares between 0 and 1."""

    noise: str
    method: str
    seed: int
    accuracy: float
    auroc: float | None
    dropped_f1: float | None


@dataclass(frozen=True)
class Measured:
    """Everything that claims are tested on."""

    runs: Sequence[MeasuredRun]
    digits: Sequence[DigitsRow] = ()


@dataclass(frozen=True)
class Finding:
    """A verdict with the numbers behind it."""

    verdict: Verdict
    evidence: str


Test = Callable[[Measured], Finding]


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper, and the test it is put to, whose docstring says how it is read."""

    statement: str
    test: Test

    @property
    def reading(self) -> str:
        """What the claim is taken to mean, in a form that can be measured."""
        return inspect.getdoc(self.test) or ""


CLAIMS: list[Claim] = []
"""in the order of this file"""


def claim(statement: str) -> Callable[[Test], Test]:
    """Put a function among the claims, as the test of this sentence."""

    def listed(test: Test) -> Test:
        CLAIMS.append(Claim(statement, test))
        return test

    return listed


def read_measured(results: Path) -> Measured:
    """Read the result files of the paper's experiments, and that of the digits one folder above."""
    return Measured(read_runs(results), read_json(results.parent / "digits.json").get("rows", []))


def claims_table(results: Path) -> Table:
    """Put every claim beside its verdict."""
    measured = read_measured(results)
    rows = []
    for each in CLAIMS:
        finding = each.test(measured)
        rows.append((each.statement, each.reading, finding.verdict.value, finding.evidence))
    wide, narrow = "p{0.27\\linewidth}", "p{0.11\\linewidth}"
    return Table(
        "claims",
        "The claims of the paper's text, how each is read here, and whether it holds on our runs.",
        (
            Column("The paper says", align=wide),
            Column("Read as", align=wide),
            Column("Verdict", align=narrow),
            Column("Measured", align=wide),
        ),
        tuple(rows),
    )


def write_claims(results: Path, out: Path) -> list[Path]:
    """Write ``out/tables/claims.md`` and ``.tex``."""
    return write_table(claims_table(results), out)


# Accuracy on CIFAR-100N


@claim("Step-E improves test accuracy on CIFAR-100N by over seven points over standard training")
def gains_over_seven_points(measured: Measured) -> Finding:
    """Mean gain over the baseline above 7 points."""
    gain = mean_gain(by_seed(measured.runs, "step-e"), by_seed(measured.runs, "baseline"))
    if gain is None:
        return _missing("Step-E and baseline on CIFAR-100N")
    paper = MAIN["step-e"].mean - MAIN["baseline"].mean
    return _found(gain > 7, f"{signed(gain)} points (paper {signed(paper)})")


@claim("It clearly outperforms truncation, self-paced learning and one-shot filtering, with better noise detection")
def beats_the_other_methods(measured: Measured) -> Finding:
    """Highest mean accuracy, F1 and AUROC of the four."""
    metrics: dict[Metric, str] = {"test_accuracy": "accuracy", "noise_f1": "F1", "noise_auroc": "AUROC"}
    wins, said = [], []
    for metric, name in metrics.items():
        scores = {method: _average(measured, method, metric) for method in ("step-e", *RIVALS)}
        # Truncation filters nothing, so it has an accuracy alone.
        if any(scores[method] is None for method in scores if (metric, method) not in UNDEFINED):
            return _missing("Step-E, truncation, self-paced and one-shot on CIFAR-100N")
        known_scores = {method: score for method, score in scores.items() if score is not None}
        own = known_scores.pop("step-e")
        best = max(known_scores, key=lambda method: known_scores[method])
        wins.append(own > known_scores[best])
        said.append(f"{name} {own:.1f} against {known_scores[best]:.1f} ({METHOD_TITLES[best]})")
    return _found(all(wins), f"beside the best of the others: {'; '.join(said)}")


@claim("Truncation remains near chance")
def truncation_is_near_chance(measured: Measured) -> Finding:
    """Mean accuracy at most twice the 1% of guessing."""
    accuracy = _average(measured, "truncation", "test_accuracy")
    if accuracy is None:
        return _missing("truncation on CIFAR-100N")
    evidence = f"{accuracy:.1f}%, {accuracy / CHANCE:.1f} times chance (paper {MAIN['truncation'].mean:.1f}%)"
    return _found(accuracy <= 2 * CHANCE, evidence)


@claim("Step-E dominates the baseline throughout training")
def dominates_throughout(measured: Measured) -> Finding:
    """Mean test accuracy above the baseline's in every epoch; in the warm-up the two are the same training."""
    leads = _leads(measured)
    if not leads:
        return _missing("Step-E and baseline by epoch on CIFAR-100N")
    return _found(all(lead > 0 for lead in leads.values()), _counted(leads))


@claim("The same, after the warm-up")
def dominates_once_it_drops(measured: Measured) -> Finding:
    """Above the baseline's in every epoch from the first in which a sample is dropped."""
    first = _first_drop(measured)
    leads = {epoch: lead for epoch, lead in _leads(measured).items() if first is not None and epoch >= first}
    if not leads:
        return _missing("Step-E and baseline by epoch on CIFAR-100N")
    smallest = min(leads, key=lambda epoch: leads[epoch])
    evidence = f"from epoch {min(leads) + 1} on: {_counted(leads)}; smallest lead {signed(leads[smallest])}"
    return _found(all(lead > 0 for lead in leads.values()), f"{evidence} in epoch {smallest + 1}")


# The dynamics of Step-E (section 4.6)


@claim("Precision quickly rises to 80–90% and then slowly decreases")
def precision_rises_then_falls(measured: Measured) -> Finding:
    """The peak, rounded, lies between 80 and 90%, and the last epoch is lower."""
    values = _ramp(measured, lambda row: row["precision"])
    if len(values) < 2:
        return _missing(f"Step-E by epoch, seed {FIGURE_SEED}")
    peak = max(values, key=lambda epoch: values[epoch])
    last = max(values)
    evidence = f"peak {values[peak]:.1f}% in epoch {peak + 1}, {values[last]:.1f}% in the last"
    return _found(80 <= round(values[peak]) <= 90 and values[last] < values[peak], evidence)


@claim("Recall increases nearly linearly to about 77%")
def recall_grows(measured: Measured) -> Finding:
    """It ends within 2 points of 77%, and a straight line explains at least 95% of its variance."""
    values = _ramp(measured, lambda row: row["recall"])
    if len(values) < 3 or len(set(values.values())) == 1:
        return _missing(f"Step-E by epoch, seed {FIGURE_SEED}")
    first, last = values[min(values)], values[max(values)]
    straightness = statistics.correlation(list(values), list(values.values())) ** 2
    evidence = f"{first:.1f}% to {last:.1f}%, R² of a straight line {straightness:.3f}"
    return _found(last > first and abs(last - 77) <= 2 and straightness >= 0.95, evidence)


@claim("F1 stabilizes above 70%")
def f1_stays_above_70(measured: Measured) -> Finding:
    """Once above 70% it stays there to the end."""
    values = _ramp(measured, lambda row: row["f1"])
    if not values:
        return _missing(f"Step-E by epoch, seed {FIGURE_SEED}")
    last = f"{values[max(values)]:.1f}% in the last epoch"
    crossed = min((epoch for epoch, value in values.items() if value > 70), default=None)
    if crossed is None:
        return _found(False, f"never above 70%; {last}")
    lowest = min(value for epoch, value in values.items() if epoch >= crossed)
    return _found(lowest > 70, f"above 70% from epoch {crossed + 1}, lowest after that {lowest:.1f}%; {last}")


# Cost


@claim(f"Step-E's overhead is {signed(NOISE['step-e'].overhead)}% of the baseline's time per epoch")
def costs_what_the_paper_pays(measured: Measured) -> Finding:
    """Ours within 5 points of it."""
    seconds = [_average(measured, method, "seconds_per_epoch") for method in ("step-e", "baseline")]
    extra = overhead(*seconds)
    if extra is None or seconds[0] is None or seconds[1] is None:
        return _missing("times of Step-E and the baseline")
    paper = NOISE["step-e"].overhead
    evidence = f"{signed(extra)}% ({seconds[0]:.2f} s an epoch against {seconds[1]:.2f} s)"
    return _found(abs(extra - paper) <= 5, evidence)


# CIFAR-10N


@claim("On CIFAR-10N Step-E closes most of the remaining gap to the oracle")
def closes_most_of_the_gap(measured: Measured) -> Finding:
    """More than half of the gap between baseline and oracle, in mean test accuracy."""
    settings = {method: cifar10n_runs(measured.runs, method, "aggre") for method in CIFAR10N}
    shared = sorted(set.intersection(*(set(setting) for setting in settings.values())))
    levels = {
        method: mean(known([setting[seed] for seed in shared], "test_accuracy")) for method, setting in settings.items()
    }
    share = _share_of_gap(levels)
    if share is None:
        return _missing("a gap between baseline and oracle on CIFAR-10N (aggre)")
    numbers = ", ".join(f"{METHOD_TITLES[method]} {level:.1f}" for method, level in levels.items())
    paper = _share_of_gap(CIFAR10N)
    seeds = f"{'seed' if len(shared) == 1 else 'seeds'} {', '.join(map(str, shared))}"
    return _found(share > 50, f"{share:.0f}% of the gap (paper {paper:.0f}%): {numbers}; {seeds}")


# Beyond the paper's experiments


@claim("It is applicable to feature outliers: finding them (claimed, not tested there)")
def finds_feature_outliers(measured: Measured) -> Finding:
    """F1 of the dropped set above what dropping at random can reach, and AUROC above 0.5."""
    rows = [row for row in measured.digits if row["noise"] == OUTLIERS and row["method"] == "step-e"]
    f1 = mean([row["dropped_f1"] for row in rows if row["dropped_f1"] is not None])
    auroc = mean([row["auroc"] for row in rows if row["auroc"] is not None])
    if f1 is None or auroc is None:
        return _missing("Step-E on the digits with outliers")
    evidence = f"digits, 20% outliers, {len(rows)} runs: F1 {f1:.3f} (at random at most {_random_f1():.3f})"
    return _found(f1 > _random_f1() and auroc > 0.5, f"{evidence}, AUROC {auroc:.3f}")


@claim("It is applicable to feature outliers: learning despite them (claimed, not tested there)")
def gains_under_feature_outliers(measured: Measured) -> Finding:
    """More accurate than plain training by more than two standard errors over seeds."""
    accuracies = {
        method: {
            row["seed"]: 100 * row["accuracy"]
            for row in measured.digits
            if row["noise"] == OUTLIERS and row["method"] == method
        }
        for method in ("step-e", "plain")
    }
    ours, plain = accuracies["step-e"], accuracies["plain"]
    gains = [ours[seed] - plain[seed] for seed in sorted(ours.keys() & plain.keys())]
    if len(gains) < 2:
        return _missing("Step-E and plain training on the digits with outliers, two seeds or more")
    gain, error = statistics.fmean(gains), statistics.stdev(gains) / len(gains) ** 0.5
    evidence = (
        f"digits, 20% outliers, {len(gains)} seeds: {signed(gain, decimals=2)} points, standard error {error:.2f}"
    )
    return _found(gain > 2 * error, evidence)


THEORY_TESTS = (
    "test_a_rho_max_equal_to_the_rate_needs_no_reward",
    "test_without_reward_a_rho_max_above_the_rate_also_drops_clean_samples",
    "test_a_reward_between_the_losses_keeps_exactly_the_clean_set_for_any_rho_max_above_the_rate",
)
"""what settles the claim about separated losses"""


@claim("With separated losses the optimum of the objective is the clean subset, for any rho_max at or above the rate")
def separated_losses_give_the_clean_subset(measured: Measured) -> Finding:
    """The global minimum over the gates, at the ideal parameters."""
    condition = (
        "if rho_max equals the noise rate, or a keep reward lies between the clean and the noisy losses; otherwise "
        "clean samples are dropped too"
    )
    named = ", ".join(f"`{name}`" for name in THEORY_TESTS)
    return Finding(Verdict.CONDITIONAL, f"{condition}: `tests/reproduction/test_theory.py` ({named})")


def _found(holds: bool, evidence: str) -> Finding:
    return Finding(Verdict.HOLDS if holds else Verdict.FAILS, evidence)


def _missing(what: str) -> Finding:
    return Finding(Verdict.NOT_MEASURED, f"needs {what}")


def _average(measured: Measured, method: str, metric: Metric) -> float | None:
    return mean(known(by_seed(measured.runs, method).values(), metric))


def _ramp(measured: Measured, value: Callable[[Epoch], float | None]) -> dict[int, float]:
    """Return a share by epoch, while Step-E drops anything, of the run that the paper's figure shows."""
    run = by_seed(measured.runs, "step-e").get(FIGURE_SEED)
    rows = run["history"] if run else []
    return {row["epoch"]: share for row in rows if row["dropped"] and (share := value(row)) is not None}


def _first_drop(measured: Measured) -> int | None:
    """Find the first epoch in which any run of Step-E drops a sample."""
    runs = by_seed(measured.runs, "step-e").values()
    return min((row["epoch"] for run in runs for row in run["history"] if row["dropped"]), default=None)


def _leads(measured: Measured) -> dict[int, float]:
    """Average the lead of Step-E over the baseline by epoch, over the seeds and in the epochs that both have."""
    ours, baseline = by_seed(measured.runs, "step-e"), by_seed(measured.runs, "baseline")
    leads: dict[int, list[float]] = {}
    shared = ours.keys() & baseline.keys()
    for seed in shared:
        reference = _accuracies(baseline[seed])
        for epoch, accuracy in _accuracies(ours[seed]).items():
            if epoch in reference:
                leads.setdefault(epoch, []).append(accuracy - reference[epoch])
    return {epoch: statistics.fmean(each) for epoch, each in sorted(leads.items()) if len(each) == len(shared)}


def _accuracies(run: MeasuredRun) -> dict[int, float]:
    return {row["epoch"]: value for row in run["history"] if (value := row["test_accuracy"]) is not None}


def _counted(leads: Mapping[int, float]) -> str:
    above, below = (sum(sign * lead > 0 for lead in leads.values()) for sign in (1, -1))
    return f"above in {above}, equal in {len(leads) - above - below}, below in {below} of {len(leads)} epochs"


def _share_of_gap(levels: Mapping[str, float | None]) -> float | None:
    """Percent of the way from the baseline to the oracle; ``None`` where there is no gap to close."""
    baseline, ours, oracle = levels["baseline"], levels["step-e"], levels["oracle"]
    if baseline is None or ours is None or oracle is None or oracle <= baseline:
        return None
    return 100 * (ours - baseline) / (oracle - baseline)


def _random_f1() -> float:
    """Return the best F1 of a drop that knows nothing: dropping all, with the rate as precision and recall 1."""
    rate = float(OUTLIERS.partition(":")[2])
    return 2 * rate / (1 + rate)
