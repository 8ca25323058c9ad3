import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from stepe.errors import RunError
from stepe.loop.ledger import TRUST_MEMORY, Ledger, Observation, read_rows, write_rows

NAN, INF = math.nan, math.inf


def probed(*losses: list[float], memory: float = 0.0) -> Ledger:
    ledger = Ledger(len(losses[0]))
    for loss in losses:
        ledger.record_probe(Observation(torch.tensor(loss)), memory=memory)
    return ledger


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.dtype == b.dtype and a.shape == b.shape and a.numpy().tobytes() == b.numpy().tobytes()


def test_a_new_ledger_knows_nothing():
    ledger = Ledger(3)
    for name in ("loss", "score", "margin", "confidence", "trust"):
        assert bool(torch.isnan(ledger[name]).all()), name
    assert ledger["prediction"].tolist() == [-1] * 3
    assert ledger["dropped"].tolist() == [False] * 3
    assert ledger["drop_count"].tolist() == ledger["times_probed"].tolist() == [0] * 3


def test_without_memory_the_score_is_the_latest_loss():
    ledger = probed([1.0, 2.0], [5.0, 0.5])
    assert ledger["score"].tolist() == ledger["loss"].tolist() == [5.0, 0.5]
    assert ledger["times_probed"].tolist() == [2, 2]


@settings(max_examples=100)
@given(
    st.lists(st.sampled_from([0.5, 1.0, 3.0, 1e30, NAN, INF, -INF]), min_size=1, max_size=12),
    st.sampled_from([0.0, 0.25, 0.5, 0.9]),
)
def test_the_score_is_a_running_mean_that_starts_anew_after_anything_not_finite(losses, memory):
    score = NAN
    for loss in losses:
        smooth = math.isfinite(score) and math.isfinite(loss)
        score = memory * score + (1 - memory) * loss if smooth else loss
    got = float(probed(*([loss] for loss in losses), memory=memory)["score"])
    assert got == pytest.approx(score, rel=1e-5, nan_ok=True)


def test_one_overflow_does_not_mark_a_sample_for_ever():
    ledger = probed([1.0], [NAN], memory=0.9)
    assert math.isnan(ledger["score"])
    ledger.record_probe(Observation(torch.tensor([0.5])), memory=0.9)
    assert float(ledger["score"]) == 0.5


def test_a_first_probe_is_taken_whole():
    assert probed([2.0], memory=0.9)["score"].tolist() == [2.0]


def test_trust_is_a_running_mean_of_the_given_labels_probability_and_recovers_from_nan():
    ledger, expected = Ledger(2), None
    for given_probability in ([0.9, 0.2], [0.5, 0.4], [0.1, 0.6]):
        new = torch.tensor(given_probability)
        ledger.record_probe(Observation(torch.zeros(2), given_probability=new))
        expected = new if expected is None else TRUST_MEMORY * expected + (1 - TRUST_MEMORY) * new
    assert torch.allclose(ledger["trust"], expected)
    ledger.record_probe(Observation(torch.zeros(2), given_probability=torch.tensor([NAN, 0.6])))
    ledger.record_probe(Observation(torch.zeros(2), given_probability=torch.tensor([0.3, 0.6])))
    assert float(ledger["trust"][0]) == pytest.approx(0.3)


def test_a_probe_without_logits_leaves_what_logits_told_before():
    ledger = Ledger(2)
    ledger.record_probe(
        Observation(
            torch.tensor([1.0, 2.0]),
            prediction=torch.tensor([1, 0]),
            confidence=torch.tensor([0.75, 0.5]),
            margin=torch.tensor([-1.0, 2.0]),
        )
    )
    ledger.record_probe(Observation(torch.tensor([3.0, 4.0])))
    assert ledger["loss"].tolist() == [3.0, 4.0]
    assert ledger["prediction"].tolist() == [1, 0]
    assert ledger["confidence"].tolist() == [0.75, 0.5]
    assert ledger["margin"].tolist() == [-1.0, 2.0]


def test_a_probe_in_half_or_double_precision_is_written_as_single():
    for dtype in (torch.float16, torch.bfloat16, torch.float64):
        ledger = Ledger(2)
        ledger.record_probe(Observation(torch.tensor([0.5, 4.0], dtype=dtype)))
        assert ledger["score"].dtype == torch.float32
        assert ledger["score"].tolist() == [0.5, 4.0]


def test_the_ledger_does_not_share_memory_with_a_probe():
    loss = torch.tensor([1.0, 2.0])
    ledger = Ledger(2)
    ledger.record_probe(Observation(loss))
    loss.zero_()
    assert ledger["loss"].tolist() == ledger["score"].tolist() == [1.0, 2.0]


@settings(max_examples=100)
@given(st.integers(1, 12).flatmap(lambda n: st.lists(st.lists(st.booleans(), min_size=n, max_size=n), max_size=6)))
def test_turnover_and_drop_counts_add_up(epochs):
    n = len(epochs[0]) if epochs else 1
    ledger, before, counts = Ledger(n), [True] * n, [0] * n
    for kept in epochs:
        turnover = ledger.record_selection(torch.tensor(kept))
        assert turnover.came == sum(now and not old for now, old in zip(kept, before, strict=True))
        assert turnover.went == sum(old and not now for now, old in zip(kept, before, strict=True))
        counts = [count + (not now) for count, now in zip(counts, kept, strict=True)]
        before = kept
        assert ledger["dropped"].tolist() == [not now for now in kept]
        assert ledger["drop_count"].tolist() == counts


def test_recording_a_selection_does_not_tie_the_ledger_to_it():
    kept, ledger = torch.tensor([True, False]), Ledger(2)
    ledger.record_selection(kept)
    kept.fill_(False)
    assert ledger["dropped"].tolist() == [False, True]
    assert ledger.record_selection(torch.tensor([False, True])).came == 1


def test_a_method_may_keep_columns_of_its_own():
    ledger = Ledger(4)
    guess = ledger.add_column("guess", torch.float16, 0.25, width=3)
    assert guess.shape == (4, 3)
    assert guess.dtype == torch.float16
    ledger["guess"] = torch.arange(12).reshape(4, 3)
    # Declaring it again, as a resumed run does, must not wipe it.
    assert ledger.add_column("guess", torch.float16, 0.0, width=3).tolist() == torch.arange(12.0).reshape(4, 3).tolist()
    assert "guess" in ledger.state_dict()


def busy_ledger() -> Ledger:
    ledger = Ledger(5)
    ledger.add_column("guess", torch.float16, 0.0, width=2)
    ledger["guess"] = torch.rand(5, 2)
    ledger.record_probe(
        Observation(
            torch.tensor([0.1, NAN, INF, -0.0, 1e-42]),
            prediction=torch.tensor([0, 1, 1, 0, 1]),
            confidence=torch.rand(5),
            given_probability=torch.rand(5),
            margin=torch.randn(5),
        )
    )
    ledger.record_selection(torch.tensor([True, False, False, True, True]))
    return ledger


def test_a_saved_ledger_is_restored_exactly_and_goes_on_the_same():
    ledger = busy_ledger()
    saved = {name: values.clone() for name, values in ledger.state_dict().items()}
    restored = Ledger(5)
    restored.add_column("guess", torch.float16, 0.0, width=2)
    restored.load_state_dict(saved)
    for step in range(2):
        for name, values in ledger.state_dict().items():
            assert same_bits(values, restored[name]), (step, name)
        for one in (ledger, restored):
            one.record_probe(Observation(torch.tensor([0.3, 0.2, INF, 1.0, 2.0])), memory=0.7)
            one.record_selection(torch.tensor([False, True, False, True, True]))


def test_restoring_copies_and_does_not_share():
    ledger, other = busy_ledger(), busy_ledger()
    other.load_state_dict(ledger.state_dict())
    other["loss"].zero_()
    assert float(ledger["loss"][0]) == pytest.approx(0.1)


def test_another_methods_columns_are_an_error_that_names_them():
    with pytest.raises(RunError, match="guess"):
        Ledger(5).load_state_dict(busy_ledger().state_dict())
    with pytest.raises(RunError, match="guess"):
        busy_ledger().load_state_dict(Ledger(5).state_dict())


def test_another_size_or_type_is_an_error_that_changes_nothing():
    ledger = probed([1.0, 2.0])
    with pytest.raises(RunError, match=r"shape \(3,\).*shape \(2,\)"):
        ledger.load_state_dict(Ledger(3).state_dict())
    wider = {name: values.double() if name == "trust" else values for name, values in Ledger(2).state_dict().items()}
    with pytest.raises(RunError, match=r"'trust' is torch.float64.*torch.float32"):
        ledger.load_state_dict(wider)
    assert ledger["loss"].tolist() == [1.0, 2.0]


def test_values_of_another_length_do_not_fit_a_column():
    with pytest.raises(RuntimeError):
        Ledger(3)["loss"] = torch.zeros(4)


@pytest.mark.parametrize("deterministic", [False, True])
def test_rows_are_written_and_read_by_index_without_a_gradient(deterministic):
    column = Ledger(4).add_column("mine", torch.float32, 0.0, width=2)
    index, rows = torch.tensor([3, 1]), torch.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=torch.float64, requires_grad=True)
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(deterministic)
    try:
        write_rows(column, index, rows)
    finally:
        torch.use_deterministic_algorithms(before)
    assert column.tolist() == [[0, 0], [3, 4], [0, 0], [1, 2]]
    assert read_rows(column, index).tolist() == [[1, 2], [3, 4]]
    assert not column.requires_grad
