"""What the command line prints when the work is done."""

import io
from typing import Any

import pandas as pd
from rich.console import Console
from rich.table import Table

from stepe.cli.tables import comparison, percent, suspects
from stepe.loop.metrics import Detection
from stepe.run.record import NoiseFound, Summary


class FakeRun:
    """A run with nothing but its numbers."""

    def __init__(self, method: str, **summary: Any):
        self.method = method
        self.summary = Summary(**({"samples": 20, "dropped": 10, "flagged": 8, "seconds": 1.25} | summary))


def cells(table: Table) -> list[list[str]]:
    console = Console(file=io.StringIO(), width=200, emoji=False)
    console.print(table)
    lines = console.file.getvalue().splitlines()
    return [[cell.strip() for cell in line.strip("│").split("│")] for line in lines if line.startswith("│")]


def noise(noisy: int = 10, auroc: float | None = 0.987) -> NoiseFound:
    return NoiseFound(noisy, auroc, dropped=Detection(0.9, 0.9, 0.9), flagged=Detection(0.95, 0.95, 0.95))


def issues(n: int) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "id": [f"[b]{i}" for i in range(n)],
            "given_label": ["[red]cat"] * n,
            "suggested_label": ["dog"] * n,
            "suggestion_confidence": [0.5] * n,
            "suspicion": [0.99] * n,
            "dropped_share": [0.8] * n,
        }
    )


def test_runs_stand_side_by_side_in_the_order_given():
    runs = [
        FakeRun("plain", dropped=0, flagged=0, test_accuracy=0.871, noise=noise()),
        FakeRun("step-e", noise=noise()),
    ]
    assert cells(comparison(runs, ["one", "two"], "title")) == [
        ["one", "87.1%", "-", "-", "98.7%", "-", "1.2"],
        ["two", "-", "90.0%", "95.0%", "98.7%", "8", "1.2"],
    ]


def test_what_is_not_known_is_a_dash():
    assert cells(comparison([FakeRun("step-e", test_accuracy=0.5)], ["run"], "")) == [
        ["run", "50.0%", "-", "-", "-", "8", "1.2"]
    ]
    assert cells(comparison([FakeRun("step-e", noise=noise(noisy=0, auroc=None))], ["run"], ""))[0][4] == "-"


def test_judges_look_for_suspects_even_where_they_drop_nothing():
    found = cells(comparison([FakeRun("audit", dropped=0, flagged=2, noise=noise())], ["audit"], ""))
    assert found == [["audit", "-", "-", "95.0%", "98.7%", "2", "1.2"]]


def test_the_oracle_saw_the_clean_labels_so_its_ranking_says_nothing():
    assert cells(comparison([FakeRun("oracle", noise=noise())], ["oracle"], ""))[0][4] == "-"


def test_the_top_suspects_are_printed_as_they_are():
    table = suspects(issues(12), most=10)
    assert table.title == "Top suspects, 10 of 12"
    rows = cells(table)
    assert len(rows) == 10
    assert rows[0] == ["[b]0", "[red]cat", "dog", "50.0%", "0.990", "80% of epochs"]


def test_of_suspects_of_judges_nobody_asks_how_often_they_were_dropped():
    table = suspects(issues(2), dropped=False)
    assert [column.header for column in table.columns] == ["id", "given", "suggested", "confidence", "suspicion"]
    assert cells(table)[0] == ["[b]0", "[red]cat", "dog", "50.0%", "0.990"]


def test_fewer_suspects_than_places_are_all_shown():
    assert suspects(issues(3)).title == "Top suspects, 3 of 3"
    assert len(cells(suspects(issues(3)))) == 3


def test_a_share_is_a_percentage_and_none_a_dash():
    assert percent(0.9876) == "98.8%"
    assert percent(float("nan")) == "-"
    assert percent(0.0) == "0.0%"
    assert percent(None) == "-"
