import json
import statistics
from pathlib import Path
from typing import Any

import pytest

from stepe import RunError
from stepe.reproduction.numbers import MAIN, METHOD_TITLES, NOISE, PER_SEED
from stepe.reproduction.tables import (
    Column,
    MeasuredRun,
    Table,
    cifar10n_more_table,
    cifar10n_table,
    cifar_stem_table,
    latex,
    main_table,
    markdown,
    measured_with,
    noise_table,
    per_seed_table,
    read_runs,
    sensitivity_table,
    write_tables,
)


def run(method: str = "step-e", seed: int = 42, accuracy: float | None = 50.0, **changes: Any) -> MeasuredRun:
    finished: MeasuredRun = {
        "data": "cifar100n",
        "labels": "noisy",
        "method": method,
        "seed": seed,
        "stem": "imagenet",
        "variant": None,
        "epochs": 60,
        "test_accuracy": accuracy,
        "noise_f1": None,
        "noise_auroc": None,
        "seconds_per_epoch": None,
        "total_seconds": None,
        "history": [],
    }
    return {**finished, **changes}  # type: ignore[typeddict-item]


def write(folder: Path, name: str, runs: list[MeasuredRun], environment: dict[str, str] | None = None) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.json").write_text(json.dumps({"runs": runs, "environment": environment or {}}))


def row_of(table: Table, *start: str) -> tuple[str, ...]:
    """What follows the given first cells."""
    (found,) = [row for row in table.rows if row[: len(start)] == start]
    return found[len(start) :]


# The paper's numbers


@pytest.mark.parametrize("method", MAIN)
def test_the_papers_per_seed_table_gives_its_other_tables(method: str) -> None:
    seeds = [PER_SEED[method, seed] for seed in (13, 21, 42)]
    accuracies = [each.accuracy for each in seeds]
    assert statistics.fmean(accuracies) == pytest.approx(MAIN[method].mean, abs=0.051)
    assert statistics.stdev(accuracies) == pytest.approx(MAIN[method].deviation, abs=0.1)
    if method in NOISE:
        # The paper's total times hold 1 to 2% more than its epochs.
        seconds = statistics.fmean(each.seconds for each in seeds) / 60
        assert seconds == pytest.approx(NOISE[method].seconds_per_epoch, rel=0.025)
        assert 100 * (NOISE[method].seconds_per_epoch / NOISE["baseline"].seconds_per_epoch - 1) == pytest.approx(
            NOISE[method].overhead, abs=0.1
        )
        for field in ("f1", "auroc"):
            values = [getattr(each, field) for each in seeds]
            paper = getattr(NOISE[method], field)
            assert (
                (values == [None] * 3) if paper is None else statistics.fmean(values) == pytest.approx(paper, abs=0.1)
            )


# The paper's tables


def test_the_main_table_has_mean_sample_deviation_and_difference() -> None:
    runs = [run(seed=seed, accuracy=accuracy) for seed, accuracy in ((42, 51.0), (13, 50.0), (21, 49.0))]
    table = main_table(runs)
    assert row_of(table, "Step-E") == ("50.4 ± 0.9", "50.0 ± 1.0", "−0.4", "13, 21, 42")
    assert [row[0] for row in table.rows] == list(METHOD_TITLES.values())


def test_a_missing_run_is_a_dash_and_one_seed_has_no_deviation() -> None:
    table = main_table([run(accuracy=50.44)])
    assert row_of(table, "Step-E") == ("50.4 ± 0.9", "50.4", "0.0", "42")
    assert row_of(table, "Baseline") == ("43.3 ± 0.7", "–", "–", "–")


def test_other_stems_label_sets_and_variants_stay_out_of_the_papers_tables() -> None:
    others = [
        run(accuracy=90.0, stem="cifar"),
        run(accuracy=90.0, data="cifar10n", labels="aggre"),
        run(accuracy=90.0, variant="rho_max=0.25"),
    ]
    assert row_of(main_table([*others, run(accuracy=50.0)]), "Step-E")[1] == "50.0"


def test_a_run_that_is_there_twice_counts_once() -> None:
    assert row_of(main_table([run(), run(), run(seed=13, accuracy=52.0)]), "Step-E")[1] == "51.0 ± 1.4"


def test_the_noise_table_has_overheads_of_the_timed_runs() -> None:
    runs = [
        run("baseline", seconds_per_epoch=0.5),
        run("baseline", 13),
        run("step-e", noise_f1=72.0, noise_auroc=85.0, seconds_per_epoch=0.45),
        run("step-e", 13, noise_f1=73.0, noise_auroc=84.0),
    ]
    table = noise_table(runs)
    assert " ".join(row_of(table, "Baseline")) == "n/a n/a – n/a n/a – 13.85 0.50 −13.35 0.0 0.0 0.0"
    assert " ".join(row_of(table, "Step-E")) == "72.2 72.5 +0.3 84.8 84.5 −0.3 19.17 0.45 −18.72 38.4 −10.0 −48.4"
    assert " ".join(row_of(table, "One-Shot")) == "62.4 – – 79.0 – – 16.72 – – 20.7 – –"
    assert "Oracle (clean labels)" not in [row[0] for row in table.rows]


def test_without_a_timed_baseline_there_is_no_overhead() -> None:
    assert row_of(noise_table([run(seconds_per_epoch=0.45)]), "Step-E")[-2:] == ("n/a", "–")


def test_an_overhead_of_nothing_has_no_sign() -> None:
    runs = [run("baseline", seconds_per_epoch=1.0), run("step-e", seconds_per_epoch=0.9999)]
    assert row_of(noise_table(runs), "Step-E")[-2] == "0.0"


def test_the_per_seed_table_compares_run_by_run() -> None:
    runs = [
        run("step-e", 42, 50.5, noise_f1=72.4, noise_auroc=85.1, total_seconds=40.0),
        run("step-e", 13, 50.9),
        run("step-e", 7, 40.0),
    ]
    table = per_seed_table(runs)
    assert " ".join(row_of(table, "Step-E", "42")) == "51.0 50.5 −0.5 1171.0 40.0 −1131.0 72.1 72.4 +0.3 84.9 85.1 +0.2"
    assert " ".join(row_of(table, "Step-E", "13")) == "50.9 50.9 0.0 1170.7 n/a – 72.5 n/a – 85.0 n/a –"
    assert " ".join(row_of(table, "Step-E", "21")) == "49.4 – – 1166.0 – – 72.1 – – 84.5 – –"
    assert row_of(table, "Step-E", "7")[:3] == ("n/a", "40.0", "–")
    assert len(table.rows) == 19


def test_cifar10n_compares_seed_42_and_shows_all_seeds() -> None:
    runs = [
        run("baseline", seed, accuracy, data="cifar10n", labels="aggre") for seed, accuracy in ((42, 84.0), (1, 86.0))
    ]
    table = cifar10n_table(runs)
    assert row_of(table, "Baseline") == ("83.9", "84.0", "+0.1", "85.0 ± 1.4", "1, 42")
    assert row_of(table, "Step-E") == ("85.3", "–", "–", "–", "–")


# What the paper does not have


def test_variants_stand_beside_the_papers_setting_of_the_same_seeds() -> None:
    runs = [
        run(seed=42, accuracy=50.0, noise_f1=72.0, noise_auroc=85.0),
        run(seed=13, accuracy=60.0),
        run(accuracy=47.0, variant="rho_max=0.25", noise_f1=60.0, noise_auroc=84.0),
        run("self-paced", accuracy=43.0, variant="from 0.3 by 70%"),
    ]
    table = sensitivity_table(runs)
    assert table.rows == (
        ("Self-Paced", "the paper's", "–", "–", "–", "–", "–"),
        ("Self-Paced", "from 0.3 by 70%", "43.0", "n/a", "n/a", "42", "–"),
        ("Step-E", "the paper's", "50.0", "72.0", "85.0", "42", "–"),
        ("Step-E", "rho_max=0.25", "47.0", "60.0", "84.0", "42", "−3.0"),
    )


def test_both_stems_are_compared_on_the_same_seeds() -> None:
    runs = [
        run(accuracy=50.0, noise_f1=72.0, noise_auroc=85.0),
        run(seed=13, accuracy=60.0),
        run(accuracy=61.8, stem="cifar", noise_f1=73.0, noise_auroc=86.0),
        run("oracle", accuracy=60.0),
    ]
    table = cifar_stem_table(runs)
    assert row_of(table, "Step-E") == ("50.0", "61.8", "+11.8", "72.0", "73.0", "85.0", "86.0", "42")
    assert row_of(table, "Oracle (clean labels)") == ("60.0", "–", "–", "n/a", "–", "n/a", "–", "–")


def test_one_oracle_serves_every_label_set() -> None:
    runs = [
        run("baseline", accuracy=73.0, data="cifar10n", labels="worst"),
        run("step-e", accuracy=79.0, data="cifar10n", labels="worst", noise_f1=84.2, noise_auroc=94.8),
        run("oracle", accuracy=88.0, data="cifar10n", labels="aggre"),
        run("oracle", 13, accuracy=80.0, data="cifar10n", labels="aggre"),
    ]
    assert cifar10n_more_table(runs).rows == (
        ("worst", "Baseline", "73.0", "n/a", "n/a", "42", "–"),
        ("worst", "Step-E", "79.0", "84.2", "94.8", "42", "+6.0"),
        ("worst", "Oracle (clean labels)", "88.0", "n/a", "n/a", "42", "+15.0"),
    )


# Text


HOSTILE = Table(
    "hostile",
    "50% of A_1 & B",
    (Column("Setting", align="l"), Column("ours", "Group #1"), Column("paper", "Group #1")),
    (("a|b*c*", "1 ± 2", "−3"), ("`rho_max|x`", "\\cmd{$x^2$}", "~")),
    ("see <b>",),
)


def test_latex_escapes_what_it_would_take_for_commands() -> None:
    text = latex(HOSTILE)
    assert r"\caption{50\% of A\_1 \& B}" in text
    assert r"a\textbar{}b*c* & 1 $\pm$ 2 & $-$3 \\" in text
    assert r"\texttt{rho\_\allowbreak{}max\textbar{}x} & " in text
    assert r"\textbackslash{}cmd\{\$x\textasciicircum{}2\$\} & \textasciitilde{} \\" in text
    assert r" & \multicolumn{2}{c}{Group \#1} \\" in text
    assert r"\cmidrule(lr){2-3}" in text
    assert r"\begin{tabular}{lrr}" in text
    assert [text.count(rule) for rule in (r"\toprule", r"\midrule", r"\bottomrule")] == [1, 1, 1]
    assert text.isascii()


def test_markdown_keeps_cells_apart_and_shows_text_as_it_is() -> None:
    assert markdown(HOSTILE).splitlines() == [
        r"50% of A\_1 & B",
        "",
        "| Setting | Group #1, ours | Group #1, paper |",
        "|:--|--:|--:|",
        r"| a\|b\*c\* | 1 ± 2 | −3 |",
        r"| `rho_max\|x` | \cmd{$x^2$} | ~ |",
        "",
        r"see \<b>",
    ]


@pytest.mark.parametrize("build", [main_table, noise_table, per_seed_table, cifar10n_table])
def test_every_row_has_a_cell_for_every_column(build: Any) -> None:
    table = build([run()])
    assert {len(row) for row in table.rows} == {len(table.columns)}
    assert latex(table).isascii()


# Files


def test_tables_are_written_in_both_formats_with_what_they_were_measured_with(tmp_path: Path) -> None:
    results = tmp_path / "results"
    write(results, "cifar100n", [run()], {"device_name": "NVIDIA H200", "torch": "2.11.0", "commit": "abc"})
    write(results, "sensitivity", [run(variant="warm-up 5")])
    written = write_tables(results, tmp_path / "out")
    names = ["main", "noise", "per-seed", "cifar10n", "sensitivity"]
    assert written == [tmp_path / "out" / "tables" / f"{name}.{kind}" for name in names for kind in ("md", "tex")]
    assert all(path.stat().st_size for path in written)
    assert (tmp_path / "out/tables/main.md").read_text().endswith("Ours: NVIDIA H200, torch 2.11.0, commit abc.\n")


def test_without_any_result_the_papers_tables_are_written_with_dashes(tmp_path: Path) -> None:
    written = write_tables(tmp_path / "nowhere", tmp_path / "out")
    assert len(written) == 8
    assert "| Step-E | 50.4 ± 0.9 | – | – | – |" in written[0].read_text()


@pytest.mark.parametrize("content", ['{"runs": [', "[]"])
def test_a_broken_result_file_is_named(tmp_path: Path, content: str) -> None:
    (tmp_path / "cifar10n.json").write_text(content)
    with pytest.raises(RunError, match=r"cifar10n\.json.* run `stepe reproduce` again"):
        read_runs(tmp_path)


def test_nothing_is_said_of_an_unknown_environment() -> None:
    assert measured_with({}) == ()
    assert measured_with({"torch": "2.11.0", "commit": None}) == ("Ours: torch 2.11.0.",)
