import math
from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from stepe.loop.plan import SHORTEST_TAIL, Plan, batch_sizes
from stepe.loop.randomness import Stream


def plan_for(n: int, kept_share: float = 1.0, *, epoch: int = 3, seed: int = 0, weighted: bool = False) -> Plan:
    draws = Stream.named(seed, "test").uniform(torch.arange(n))
    weight = Stream.named(seed, "weights").uniform(torch.arange(n)) + 0.01 if weighted else None
    return Plan(epoch, epochs=10, kept=draws < kept_share, seed=seed, weight=weight)


def reference_sizes(count: int, batch_size: int, world: int) -> list[int]:
    """Deal out full batches one sample at a time, then look at what is left."""
    full, left = [], count
    while left >= batch_size:
        full.append(batch_size)
        left -= batch_size
    too_short = left < min(8, batch_size / 2) or left < min(2 * world, batch_size)
    if left and full and too_short:
        place = len(full) - 1
        while left:
            full[place] += 1
            left -= 1
            place = place - 1 if place else len(full) - 1
    return [*full, left] if left else full


SIZES = st.integers(0, 700)
BATCHES = st.integers(1, 64)


@settings(max_examples=500)
@given(SIZES, BATCHES, st.integers(1, 4))
def test_batch_sizes_equal_the_slow_count(count, batch_size, world):
    assert batch_sizes(count, batch_size, world) == reference_sizes(count, batch_size, world)


@settings(max_examples=500)
@given(SIZES, BATCHES, st.integers(1, 4))
def test_batches_cover_all_samples_and_no_tail_is_too_short(count, batch_size, world):
    sizes = batch_sizes(count, batch_size, world)
    assert sum(sizes) == count
    assert len(sizes) in {count // batch_size, math.ceil(count / batch_size)}
    if len(sizes) > 1:
        assert min(sizes) >= min(SHORTEST_TAIL, batch_size / 2)
        assert min(sizes) >= min(2 * world, batch_size)


@pytest.mark.parametrize(
    ("count", "batch_size", "world", "sizes"),
    [
        (0, 8, 1, []),
        (3, 8, 1, [3]),
        (128, 128, 1, [128]),
        (129, 128, 1, [129]),
        (128 + 7, 128, 1, [135]),
        (128 + 8, 128, 1, [128, 8]),
        (2 * 128 + 3, 128, 1, [129, 130]),
        (3 * 4 + 1, 4, 1, [4, 4, 5]),
        (3 * 4 + 2, 4, 1, [4, 4, 4, 2]),
        (16 * 3 + 9, 16, 5, [19, 19, 19]),
        (16 * 3 + 10, 16, 5, [16, 16, 16, 10]),
        (16 * 3 + 15, 16, 10, [21, 21, 21]),
    ],
)
def test_a_short_tail_is_spread_over_the_last_batches(count, batch_size, world, sizes):
    assert batch_sizes(count, batch_size, world) == sizes


@settings(max_examples=200)
@given(st.integers(1, 300), st.floats(0, 1), BATCHES, st.integers(1, 4), st.booleans())
def test_every_sample_that_trains_appears_once_and_ranks_get_equally_many_shares(n, share, batch_size, world, weighted):
    plan = plan_for(n, share, weighted=weighted)
    by_rank = [plan.batches(batch_size, rank=rank, world=world) for rank in range(world)]
    assert len({len(shares) for shares in by_rank}) == 1
    seen = []
    for shares in by_rank:
        assert [each.step for each in shares] == list(range(len(shares)))
        for each in shares:
            assert len(each.index) > 0
            filler = each.weight is not None and bool((each.weight == 0).all())
            if filler:
                # Only where a batch has fewer samples than there are ranks does one go without.
                assert min(int(plan.kept.sum()), batch_size) < world
            else:
                seen += each.index.tolist()
    assert sorted(seen) == torch.nonzero(plan.kept).flatten().tolist()


def test_a_rank_without_a_sample_gets_a_filler_that_weighs_nothing():
    plan = Plan(0, 1, kept=torch.tensor([False, True, True, False]), seed=0)
    shares = [plan.batches(8, rank=rank, world=4)[0] for rank in range(4)]
    assert [share.weight is None for share in shares] == [True, True, False, False]
    assert [share.weight.tolist() for share in shares[2:]] == [[0.0], [0.0]]
    assert {int(share.index) for share in shares} == {1, 2}


@settings(max_examples=150)
@given(st.integers(1, 200), BATCHES, st.integers(1, 4), st.booleans())
def test_averaged_over_ranks_the_loss_is_the_one_process_weighted_mean(n, batch_size, world, weighted):
    plan = plan_for(n, 0.7, weighted=weighted)
    losses = Stream.named(0, "losses").normal(torch.arange(n)).double()
    weight = torch.ones(n).double() if plan.weight is None else plan.weight.double()
    by_rank = [plan.batches(batch_size, rank=rank, world=world) for rank in range(world)]
    sizes = batch_sizes(int(plan.kept.sum()), batch_size, world)
    for step, members in enumerate(torch.split(plan.order(), sizes) if sizes else ()):
        got = 0.0
        for shares in by_rank:
            mine = shares[step]
            w = torch.ones(len(mine.index)) if mine.weight is None else mine.weight
            got += float((w.double() * losses[mine.index]).sum()) / mine.total_weight / world
        expected = float((weight * losses)[members].sum() / weight[members].sum())
        assert got == pytest.approx(expected, rel=1e-5, abs=1e-6)


def test_ranks_of_a_batch_differ_by_at_most_one_sample():
    plan = plan_for(150)
    for step in range(len(plan.batches(32))):
        sizes = [len(plan.batches(32, rank=rank, world=3)[step].index) for rank in range(3)]
        assert max(sizes) - min(sizes) <= 1


def test_a_batch_that_weighs_nothing_has_a_loss_of_zero():
    plan = Plan(0, 1, kept=torch.ones(4, dtype=torch.bool), seed=0, weight=torch.zeros(4))
    (share,) = plan.batches(4)
    assert float((share.weight * torch.ones(4)).sum() / share.total_weight) == 0


@settings(max_examples=100)
@given(st.integers(1, 300), BATCHES, st.integers(1, 10))
def test_progress_climbs_from_where_the_last_epoch_ended_and_stays_below_one(n, batch_size, epochs):
    everything = torch.ones(n, dtype=torch.bool)
    progress = [
        share.progress for epoch in range(epochs) for share in Plan(epoch, epochs, everything, 0).batches(batch_size)
    ]
    assert progress[0] == 0
    assert all(before < after for before, after in pairwise(progress))
    assert progress[-1] < 1
    per_epoch = len(progress) // epochs
    assert progress[::per_epoch] == pytest.approx([epoch / epochs for epoch in range(epochs)])


@settings(max_examples=50)
@given(st.integers(2, 200), st.integers(0, 5), BATCHES)
def test_the_order_depends_on_neither_the_batch_size_nor_the_kept_set(n, seed, batch_size):
    whole = plan_for(n, seed=seed).order().tolist()
    some = plan_for(n, 0.5, seed=seed)
    assert some.order().tolist() == [i for i in whole if bool(some.kept[i])]
    in_batches = [i for share in some.batches(batch_size) for i in share.index.tolist()]
    assert in_batches == some.order().tolist()


def test_the_shares_of_all_ranks_interleave_to_the_one_process_batch():
    plan, world = plan_for(103), 4
    by_rank = [plan.batches(20, rank=rank, world=world) for rank in range(world)]
    for step, whole in enumerate(plan.batches(20)):
        woven = torch.empty(len(whole.index), dtype=torch.int64)
        for rank in range(world):
            woven[rank::world] = by_rank[rank][step].index
        assert torch.equal(woven, whole.index)


def test_the_order_changes_with_epoch_and_seed_and_repeats_for_the_same():
    orders = [plan_for(100, epoch=epoch, seed=seed).order().tolist() for epoch, seed in ((0, 0), (1, 0), (0, 1))]
    assert orders[0] != orders[1]
    assert orders[0] != orders[2]
    assert plan_for(100, epoch=0, seed=0).order().tolist() == orders[0]


def test_what_trains_may_be_more_than_what_is_kept():
    kept, trains = torch.tensor([True, False, False, True]), torch.tensor([True, True, False, True])
    plan = Plan(0, 1, kept, seed=0, trains=trains, weight=torch.tensor([1.0, 0.25, 0.0, 1.0]))
    (share,) = plan.batches(8)
    assert sorted(share.index.tolist()) == [0, 1, 3]
    assert share.total_weight == 2.25
    assert share.weight.tolist() == [{0: 1.0, 1: 0.25, 3: 1.0}[i] for i in share.index.tolist()]


def test_an_epoch_that_trains_on_nothing_has_no_batches():
    assert Plan(0, 1, torch.zeros(5, dtype=torch.bool), seed=0).batches(2, rank=1, world=2) == []


@settings(max_examples=100)
@given(st.integers(1, 200), st.floats(0.05, 1), BATCHES, st.integers(1, 4))
def test_samples_are_repeated_equally_often_up_to_a_length(n, share, batch_size, world):
    plan = replace(plan_for(n, share), length=n)
    kept = int(plan.kept.sum())
    shares = [each for rank in range(world) for each in plan.batches(batch_size, rank=rank, world=world)]
    seen = torch.cat([each.index for each in shares if each.weight is None]) if kept else torch.empty(0).long()
    counts = torch.bincount(seen, minlength=n)
    assert plan.count == int(counts.sum()) == (n if kept else 0)
    assert not counts[~plan.kept].any()
    assert not kept or set(counts[plan.kept].tolist()) <= {n // kept, -(-n // kept)}
    # A sample and how often it came before name a draw: none twice.
    names = [(int(i), int(o)) for each in shares if each.weight is None for i, o in zip(each.index, each.occurrence)]  # noqa: B905
    assert len(set(names)) == len(names)


def test_chances_are_met_among_the_kept_alone():
    chance = torch.tensor([0.0, 1.0, 3.0, 5.0])
    plan = Plan(0, 1, torch.tensor([True, True, True, False]), seed=0, length=4000, chance=chance)
    drawn = torch.bincount(plan.order(), minlength=4) / 4000
    assert drawn.tolist() == pytest.approx([0, 0.25, 0.75, 0], abs=0.03)
    assert torch.equal(plan.order(), plan.order())
    assert len(replace(plan, chance=torch.tensor([0.0, 0, 0, 1])).order()) == 0
