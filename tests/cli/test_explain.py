"""What happened to one sample, shown in a terminal."""

import io
from typing import Any

import pytest
from rich.console import Console

from stepe.cli.explain import changes, chart, show
from stepe.run.explanation import Explanation


def sample(**more: Any) -> dict[str, Any]:
    verdict = {
        "reason": "dropped in 80% of the epochs",
        "suspicion": 0.9,
        "suggestion_confidence": 0.75,
        "flagged": True,
        "split": "train",
    }
    return {"id": "7", "row": 12, "given_label": "cat", "suggested_label": "dog", **verdict} | more


def entries(fates: str, losses: list[float | None], predictions: list[str | None]) -> list[dict[str, Any]]:
    return [
        {"epoch": epoch, "loss": loss, "prediction": prediction, "dropped": fate == "x"}
        for epoch, (fate, loss, prediction) in enumerate(zip(fates, losses, predictions, strict=True))
    ]


def told(found: "Explanation", *, by_judges: bool = False) -> str:
    console = Console(file=io.StringIO(), width=100, emoji=False)
    show(found, console, by_judges=by_judges)
    return console.file.getvalue()


def test_the_chart_is_scaled_to_the_largest_loss():
    assert chart([0.0, 1.0, 2.0, 4.0]) == "▁▃▅█"
    assert chart([None, 3.0]) == " █"


@pytest.mark.parametrize("losses", [[], [None, None], [0.0, 0.0]])
def test_a_chart_of_nothing_is_no_error(losses):
    assert len(chart(losses)) == len(losses)


def test_only_changes_of_the_prediction_are_told():
    assert changes([None, "a", "a", None, "b", "a"]) == [(1, "a"), (4, "b"), (5, "a")]
    assert changes([None]) == []


def test_the_story_says_what_happened():
    found = Explanation(sample(), entries("..xx.", [None, 0.5, 2.0, 1.5, 3.0], [None, "cat", "dog", "dog", "dog"]))
    text = told(found)
    assert "Sample 7 (row 12, train)" in text
    assert "given label    cat" in text
    assert "the model says dog (75%)" in text
    assert "suspicion      0.900, flagged: the label looks wrong" in text
    assert "loss by epoch, 0 to 3" in text
    assert "  ··xx\n" in text
    assert "from 0.500 in epoch 1 to 1.500 in epoch 3; 3.000 in the end" in text
    assert "epochs 0 to 1: kept\n  epochs 2 to 3: dropped\n" in text
    assert "predicted cat (from epoch 1), dog (from epoch 2)" in text


def test_a_sample_that_came_back_was_kept_again():
    text = told(Explanation(sample(), entries(".x..", [None, 1.0, 1.0, 1.0], ["a"] * 4)))
    assert "epoch 0: kept\n  epoch 1: dropped\n  epoch 2: kept again\n" in text


def test_judges_look_in_rounds_that_count_from_1():
    losses, guesses = [0.5, 2.0, 1.5, 3.0], ["cat", "dog", "dog", "cow"]
    found = Explanation(sample(reason="looks like dog"), entries(".xx.", losses, guesses))
    text = told(found, by_judges=True)
    assert "the judges say dog (75%)" in text
    assert "loss by round, 1 to 3\n" in text
    assert "from 0.500 in round 1 to 1.500 in round 3; 3.000 in the end" in text
    assert "round 1: kept\n  rounds 2 to 3: dropped\n" in text
    assert "predicted cat (from round 1), dog (from round 2), cow (in the end)" in text
    assert "epoch" not in text
    held_out = told(Explanation(sample(split="test"), []), by_judges=True)
    assert "it was never learned from" in held_out


def test_a_loss_that_is_no_number_at_the_end_is_left_out():
    text = told(Explanation(sample(), entries("..", [1.0, None], ["a", None])))
    assert "from 1.000 in epoch 0 to 1.000 in epoch 0\n" in text


def test_a_run_without_probes_has_no_losses_to_tell():
    text = told(Explanation(sample(flagged=False), entries("...", [None, None, 0.5], [None, None, "cat"])))
    assert "not flagged" in text
    assert "from" not in text.split("predicted")[0]


def test_without_a_prediction_the_model_says_nothing():
    assert "the model says nothing" in told(
        Explanation(
            sample(suggested_label="", suggestion_confidence=float("nan")), entries("..", [1.0, 1.0], [None, None])
        )
    )


def test_a_held_out_sample_and_a_missing_trace_are_told_apart():
    assert "A held-out sample" in told(Explanation(sample(split="test"), []))
    assert "kept no trace" in told(Explanation(sample(), []))


def test_names_are_printed_as_they_are():
    text = told(Explanation(sample(given_label="[red]:dog:", id="[b]1"), []))
    assert "[red]:dog:" in text
    assert "Sample [b]1" in text


def test_it_says_why_a_label_is_flagged():
    assert "why            dropped in 80% of the epochs" in told(Explanation(sample(), []))
    assert "why" not in told(Explanation(sample(flagged=False), []))
