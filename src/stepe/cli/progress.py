"""How a run shows itself while it trains: a live bar in a terminal, plain lines elsewhere."""

import time
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

if TYPE_CHECKING:
    from stepe.training.building import Result, Training
    from stepe.training.session import Row


class Silent:
    """Shows nothing; base of what shows some of a run. It loads nothing that trains."""

    def run_started(self, training: "Training") -> None:
        """Do nothing."""

    def epoch_ended(self, training: "Training", row: "Row") -> None:
        """Do nothing."""

    def run_ended(self, result: "Result") -> None:
        """Do nothing."""

    def round_ended(self, number: int, most: int, rate: float) -> None:
        """Do nothing."""


class Bars:
    """Live bars for terminals, one a run."""

    def __init__(self, console: Console):
        self.progress = Progress(
            TextColumn("{task.description:<12}"),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[step]} {task.completed}/{task.total}"),
            TextColumn("{task.fields[status]}", style="dim"),
            TimeRemainingColumn(compact=True),
            console=console,
        )

    def follow(self, method: str, position: int, total: int) -> "Bar":
        """Make the bar of one run."""
        self.progress.start()  # not before there is something to show: until then, questions may be asked
        return Bar(self.progress, method)


class Bar(Silent):
    """The bar of one run."""

    def __init__(self, progress: Progress, method: str):
        self.progress, self.method = progress, method
        self.task: TaskID | None = None

    def run_started(self, training: "Training") -> None:
        """Show the bar, at the epoch a resumed run stands at."""
        self.task = self.progress.add_task(
            self.method, total=training.task.epochs, completed=training.epoch, status="", step="epoch"
        )

    def epoch_ended(self, training: "Training", row: "Row") -> None:
        """Move the bar on."""
        assert self.task is not None
        self.progress.update(self.task, completed=training.epoch, status=status(row))

    def round_ended(self, number: int, most: int, rate: float) -> None:
        """Move the bar of an audit on."""
        if self.task is None:
            self.task = self.progress.add_task(self.method, total=most, status="", step="round")
        self.progress.update(self.task, completed=number, status=found_so_far(rate))


class Lines(Silent):
    """A plain line now and then, for logs: no control codes."""

    EVERY = 10

    def __init__(self, console: Console, method: str):
        self.console, self.method = console, method

    def run_started(self, training: "Training") -> None:
        """Start the clock."""
        self.started, self.first = time.perf_counter(), training.epoch

    def epoch_ended(self, training: "Training", row: "Row") -> None:
        """Print a line for every tenth epoch and the last."""
        epoch, epochs = training.epoch, training.task.epochs
        if epoch % self.EVERY and epoch != epochs:
            return
        left = (time.perf_counter() - self.started) / (epoch - self.first) * (epochs - epoch)
        self.console.print(
            f"{self.method:<12} epoch {epoch}/{epochs}  {status(row)}  about {left:.0f} s left",
            highlight=False,
            soft_wrap=True,
        )

    def round_ended(self, number: int, most: int, rate: float) -> None:
        """Print a line for every round."""
        self.console.print(f"{self.method:<12} round {number}: {found_so_far(rate)}", highlight=False, soft_wrap=True)


def found_so_far(rate: float) -> str:
    """Describe a round in a few words."""
    return f"{rate:.0%} of the labels seem wrong"


def status(row: dict[str, Any]) -> str:
    """Describe an epoch in a few words."""
    kept = row["kept"] / (row["kept"] + row["dropped"])
    accuracy = f"  accuracy {row['test_accuracy']:.1%}" if "test_accuracy" in row else ""
    return f"loss {row['train_loss']:.3f}  kept {kept:.0%}{accuracy}"
