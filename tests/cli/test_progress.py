"""How a run shows itself while it trains."""

import io
import re

import pytest
from rich.console import Console

import stepe
from stepe.cli.progress import Bars, Lines, Silent, status

ROW = {"train_loss": 0.12345, "kept": 60, "dropped": 40}


@pytest.fixture
def train(blobs, make_model):
    def train(observer, epochs: int = 12, **options):
        return stepe.fit(
            make_model(),
            blobs.x,
            blobs.given,
            method="plain",
            epochs=epochs,
            batch_size=32,
            device="cpu",
            observers=(observer,),
            **options,
        )

    return train


def test_an_epoch_in_a_few_words():
    assert status(ROW) == "loss 0.123  kept 60%"
    assert status(ROW | {"test_accuracy": 0.9}) == "loss 0.123  kept 60%  accuracy 90.0%"


def test_lines_come_every_ten_epochs_and_at_the_end_without_control_codes(train, blobs):
    console = Console(file=io.StringIO(), width=200)
    train(Lines(console, "plain"), test=(blobs.x, blobs.clean))
    lines = console.file.getvalue().splitlines()
    assert len(lines) == 2
    assert re.fullmatch(
        r"plain        epoch 10/12  loss \d\.\d{3}  kept 100%  accuracy \d+\.\d%  about \d+ s left", lines[0]
    )
    assert lines[1].startswith("plain        epoch 12/12")
    assert "\x1b" not in "".join(lines)


def test_lines_go_on_where_a_resumed_run_stands(train, tmp_path):
    class Stop(Silent):
        def epoch_ended(self, training, row):
            if training.epoch == 11:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(Stop(), run=tmp_path / "run")
    console = Console(file=io.StringIO(), width=200)
    train(Lines(console, "plain"), run=tmp_path / "run", resume=True)
    assert console.file.getvalue().startswith("plain        epoch 12/12")


def test_a_bar_moves_to_the_end_in_a_terminal(train):
    console = Console(file=io.StringIO(), width=120, force_terminal=True)
    bars = Bars(console)
    with bars.progress:
        train(bars.follow("plain", 0, 2), epochs=3)
        train(bars.follow("step-e", 1, 2), epochs=4)
    done = [(task.description, task.completed, task.total) for task in bars.progress.tasks]
    assert done == [("plain", 3, 3), ("step-e", 4, 4)]
    assert "kept 100%" in console.file.getvalue()


def test_a_bar_starts_where_a_resumed_run_stands():
    class Training:
        class task:  # noqa: N801
            epochs = 10

        epoch = 7

    bars = Bars(Console(file=io.StringIO()))
    bars.follow("plain", 0, 1).run_started(Training)
    bars.progress.stop()
    assert bars.progress.tasks[0].completed == 7


def test_silence_shows_nothing(capsys, train):
    train(Silent(), epochs=2)
    assert capsys.readouterr() == ("", "")


def test_rounds_of_judges_are_lines_or_a_bar_that_ends_with_them():
    console = Console(file=io.StringIO(), width=200)
    for number, rate in ((1, 0.25), (2, 0.2)):
        Lines(console, "audit").round_ended(number, 3, rate)
    assert console.file.getvalue().splitlines() == [
        "audit        round 1: 25% of the labels seem wrong",
        "audit        round 2: 20% of the labels seem wrong",
    ]
    bars = Bars(Console(file=io.StringIO(), width=120, force_terminal=True))
    bar = bars.follow("audit", 0, 1)
    bar.round_ended(1, 3, 0.25)
    bar.round_ended(2, 3, 0.2)
    bars.progress.stop()
    (task,) = bars.progress.tasks
    assert (task.description, task.completed, task.total, task.fields["step"]) == ("audit", 2, 3, "round")
