"""The suspects of a run, and how far people came with them."""

import pytest

import stepe
from made_run import make_run
from stepe import InputError
from stepe.review.suspects import Suspects
from stepe.run.decisions import Action, Decision, Key


def sampled(suspects: Suspects) -> list[int]:
    return sorted(suspects.sample_order, key=suspects.sample_order.__getitem__)


def decide(suspects: Suspects, rows: list[int], verdict: str, origin: str = "ranked") -> None:
    made = tuple(Decision("train", row, verdict, "x", origin) for row in rows)
    suspects.run.decisions.record(Action(f"{origin}-{verdict}-{rows}", made))


def progress(suspects: Suspects) -> dict:
    return suspects.state()["progress"]


def test_the_sample_is_random_and_always_the_same(tmp_path):
    suspects = Suspects(make_run(tmp_path / "one"))
    again = Suspects(make_run(tmp_path / "two"))
    assert sampled(suspects) == sampled(again)
    assert sorted(sampled(suspects)) == list(range(60))
    assert sampled(suspects) != list(range(60))


def test_a_sample_says_how_many_flags_are_right_and_the_ranked_list_does_not(tmp_path):
    suspects = Suspects(make_run(tmp_path / "run"))
    order = sampled(suspects)
    decide(suspects, order[30:], "accepted")
    assert progress(suspects)["sample"]["judged"] == 0
    decide(suspects, order[:4], "kept", "sample")
    decide(suspects, order[4:6], "accepted", "sample")
    found = progress(suspects)
    assert (found["sample"]["wrong"], found["sample"]["judged"]) == (2, 6)
    assert (found["precision"]["wrong"], found["precision"]["judged"]) == (32, 36)


def test_what_the_random_order_passes_counts_wherever_it_was_decided(tmp_path):
    """Leaving out what was decided before would leave out the surest."""
    suspects = Suspects(make_run(tmp_path / "run"))
    order = sampled(suspects)
    decide(suspects, [order[0], order[7]], "accepted")
    decide(suspects, order[1:3], "kept", "sample")
    assert progress(suspects)["sample"]["judged"] == 3


def test_what_others_decide_is_read_however_much_it_is(tmp_path):
    suspects = Suspects(make_run(tmp_path / "run", suspects=300))
    for rows in ([3], list(range(5, 290)), [3, 299]):
        decide(suspects, rows, "accepted")
        assert set(suspects.state()["decided"]) == {key.row for key in suspects.run.decisions.current()}
    suspects.run.decisions.record(Action("undo", undoes="ranked-accepted-[3, 299]"))
    found = suspects.state(since=3)
    assert found["decided"] == {3: ("accepted", None), 299: None}
    suspects.run.decisions.path.unlink()
    assert suspects.state()["decided"] == {}


def test_nothing_to_review_is_said(tmp_path):
    run = make_run(tmp_path / "run")
    run.samples.assign(flagged=False).to_parquet(run.path / "samples.parquet")
    with pytest.raises(InputError, match="nothing to review"):
        Suspects(stepe.Run(run.path))


def test_few_classes_keep_their_keys_and_of_many_the_likely_come_first(tmp_path):
    few = Suspects(make_run(tmp_path / "few", classes=["a", "b", "c"]))
    assert {tuple(few.details([row])["details"][row]["likely"]) for row in range(10)} == {(0, 1, 2)}
    many = Suspects(make_run(tmp_path / "many", classes=[f"c{i}" for i in range(30)]))
    likely = many.details([0])["details"][0]["likely"]
    assert likely[0] == 1
    assert len(likely) == len(set(likely)) <= 9


@pytest.mark.parametrize(("kind", "shown"), [("text", "text"), ("table", "cells")])
def test_texts_and_rows_are_shown_as_they_are(tmp_path, kind, shown):
    suspects = Suspects(make_run(tmp_path / "run", kind=kind))
    assert set(suspects.details([0])["previews"][0]) == {shown}
    assert suspects.picture(0) is None


def test_a_real_run_can_be_reviewed_from_end_to_end(tmp_path):
    run = stepe.clean("digits", epochs=3, compare=False, out=tmp_path / "run", device="cpu")
    suspects = Suspects(run)
    rows = suspects.describe()["row"]
    detail = suspects.details(rows[:1])["details"][rows[0]]
    assert "of 3 epochs" in detail["reason"] or "epochs" in detail["reason"]
    given = int(run.issues["given_label"][0])
    suspects.record([{"id": "one", "origin": "ranked", "choices": [{"row": rows[0], "label": given}]}])
    assert stepe.Run(run.path).samples["status"].value_counts()["kept"] == 1
    assert run.decisions.current()[Key("train", rows[0])].label == str(given)
