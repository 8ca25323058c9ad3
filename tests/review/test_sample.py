"""The random sample of the suspects."""

from made_run import make_run
from stepe.review.sample import sample_order, sampled
from stepe.run.decisions import Decision


def decision(row: int, origin: str) -> Decision:
    return Decision("train", row, "kept", "cat", origin)


def test_the_order_is_the_same_whenever_it_is_asked_for(tmp_path):
    run = make_run(tmp_path / "run")
    order = sample_order(run, range(60))
    assert sample_order(run, reversed(range(60))) == order
    assert sorted(order.values()) == list(range(60))
    assert list(order) != sorted(order)


def test_a_decision_counts_up_to_where_somebody_came_who_followed_the_order():
    order = {7: 0, 3: 1, 9: 2, 5: 3}
    made = {row: decision(row, origin) for row, origin in ((7, "ranked"), (9, "sample"), (5, "ranked"), (1, "sample"))}
    assert set(sampled(order, made)) == {7, 9}


def test_without_the_order_nothing_counts():
    assert sampled({7: 0}, {7: decision(7, "ranked")}) == {}
