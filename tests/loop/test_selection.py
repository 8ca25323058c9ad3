import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from stepe.errors import InputError
from stepe.loop import selection
from stepe.loop.numpy_selection import keep_count
from stepe.loop.selection import Selection, raise_to_floor, select, soften

DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
# Few values, so that ties are common, and every kind of trouble.
TROUBLE = [0.0, -0.0, 0.5, 0.5, 1.0, 1.5, -2.0, math.nan, math.inf, -math.inf]


def reference(scores: Tensor, drop_fraction: float, groups: Tensor | None = None, min_keep: float = 0.0) -> Selection:
    """The rule as DESIGN states it, by sorting a list of pairs."""
    values, n = scores.double().tolist(), len(scores)
    lowest_first = sorted((value, i) for i, value in enumerate(values) if math.isfinite(value))
    count = min(n - math.floor(drop_fraction * n + 1e-9), len(lowest_first))
    by_rule = {i for _, i in lowest_first[:count]}
    kept = set(by_rule)
    for group in set(groups.tolist()) if groups is not None and min_keep > 0 else ():
        members = {i for i, name in enumerate(groups.tolist()) if name == group}
        floor = math.ceil(len(members) * min_keep - 1e-9)
        if len(kept & members) < floor:
            kept |= set([i for _, i in lowest_first if i in members][:floor])
    cut = max((values[i] for i in by_rule), default=-math.inf)
    return Selection(
        torch.tensor([i in kept for i in range(n)]), cut, n - len(lowest_first), shortfall=len(kept) - len(by_rule)
    )


def assert_same(got: Selection, expected: Selection) -> None:
    assert got.kept.dtype == torch.bool
    assert got.kept.tolist() == expected.kept.tolist()
    assert (got.cut, got.nonfinite, got.shortfall) == (expected.cut, expected.nonfinite, expected.shortfall)


def score_tensors(*, min_size: int = 1, max_size: int = 40) -> st.SearchStrategy[Tensor]:
    value = st.one_of(st.sampled_from(TROUBLE), st.floats(-8, 8, width=16))
    values = st.lists(value, min_size=min_size, max_size=max_size)
    return st.builds(lambda v, dtype: torch.tensor(v, dtype=dtype), values, st.sampled_from(DTYPES))


def fractions() -> st.SearchStrategy[float]:
    return st.one_of(st.sampled_from([0.0, 0.1, 0.3, 0.5, 0.7, 0.9]), st.floats(0, 1, exclude_max=True))


@settings(max_examples=500)
@given(score_tensors(), fractions())
def test_the_selection_is_the_one_a_sort_would_give(scores, drop_fraction):
    assert_same(select(scores, drop_fraction), reference(scores, drop_fraction))


@settings(max_examples=300)
@given(score_tensors(), fractions(), fractions(), st.data())
def test_the_selection_with_a_group_floor_is_the_one_a_sort_would_give(scores, drop_fraction, min_keep, data):
    groups = torch.tensor(data.draw(st.lists(st.integers(-1, 3), min_size=len(scores), max_size=len(scores))))
    got = select(scores, drop_fraction, groups=groups, min_keep=min_keep)
    assert_same(got, reference(scores, drop_fraction, groups, min_keep))


@settings(max_examples=200)
@given(score_tensors(), fractions())
def test_the_torch_path_of_other_devices_gives_the_same_as_the_numpy_path(scores, drop_fraction):
    expected = reference(scores, drop_fraction)
    # torch sorts and selects 16-bit floats on GPUs; on CPU not every version does.
    kept, cut, n_finite = selection._keep_lowest(
        scores.float() if scores.element_size() == 2 else scores, drop_fraction
    )
    assert_same(Selection(kept, cut, len(scores) - n_finite, 0), expected)


def large_scores() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    n = 10 * selection.SAMPLE + 12_345
    smooth = rng.exponential(size=n).astype(np.float32)
    half_tied = np.where(rng.random(n) < 0.5, np.float32(0.7), smooth)
    broken = half_tied.copy()
    broken[rng.random(n) < 0.05] = np.nan
    broken[rng.random(n) < 0.05] = np.inf
    broken[rng.random(n) < 0.05] = -np.inf
    # The sample takes every tenth value: it sees the same one throughout, which is not the typical one.
    every_tenth = np.where(np.arange(n) % (n // selection.SAMPLE) == 0, np.float32(9), smooth)
    return {
        "smooth": smooth,
        "half tied": half_tied,
        "not finite": broken,
        "mostly NaN": np.where(rng.random(n) < 0.9, np.float32(np.nan), smooth),
        "two values": (smooth > 1).astype(np.float32),
        "one value": np.full(n, np.float32(2.5)),
        "sorted": np.sort(smooth),
        "falling": -np.sort(smooth),
        "sample sees a pattern": every_tenth,
        "rounded": smooth.round(1),
    }


@pytest.mark.parametrize("name", list(large_scores()))
def test_the_fast_path_for_many_scores_is_the_one_a_sort_would_give(name):
    values = large_scores()[name]
    finite = np.isfinite(values)
    lowest_first = np.argsort(np.where(finite, values, np.inf), kind="stable")
    for drop_fraction in (0.0, 1e-4, 0.05, 0.25, 0.4, 0.5, 0.9, 0.9999):
        count = min(keep_count(len(values), drop_fraction), int(finite.sum()))
        expected = np.zeros(len(values), dtype=bool)
        expected[lowest_first[:count]] = True
        got = select(torch.from_numpy(values), drop_fraction)
        assert np.array_equal(got.kept.numpy(), expected), drop_fraction
        assert got.cut == values[lowest_first[count - 1]]
        assert got.nonfinite == np.count_nonzero(~finite)


@settings(max_examples=300)
@given(score_tensors(min_size=30, max_size=120), fractions())
def test_the_fast_path_for_many_scores_holds_under_any_sample(scores, drop_fraction):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(selection, "SAMPLE", 3)
        assert_same(select(scores, drop_fraction), reference(scores, drop_fraction))


def test_ties_keep_the_lower_index():
    assert select(torch.tensor([1.0, 0.5, 1.0, 1.0, 1.0]), 0.4).kept.tolist() == [True, True, True, False, False]
    assert select(torch.zeros(5), 0.4).kept.tolist() == [True, True, True, False, False]


def test_negative_and_positive_zero_are_a_tie():
    assert select(torch.tensor([0.0, -0.0, 0.0, -0.0]), 0.5).kept.tolist() == [True, True, False, False]


@pytest.mark.parametrize("dtype", DTYPES)
def test_what_is_not_finite_goes_first_and_is_counted(dtype):
    scores = torch.tensor([math.nan, 3.0, -math.inf, 1.0, math.inf, 2.0], dtype=dtype)
    chosen = select(scores, 0.0)
    assert chosen.kept.tolist() == [False, True, False, True, False, True]
    assert (chosen.nonfinite, chosen.cut) == (3, 3.0)
    # Two of six may go: the three that are not finite fill that, and no finite one follows.
    assert select(scores, 0.34).kept.tolist() == chosen.kept.tolist()
    assert select(scores, 0.67).kept.tolist() == [False, False, False, True, False, True]


@pytest.mark.parametrize("drop_fraction", [0.0, 0.5])
def test_nothing_is_kept_where_no_score_is_finite(drop_fraction):
    chosen = select(torch.tensor([math.nan, math.inf]), drop_fraction)
    assert chosen.kept.tolist() == [False, False]
    assert (chosen.cut, chosen.nonfinite) == (-math.inf, 2)
    floored = select(torch.tensor([math.nan, math.inf]), drop_fraction, groups=torch.tensor([0, 1]), min_keep=1.0)
    assert floored.kept.tolist() == [False, False]
    assert floored.shortfall == 0


def test_a_single_sample_is_kept_unless_its_score_is_not_finite():
    for drop_fraction in (0.0, 0.5, 0.99):
        assert select(torch.tensor([7.0]), drop_fraction).kept.tolist() == [True]
    assert select(torch.tensor([math.nan]), 0.0).kept.tolist() == [False]


@pytest.mark.parametrize(
    ("n", "drop_fraction", "expected"),
    [(10, 0.3, 7), (10, 0.29999, 8), (100, 0.29, 71), (1000, 0.001, 999), (3, 1 / 3, 2), (7, 0.99, 1), (5, 0.0, 5)],
)
def test_the_count_survives_rounding(n, drop_fraction, expected):
    assert keep_count(n, drop_fraction) == expected
    assert int(select(torch.arange(n).float(), drop_fraction).kept.sum()) == expected


def test_a_group_floor_wins_over_the_count_and_the_shortfall_is_reported():
    scores = torch.tensor([1.0, 2.0, 3.0, 4.0, 90.0, 80.0, 80.0, 95.0])
    groups = torch.tensor([0, 0, 0, 0, 1, 1, 1, 1])
    chosen = select(scores, 0.5, groups=groups, min_keep=0.5)
    assert chosen.kept.tolist() == [True, True, True, True, False, True, True, False]
    assert chosen.shortfall == 2
    assert chosen.cut == 4.0
    assert select(scores, 0.5, groups=groups, min_keep=0.0).shortfall == 0


@settings(max_examples=200)
@given(st.integers(1, 60), st.integers(1, 6), fractions(), fractions(), st.integers(0, 1000))
def test_no_group_loses_more_than_its_floor_allows_but_for_members_that_are_not_finite(
    n, n_groups, drop_fraction, min_keep, seed
):
    generator = torch.Generator().manual_seed(seed)
    groups = torch.randint(n_groups, (n,), generator=generator)
    scores = torch.rand(n, generator=generator) + groups  # some groups are much worse than others
    scores[torch.rand(n, generator=generator) < 0.2] = math.nan
    kept = select(scores, drop_fraction, groups=groups, min_keep=min_keep).kept
    for group in groups.unique():
        members = groups == group
        lost_finite = int((members & ~kept & torch.isfinite(scores)).sum())
        not_finite = int((members & ~torch.isfinite(scores)).sum())
        allowed = (1 - min_keep) * int(members.sum())
        assert lost_finite == 0 or lost_finite + not_finite <= allowed + 1e-6


def test_a_floor_survives_rounding():
    # 100 * 0.07 is a little more than 7 in floating point.
    groups = torch.arange(200) // 100
    chosen = select(torch.arange(200).float(), 0.5, groups=groups, min_keep=0.07)
    assert (int(chosen.kept[100:].sum()), chosen.shortfall) == (7, 7)


def test_groups_may_be_any_integers():
    scores = torch.tensor([1.0, 2.0, 3.0, 4.0])
    chosen = select(scores, 0.5, groups=torch.tensor([10**12, 10**12, -5, -5]), min_keep=0.5)
    assert chosen.kept.tolist() == [True, True, True, False]


def test_every_group_may_have_a_floor_of_its_own():
    scores, groups = torch.arange(9).float(), torch.tensor([0, 0, 0, 2, 2, 2, 3, 3, 3])
    kept = raise_to_floor(select(scores, 2 / 3).kept, scores, groups, torch.tensor([0.0, 1.0, 1.0, 0.5]))
    assert kept.tolist() == [True] * 8 + [False]


def test_many_groups_are_floored_at_once():
    scores = torch.arange(30_000).float()
    groups = torch.arange(30_000) // 3
    chosen = select(scores, 0.9, groups=groups, min_keep=0.3)
    assert bool(torch.bincount(groups[chosen.kept]).eq(torch.where(torch.arange(10_000) < 1000, 3, 1)).all())
    assert chosen.shortfall == 9000


def test_the_scores_are_left_alone_and_no_gradient_is_recorded():
    scores = torch.tensor([3.0, math.nan, 1.0, 2.0], requires_grad=True)
    before = scores.detach().clone()
    chosen = select(scores, 0.25, groups=torch.tensor([0, 0, 1, 1]), min_keep=0.5)
    assert torch.equal(scores.detach().view(torch.int32), before.view(torch.int32))
    assert not chosen.kept.requires_grad
    assert not soften(scores, select(scores, 0.5), 1.0).requires_grad


def test_a_strided_view_is_read_in_its_own_order():
    table = torch.tensor([[3.0, 0.0], [1.0, 9.0], [2.0, 0.0], [4.0, 0.0]])
    assert select(table[:, 0], 0.5).kept.tolist() == [False, True, True, False]


def test_whole_numbers_are_scores_too():
    assert select(torch.tensor([3, 1, 2, 4]), 0.5).kept.tolist() == [False, True, True, False]


@pytest.mark.parametrize("scores", [torch.zeros(0), torch.zeros(2, 2), torch.tensor(1.0)])
def test_scores_must_be_one_number_per_sample(scores):
    with pytest.raises(InputError, match="scores have shape"):
        select(scores, 0.5)


@pytest.mark.parametrize("drop_fraction", [-0.1, 1.0, math.nan])
def test_a_drop_fraction_outside_zero_to_one_is_an_error(drop_fraction):
    with pytest.raises(InputError, match=r"\[0, 1\)"):
        select(torch.zeros(3), drop_fraction)


def test_a_floor_needs_groups_that_fit():
    with pytest.raises(InputError, match="min_keep needs groups"):
        select(torch.zeros(3), 0.5, min_keep=0.5)
    with pytest.raises(InputError, match="2 groups for 3 scores"):
        select(torch.zeros(3), 0.5, groups=torch.zeros(2, dtype=torch.int64))
    for min_keep in (-0.1, 1.1, math.nan):
        with pytest.raises(InputError, match="min_keep is"):
            select(torch.zeros(3), 0.5, groups=torch.zeros(3, dtype=torch.int64), min_keep=min_keep)


# Soft weights


@settings(max_examples=300)
@given(score_tensors(), fractions(), fractions(), st.integers(1, 3), st.sampled_from([1e-300, 0.01, 1.0, 1e300]))
def test_soft_weights_lie_in_zero_to_one_and_spare_nothing_that_is_not_finite(
    scores, rho, min_keep, n_groups, temperature
):
    groups = torch.arange(len(scores)) % n_groups
    weight = soften(scores, select(scores, rho, groups=groups, min_keep=min_keep), temperature)
    assert weight.dtype == torch.float32
    assert bool(((weight >= 0) & (weight <= 1)).all())
    assert bool((weight[~torch.isfinite(scores)] == 0).all())


@settings(max_examples=300)
@given(score_tensors(), fractions(), fractions(), st.integers(1, 3))
def test_soft_weights_near_temperature_zero_are_the_hard_selection(scores, drop_fraction, min_keep, n_groups):
    chosen = select(scores, drop_fraction, groups=torch.arange(len(scores)) % n_groups, min_keep=min_keep)
    for temperature in (0, 1e-300):
        assert soften(scores, chosen, temperature).tolist() == chosen.kept.float().tolist()


@pytest.mark.parametrize(("dtype", "apart"), [(torch.float32, 2**-23), (torch.float64, 2**-52)])
def test_neighbouring_scores_across_the_cut_fall_to_their_own_sides(dtype, apart):
    for scores in (torch.tensor([1.0, 1.0 + apart], dtype=dtype), torch.tensor([1.0 + apart, 1.0], dtype=dtype)):
        chosen = select(scores, 0.5)
        assert soften(scores, chosen, 1e-300).tolist() == chosen.kept.float().tolist()


def test_soft_weights_are_a_sigmoid_around_the_middle_of_the_gap():
    scores = torch.tensor([1.0, 2.0, 4.0, 5.0])
    expected = torch.sigmoid((3.0 - scores) / 0.5)
    assert torch.allclose(soften(scores, select(scores, 0.5), 0.5), expected)


def test_equal_scores_across_the_cut_weigh_between_their_neighbours():
    scores = torch.tensor([0.0, 1.0, 1.0, 4.0])
    weight = soften(scores, select(scores, 0.5), 1.0)
    assert torch.allclose(weight, torch.sigmoid(torch.tensor([1.0, 0.5, -1.5, -3.0])))


@settings(max_examples=300)
@given(score_tensors(min_size=2), fractions(), st.floats(1e-3, 10))
def test_a_higher_score_never_weighs_more(scores, drop_fraction, temperature):
    weight = soften(scores, select(scores, drop_fraction), temperature)
    finite = torch.isfinite(scores)
    # Of equal scores the heavier comes first, so that neighbours in the list are the ones to compare.
    ranked = sorted(zip(scores[finite].double().tolist(), (-weight[finite]).tolist(), strict=True))
    assert all(lighter >= heavier for (_, heavier), (_, lighter) in pairwise(ranked))


@pytest.mark.parametrize("temperature", [0, 0.1, 10.0])
def test_dropping_nothing_leaves_every_weight_at_one(temperature):
    scores = torch.rand(20)
    assert soften(scores, select(scores, 0.0), temperature).tolist() == [1.0] * 20


def test_what_only_a_floor_keeps_stays_at_full_weight():
    scores = torch.tensor([1.0, 2.0, 90.0, 95.0])
    chosen = select(scores, 0.5, groups=torch.tensor([0, 0, 1, 1]), min_keep=0.5)
    weight = soften(scores, chosen, 1.0)
    assert weight[2] == 1
    assert weight[3] < 1e-6


@pytest.mark.parametrize("temperature", [-1.0, math.nan, math.inf])
def test_a_softness_that_is_negative_or_not_finite_is_an_error(temperature):
    with pytest.raises(InputError, match="softness"):
        soften(torch.zeros(3), select(torch.zeros(3), 0.5), temperature)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
@pytest.mark.parametrize("name", list(large_scores()))
def test_a_gpu_keeps_the_same_samples_as_the_cpu(name):
    scores = torch.from_numpy(large_scores()[name])
    groups = torch.arange(len(scores)) % 7
    for dtype in DTYPES:
        for drop_fraction in (0.0, 0.05, 0.4, 0.9):
            here = scores.to(dtype)
            on_cpu = select(here, drop_fraction, groups=groups, min_keep=0.3)
            on_gpu = select(here.cuda(), drop_fraction, groups=groups.cuda(), min_keep=0.3)
            assert_same(Selection(on_gpu.kept.cpu(), on_gpu.cut, on_gpu.nonfinite, on_gpu.shortfall), on_cpu)
            soft = soften(here, on_cpu, 0.5)
            assert torch.allclose(soften(here.cuda(), on_gpu, 0.5).cpu(), soft, atol=1e-6)
