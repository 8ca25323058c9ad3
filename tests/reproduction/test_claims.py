import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from stepe.reproduction import claims
from stepe.reproduction.claims import CLAIMS, Finding, Measured, Verdict, claims_table, write_claims
from stepe.reproduction.tables import MeasuredRun, latex

ALL = [claim.test for claim in CLAIMS]
EMPTY = Measured([])


def run(
    method: str, seed: int = 42, accuracy: float = 50.0, history: Sequence[Any] = (), **changes: Any
) -> MeasuredRun:
    identity = {"data": "cifar100n", "labels": "noisy", "stem": "imagenet", "variant": None}
    metrics = {"noise_f1": None, "noise_auroc": None, "seconds_per_epoch": None}
    finished = {"method": method, "seed": seed, "test_accuracy": accuracy, "history": list(history)}
    return {**identity, **metrics, **finished, **changes}  # type: ignore[typeddict-item]


def epochs(**columns: Sequence[float]) -> list[dict[str, Any]]:
    """A history from columns; the first epoch drops nothing."""
    rows = zip(*columns.values(), strict=True)
    empty = {"test_accuracy": None, "precision": None, "recall": None, "f1": None}
    return [
        {**empty, "epoch": epoch, "dropped": min(epoch, 1), **dict(zip(columns, values, strict=True))}
        for epoch, values in enumerate(rows)
    ]


def on_step_e(test: Callable[[Measured], Finding], **columns: Sequence[float]) -> Finding:
    return test(Measured([run("step-e", history=epochs(**columns))]))


def verdicts(*findings: Finding) -> list[str]:
    return [finding.verdict.value for finding in findings]


HOLDS, FAILS, NOT_MEASURED = "holds", "does not hold", "not measured"


def test_without_results_nothing_is_judged_but_what_tests_prove() -> None:
    found = verdicts(*(test(EMPTY) for test in ALL))
    assert found == [NOT_MEASURED] * (len(ALL) - 1) + ["holds on a condition"]


def test_the_gain_over_the_baseline_is_taken_on_shared_seeds() -> None:
    runs = [run("step-e", accuracy=50.5), run("baseline", accuracy=43.0), run("baseline", 13, accuracy=10.0)]
    finding = claims.gains_over_seven_points(Measured(runs))
    assert finding == Finding(Verdict.HOLDS, "+7.5 points (paper +7.1)")
    runs[0] = run("step-e", accuracy=49.9)
    assert claims.gains_over_seven_points(Measured(runs)).verdict is Verdict.FAILS


def test_step_e_must_lead_in_every_metric() -> None:
    def finding(auroc: float) -> Finding:
        runs = [
            run("step-e", accuracy=50.0, noise_f1=72.0, noise_auroc=auroc),
            run("one-shot", accuracy=44.0, noise_f1=62.0, noise_auroc=79.0),
            run("self-paced", accuracy=43.0, noise_f1=0.0, noise_auroc=78.0),
            run("truncation", accuracy=9.0),
        ]
        return claims.beats_the_other_methods(Measured(runs))

    assert verdicts(finding(85.0), finding(78.5)) == [HOLDS, FAILS]
    assert "AUROC 78.5 against 79.0 (One-Shot)" in finding(78.5).evidence


def test_one_method_missing_leaves_the_comparison_open() -> None:
    runs = [run(method, noise_f1=1.0, noise_auroc=1.0) for method in ("step-e", "one-shot", "self-paced")]
    assert claims.beats_the_other_methods(Measured(runs)).verdict is Verdict.NOT_MEASURED


def test_near_chance_means_twice_chance_at_most() -> None:
    found = [claims.truncation_is_near_chance(Measured([run("truncation", accuracy=each)])) for each in (1.5, 9.9)]
    assert verdicts(*found) == [HOLDS, FAILS]
    assert found[1].evidence == "9.9%, 9.9 times chance (paper 9.9%)"


def both_curves(step_e: Sequence[float], baseline: Sequence[float]) -> Measured:
    curves = {"step-e": step_e, "baseline": baseline}
    return Measured([run(method, history=epochs(test_accuracy=curve)) for method, curve in curves.items()])


def test_an_identical_warm_up_is_no_dominance() -> None:
    measured = both_curves([10, 21, 31], [10, 20, 30])
    throughout, later = claims.dominates_throughout(measured), claims.dominates_once_it_drops(measured)
    assert verdicts(throughout, later) == [FAILS, HOLDS]
    assert throughout.evidence == "above in 2, equal in 1, below in 0 of 3 epochs"
    assert later.evidence.endswith("above in 2, equal in 0, below in 0 of 2 epochs; smallest lead +1.0 in epoch 2")


def test_dominance_holds_above_in_every_epoch_and_falls_with_one() -> None:
    assert claims.dominates_throughout(both_curves([11, 21, 31], [10, 20, 30])).verdict is Verdict.HOLDS
    assert claims.dominates_once_it_drops(both_curves([11, 21, 29], [10, 20, 30])).verdict is Verdict.FAILS


def test_dominance_is_of_the_mean_over_seeds() -> None:
    runs = [
        run("step-e", 1, history=epochs(test_accuracy=[12, 12])),
        run("baseline", 1, history=epochs(test_accuracy=[10, 10])),
        run("step-e", 2, history=epochs(test_accuracy=[9, 9])),
        run("baseline", 2, history=epochs(test_accuracy=[10, 10])),
    ]
    assert claims.dominates_throughout(Measured(runs)).verdict is Verdict.HOLDS


@pytest.mark.parametrize(
    ("precision", "verdict"),
    [
        ([0, 70, 88, 70], HOLDS),
        ([0, 70, 80, 88], FAILS),
        ([0, 70, 75, 70], FAILS),
        ([0, 96, 88, 70], FAILS),
        ([99, 70, 88, 70], HOLDS),  # before anything is dropped the value means nothing
    ],
)
def test_precision_peaks_in_the_range_and_falls(precision: list[float], verdict: str) -> None:
    assert on_step_e(claims.precision_rises_then_falls, precision=precision).verdict.value == verdict


@pytest.mark.parametrize(
    ("recall", "verdict"),
    [
        ([0, 19, 38, 57, 76], HOLDS),
        ([0, 18, 36, 54, 72], FAILS),
        ([0, 10, 10, 10, 10, 77], FAILS),
        ([0, 77, 77, 77], NOT_MEASURED),
    ],
)
def test_recall_grows_straight_to_77(recall: list[float], verdict: str) -> None:
    assert on_step_e(claims.recall_grows, recall=recall).verdict.value == verdict


@pytest.mark.parametrize(
    ("f1", "verdict"), [([0, 30, 71, 72], HOLDS), ([0, 71, 69, 72], FAILS), ([0, 30, 60, 69], FAILS)]
)
def test_f1_stays_above_70_once_it_is_there(f1: list[float], verdict: str) -> None:
    assert on_step_e(claims.f1_stays_above_70, f1=f1).verdict.value == verdict


def test_dynamics_are_those_of_seed_42() -> None:
    other = Measured([run("step-e", 13, history=epochs(f1=[0, 71, 72]))])
    assert claims.f1_stays_above_70(other).verdict is Verdict.NOT_MEASURED


def test_the_overhead_is_judged_beside_the_papers() -> None:
    def finding(seconds: float) -> Finding:
        times = [run("baseline", seconds_per_epoch=0.5), run("step-e", seconds_per_epoch=seconds)]
        return claims.costs_what_the_paper_pays(Measured(times))

    assert verdicts(finding(0.70), finding(0.45)) == [HOLDS, FAILS]
    assert finding(0.45).evidence == "−10.0% (0.45 s an epoch against 0.50 s)"


def on_cifar10n(**levels: float) -> Finding:
    runs = [
        run(method.replace("_", "-"), accuracy=level, data="cifar10n", labels="aggre")
        for method, level in levels.items()
    ]
    return claims.closes_most_of_the_gap(Measured(runs))


def test_most_of_the_gap_is_more_than_half() -> None:
    most, less = (on_cifar10n(baseline=84.0, step_e=level, oracle=88.0) for level in (86.4, 85.6))
    assert verdicts(most, less) == [HOLDS, FAILS]
    assert most.evidence.startswith("60% of the gap (paper 70%): Baseline 84.0, Step-E 86.4")
    assert on_cifar10n(baseline=88.0, step_e=88.0, oracle=88.0).verdict is Verdict.NOT_MEASURED
    assert on_cifar10n(baseline=84.0, oracle=88.0).verdict is Verdict.NOT_MEASURED


def digits(gains: Sequence[float], f1: float = 0.8, auroc: float = 0.95) -> list[dict[str, Any]]:
    found = {"noise": "outliers:0.2", "auroc": auroc, "dropped_f1": f1}
    plain = [{**found, "method": "plain", "seed": seed, "accuracy": 0.9} for seed in range(len(gains))]
    ours = [{**found, "method": "step-e", "seed": seed, "accuracy": 0.9 + gain} for seed, gain in enumerate(gains)]
    other_noise = [{**row, "noise": "symmetric:0.4", "accuracy": 0.0, "dropped_f1": 0.0} for row in ours]
    return plain + ours + other_noise


def test_outliers_are_found_better_than_at_random() -> None:
    def finding(**changes: float) -> Finding:
        return claims.finds_feature_outliers(Measured([], digits([0.0], **changes)))  # type: ignore[arg-type]

    assert verdicts(finding(), finding(f1=0.33), finding(auroc=0.4)) == [HOLDS, FAILS, FAILS]


def test_a_gain_under_outliers_must_exceed_the_noise_of_seeds() -> None:
    def finding(*gains: float) -> Finding:
        return claims.gains_under_feature_outliers(Measured([], digits(gains)))  # type: ignore[arg-type]

    found = [finding(0.01, 0.011, 0.012), finding(0.03, -0.02, 0.005), finding(-0.01, -0.011), finding(0.01)]
    assert verdicts(*found) == [HOLDS, FAILS, FAILS, NOT_MEASURED]
    assert "+1.10 points, standard error 0.06" in found[0].evidence


def test_the_tests_that_settle_the_theory_exist() -> None:
    source = (Path(__file__).parent / "test_theory.py").read_text()
    assert set(claims.THEORY_TESTS) <= set(re.findall(r"^def (test_\w+)", source, flags=re.MULTILINE))


def test_the_table_reads_results_and_the_digits_beside_them(tmp_path: Path) -> None:
    results = tmp_path / "paper"
    results.mkdir()
    (results / "cifar100n.json").write_text(json.dumps({"runs": [run("truncation", accuracy=9.9)]}))
    (tmp_path / "digits.json").write_text(json.dumps({"rows": digits([0.01, 0.012])}))
    table = claims_table(results)
    judged = {statement: verdict for statement, _, verdict, _ in table.rows}
    assert len(judged) == len(CLAIMS)
    assert judged["Truncation remains near chance"] == FAILS
    assert judged["It is applicable to feature outliers: finding them (claimed, not tested there)"] == HOLDS
    assert judged["F1 stabilizes above 70%"] == NOT_MEASURED
    assert latex(table).isascii()


def test_the_table_is_written_in_both_formats(tmp_path: Path) -> None:
    written = write_claims(tmp_path / "nowhere", tmp_path)
    assert [path.relative_to(tmp_path).as_posix() for path in written] == ["tables/claims.md", "tables/claims.tex"]
    assert NOT_MEASURED in written[0].read_text()
