"""What the command line prints when the work is done."""

from typing import TYPE_CHECKING

from rich.table import Table

from stepe.app.run import Run
from stepe.cli.messages import as_it_is
from stepe.run.record import AUDIT

if TYPE_CHECKING:
    import pandas as pd


def comparison(runs: list[Run], names: list[str], title: str) -> Table:
    """Put runs side by side."""
    table = Table(title=title, title_justify="left", title_style="bold")
    table.add_column("run")
    # Two lines where that leaves room for the longest name of a method in a narrow terminal.
    for column in ("accuracy", "F1\ndropped", "F1\nflagged", "AUROC", "flagged", "seconds"):
        table.add_column(column, justify="right")
    for run, name in zip(runs, names, strict=True):
        summary = run.summary
        noise = summary.noise
        drops = bool(summary.dropped)
        looks_for_suspects = drops or run.method == AUDIT
        table.add_row(
            name,
            percent(summary.test_accuracy),
            percent(noise.dropped.f1) if noise and drops else "-",
            percent(noise.flagged.f1) if noise and looks_for_suspects else "-",
            percent(noise.auroc) if noise and noise.noisy and run.method != "oracle" else "-",
            str(summary.flagged) if looks_for_suspects else "-",
            f"{summary.seconds:.1f}",
        )
    return table


def suspects(issues: "pd.DataFrame", most: int = 10, *, dropped: bool = True) -> Table:
    """List the labels to look at first, with how often they were ``dropped``."""
    title = f"Top suspects, {min(most, len(issues))} of {len(issues)}"
    table = Table(title=title, title_justify="left", title_style="bold")
    table.add_column("id")
    table.add_column("given")
    table.add_column("suggested")
    for column in ("confidence", "suspicion", *(["dropped in"] if dropped else [])):
        table.add_column(column, justify="right")
    for issue in issues.head(most).to_dict("records"):
        often = [f"{issue['dropped_share']:.0%} of epochs"] if dropped else []
        table.add_row(
            as_it_is(issue["id"]),
            as_it_is(issue["given_label"]),
            as_it_is(issue["suggested_label"] or "none of the classes"),
            percent(issue["suggestion_confidence"]),
            f"{issue['suspicion']:.3f}",
            *often,
        )
    return table


def percent(value: float | None) -> str:
    """Write a share for people; a dash where there is none."""
    return "-" if value is None or value != value else f"{100 * value:.1f}%"
