"""What a training found, as tables: labels that are contradicted where no guess is kept, and a row for each sample."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from stepe.beliefs.issues import COLUMNS
from stepe.beliefs.names import Names
from stepe.loop.ledger import Ledger, Observation
from stepe.loop.task import Task
from stepe.methods.parts.contradiction import believe_contradictions
from stepe.training.building import cross_entropy
from stepe.training.issues import held_out_table, training_table

NAN = math.nan


def judged(
    margin: list[float],
    dropped: list[bool],
    trust: list[float] | None = None,
    *,
    prediction: list[int] | None = None,
    confidence: list[float] | None = None,
    loss: list[float] | None = None,
) -> Ledger:
    n = len(margin)
    ledger = Ledger(n)
    ledger.record_probe(
        Observation(
            torch.tensor(loss or [1.0] * n),
            prediction=torch.tensor(prediction or [0] * n),
            confidence=torch.tensor(confidence or [0.9] * n),
            given_probability=torch.tensor(trust or [0.5] * n),
            margin=torch.tensor(margin),
        )
    )
    ledger.record_selection(~torch.tensor(dropped))
    return ledger


def task_of(labels: torch.Tensor, *, classes: int = 3, epochs: int = 2) -> Task:
    return Task(labels, classes, epochs=epochs, seed=0, criterion=cross_entropy(classes))


def flags(ledger: Ledger) -> list[bool]:
    labels = torch.zeros(ledger.n, dtype=torch.int64)
    return believe_contradictions(ledger, task_of(labels)).flagged.tolist()


def table_of(
    ledger: Ledger,
    labels: torch.Tensor | None = None,
    *,
    class_names: list[str] | None = None,
    names: Names | None = None,
    epochs_after_warmup: int = 1,
):
    labels = torch.zeros(ledger.n, dtype=torch.int64) if labels is None else labels
    return training_table(
        believe_contradictions(ledger, task_of(labels)),
        ledger,
        task_of(labels, epochs=epochs_after_warmup + 2),
        2,
        class_names or ["cat", "dog", "cow"],
        names or Names.numbered(ledger.n),
    )


def held_out(seen: Observation, labels: torch.Tensor, class_names: list[str]):
    return held_out_table(seen, task_of(labels), labels, class_names, Names.numbered(len(labels), "test"))


def test_flagged_is_dropped_and_predicted_differently():
    ledger = judged(margin=[-1.0, 1.0, -1.0, 1.0], dropped=[True, True, False, False])
    assert flags(ledger) == [True, False, False, False]


def test_a_label_the_model_long_agreed_with_is_not_flagged():
    ledger = Ledger(2)
    for margins in ([-1.0, 2.0], [-1.0, 2.0], [-1.0, -1.0]):
        ledger.record_probe(Observation(torch.ones(2), margin=torch.tensor(margins)))
    ledger.record_selection(torch.tensor([False, False]))
    assert flags(ledger) == [True, False]


def test_one_agreement_in_ten_probes_does_not_clear_a_label():
    ledger = Ledger(1)
    for margin in [1.0] + [-1.0] * 9:
        ledger.record_probe(Observation(torch.ones(1), margin=torch.tensor([margin])))
    ledger.record_selection(torch.tensor([False]))
    assert flags(ledger) == [True]


def test_a_model_undecided_between_two_classes_does_not_speak_against_the_label():
    assert flags(judged(margin=[0.0], dropped=[True])) == [False]


def test_without_logits_the_drop_alone_flags():
    ledger = Ledger(2)
    ledger.record_probe(Observation(torch.tensor([1.0, 2.0])))
    ledger.record_selection(torch.tensor([True, False]))
    assert flags(ledger) == [False, True]


def test_the_columns_are_the_documented_ones_in_order():
    expected = [
        *("rank", "id", "row", "split", "given_label", "suggested_label", "suspicion", "suggestion_confidence"),
        *("dropped", "flagged", "dropped_share", "margin", "reason", "status"),
    ]
    assert list(COLUMNS) == expected
    ledger = judged(margin=[-1.0, 1.0], dropped=[True, False])
    seen = Observation(torch.tensor([1.0, 2.0]))
    for table in (
        table_of(ledger),
        held_out(seen, torch.tensor([0, 1]), ["a", "b"]),
    ):
        assert list(table) == expected
        assert {len(column) for column in table.values()} == {2}


@settings(max_examples=100)
@given(
    st.lists(
        st.tuples(st.sampled_from([-1.0, 1.0]), st.booleans(), st.sampled_from([0.0, 0.25, 0.5, 1.0])),
        min_size=1,
        max_size=20,
    )
)
def test_ranks_put_the_flagged_first_then_the_most_suspicious_then_the_lower_row(rows):
    margin, dropped, trust = (list(column) for column in zip(*rows, strict=True))
    table = table_of(judged(margin, dropped, trust))
    order = sorted(range(len(rows)), key=lambda i: (not (dropped[i] and margin[i] < 0), trust[i], i))
    assert table["rank"][order].tolist() == list(range(1, len(rows) + 1))
    assert table["suspicion"].tolist() == pytest.approx([1 - t for t in trust])


def test_labels_are_named_and_rows_keep_their_ids():
    ledger = judged([-2.0, 3.0], [True, False], [0.1, 0.8], prediction=[2, 0], confidence=[0.7, 0.8])
    names = Names(ids=["img/b.png", "img/a.png"], rows=[17, 4], split="train")
    table = table_of(ledger, labels=torch.tensor([1, 0]), names=names)
    assert table["id"] == ["img/b.png", "img/a.png"]
    assert table["row"].tolist() == [17, 4]
    assert table["split"] == ["train", "train"]
    assert table["given_label"] == ["dog", "cat"]
    assert table["suggested_label"] == ["cow", "cat"]
    assert table["suggestion_confidence"].tolist() == pytest.approx([0.7, 0.8])
    assert table["margin"].tolist() == [-2.0, 3.0]
    assert table["dropped"].tolist() == table["flagged"].tolist() == [True, False]
    assert table["status"] == ["open", "open"]
    assert table["rank"].tolist() == [1, 2]


def test_the_reason_of_a_flag_names_the_suggestion_and_others_need_none():
    ledger = judged([-1.0, 1.0, 1.0], [True, True, False], prediction=[1, 0, 0], confidence=[0.75, 0.9, 0.9])
    flagged, dropped, neither = table_of(ledger)["reason"]
    assert "dog" in flagged
    assert "75%" in flagged
    assert "agrees" in dropped
    assert neither == ""


def test_the_dropped_share_counts_epochs_after_the_warmup():
    ledger = judged([1.0, 1.0, 1.0], [True, False, False])
    ledger.record_selection(torch.tensor([False, False, True]))
    ledger.record_selection(torch.tensor([False, True, True]))
    assert table_of(ledger, epochs_after_warmup=4)["dropped_share"].tolist() == [0.75, 0.25, 0.0]
    # A share stays one, however the epochs are counted.
    assert table_of(ledger, epochs_after_warmup=2)["dropped_share"].tolist() == [1.0, 0.5, 0.0]
    assert table_of(ledger, epochs_after_warmup=0)["dropped_share"].tolist() == [1.0, 1.0, 0.0]


def test_without_probabilities_suspicion_follows_the_loss_and_what_is_not_finite_comes_first():
    losses = [0.5, NAN, 2.0, math.inf, 0.1, -math.inf]
    ledger = Ledger(6)
    ledger.record_probe(Observation(torch.tensor(losses)))
    table = table_of(ledger)
    suspicion = table["suspicion"]
    assert suspicion[4] < suspicion[0] < suspicion[2] < min(suspicion[[1, 3, 5]])
    assert suspicion.max() == 1
    assert suspicion.min() > 0
    assert table["suggested_label"] == [""] * 6


def test_logits_that_are_not_finite_suggest_nothing():
    ledger = judged([NAN, -1.0], [True, True], [NAN, 0.2], prediction=[1, 1], confidence=[NAN, 0.8], loss=[NAN, 3.0])
    table = table_of(ledger)
    assert table["flagged"].tolist() == [True, True]
    assert table["suggested_label"] == ["", "dog"]
    assert "nan" not in table["reason"][0]
    assert not np.isnan(table["suspicion"]).any()


def test_an_output_beyond_the_known_classes_is_suggested_by_its_number():
    table = table_of(judged([-1.0], [True], prediction=[7]))
    assert table["suggested_label"] == ["7"]


def test_held_out_samples_are_scored_but_neither_dropped_nor_flagged():
    seen = Observation(
        torch.tensor([3.0, 0.1]),
        prediction=torch.tensor([1, 1]),
        confidence=torch.tensor([0.9, 0.8]),
        given_probability=torch.tensor([0.05, 0.8]),
        margin=torch.tensor([-2.5, 1.0]),
    )
    table = held_out(seen, torch.tensor([0, 1]), ["a", "b"])
    assert table["rank"].tolist() == [1, 2]
    assert table["suspicion"].tolist() == pytest.approx([0.95, 0.2])
    assert table["suggested_label"] == ["b", "b"]
    assert table["split"] == ["test", "test"]
    assert not table["dropped"].any()
    assert not table["flagged"].any()


def test_held_out_samples_without_logits_are_listed_without_a_suspicion():
    table = held_out(Observation(torch.tensor([3.0])), torch.tensor([0]), ["a"])
    assert np.isnan(table["suspicion"]).all()
    assert table["suggested_label"] == [""]


def test_numbered_names_are_row_numbers():
    names = Names.numbered(3, "test")
    assert names.ids == ["0", "1", "2"]
    assert names.rows == [0, 1, 2]
    assert names.split == "test"
