"""What happened to one sample."""

import pytest
import torch

import stepe
from stepe import InputError, Run
from stepe.beliefs.names import Names
from stepe.loop.ledger import Ledger, Observation
from stepe.loop.plan import Plan
from stepe.methods import METHODS
from stepe.run.explanation import Explanation, explain_sample
from stepe.training.recorder import Recorder, RunDetails


def entries(fates: str) -> list[dict[str, object]]:
    """``k`` kept, ``x`` dropped; the last one is the word of the finished model."""
    return [
        {"epoch": epoch, "loss": 1.0, "prediction": "a", "dropped": fate == "x"} for epoch, fate in enumerate(fates)
    ]


def test_spans_say_when_a_sample_was_dropped_and_came_back():
    found = Explanation({}, entries("kkxxkxk" + "k"))
    assert found.spans == [(False, 0, 1), (True, 2, 3), (False, 4, 4), (True, 5, 5), (False, 6, 6)]
    assert found.readmissions == [4, 6]


def test_a_sample_that_was_always_kept_has_one_span_and_never_came_back():
    assert Explanation({}, entries("kkk" + "k")).spans == [(False, 0, 2)]
    assert Explanation({}, entries("kkk" + "k")).readmissions == []


def test_a_sample_dropped_from_the_start_comes_back_once():
    assert Explanation({}, entries("xk" + "k")).readmissions == [1]


def test_the_last_word_is_no_epoch():
    assert Explanation({}, entries("kk" + "x")).spans == [(False, 0, 1)]
    assert Explanation({}, []).spans == []


@pytest.fixture
def run(tmp_path, blobs, make_model) -> Run:
    """Sample 5 is dropped in epochs 1 and 2, and comes back in epoch 3."""

    class Scripted(METHODS["plain"]):
        name = "scripted"

        def wants_probe(self, epoch: int) -> bool:
            return True

        def observe(self, epoch: int, seen: Observation, ledger: Ledger) -> None:
            ledger.record_probe(seen)

        def plan(self, epoch: int, ledger: Ledger) -> Plan:
            kept = torch.ones(97, dtype=torch.bool)
            kept[5] = epoch not in (1, 2)
            return Plan(epoch, 4, kept, self.task.seed)

    details = RunDetails(
        names=Names([f"s{i}" for i in range(97)], list(range(97))),
        held_out_names=Names(["s5", "t1"], [5, 1], "test"),
    )
    stepe.fit(
        make_model(),
        blobs.x,
        blobs.given,
        method=Scripted(),
        epochs=4,
        batch_size=16,
        device="cpu",
        test=(blobs.x[:2], blobs.clean[:2]),
        run=Recorder(tmp_path / "run", details),
    )
    return Run(tmp_path / "run")


def test_a_story_is_told_by_id(run, blobs):
    found = explain_sample(run, "s5")
    assert found.spans == [(False, 0, 0), (True, 1, 2), (False, 3, 3)]
    assert found.readmissions == [3]
    assert len(found.entries) == 5
    assert all(entry["loss"] > 0 for entry in found.entries)
    assert found.sample["given_label"] == str(int(blobs.given[5]))
    assert found.sample["row"] == 5
    assert explain_sample(run, "s6").readmissions == []


def test_of_two_samples_with_one_id_the_training_sample_has_the_story(run):
    assert explain_sample(run, "s5").sample["split"] == "train"


def test_a_held_out_sample_has_a_verdict_and_no_story(run):
    found = explain_sample(run, "t1")
    assert found.sample["split"] == "test"
    assert found.entries == []


def test_an_unknown_id_is_an_error_that_shows_what_ids_look_like(run):
    with pytest.raises(InputError, match=r"has no sample with the id 'nobody'; ids look like s0, s1, s2"):
        explain_sample(run, "nobody")


def test_a_run_without_a_trace_has_verdicts_all_the_same(run):
    (run.path / "trace.bin").unlink()
    assert explain_sample(run, "s5").entries == []
