import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from stepe.errors import InputError
from stepe.loop import objective as module
from stepe.loop.numpy_selection import keep_count
from stepe.loop.objective import minimise_over_gates, objective

LOSSES = torch.tensor([0.2, 3.0, 0.7, 1.1])


def test_the_objective_is_the_mean_kept_loss_less_the_reward_for_keeping():
    kept = torch.tensor([True, False, True, True])
    assert float(objective(LOSSES, kept)) == pytest.approx((0.2 + 0.7 + 1.1) / 4)
    assert float(objective(LOSSES, kept, keep_reward=2.0)) == pytest.approx((0.2 + 0.7 + 1.1) / 4 - 2.0 * 3 / 4)


def test_a_positive_reward_makes_keeping_more_cheaper():
    fewer, more = torch.tensor([True, False, True, False]), torch.tensor([True, False, True, True])
    assert objective(LOSSES, more) > objective(LOSSES, fewer)
    assert objective(LOSSES, more, keep_reward=1.2) < objective(LOSSES, fewer, keep_reward=1.2)


def test_weights_count_in_proportion():
    weight = torch.tensor([1.0, 0.0, 0.5, 0.25])
    assert float(objective(LOSSES, weight, keep_reward=1.0)) == pytest.approx((0.2 + 0.35 + 0.275 - 1.75) / 4)


@pytest.mark.parametrize("broken", [math.inf, math.nan])
def test_a_dropped_loss_that_is_not_finite_counts_nothing(broken):
    losses = torch.tensor([0.2, broken, 0.6])
    assert float(objective(losses, torch.tensor([True, False, True]))) == pytest.approx(0.8 / 3)
    chosen = minimise_over_gates(losses, 0.4)
    assert chosen.kept.tolist() == [True, False, True]
    assert math.isfinite(objective(losses, chosen.kept))


def test_the_gradient_reaches_kept_losses_alone():
    losses = LOSSES.clone().requires_grad_()
    objective(losses, torch.tensor([True, False, True, True]), keep_reward=0.5).backward()
    assert losses.grad.tolist() == [0.25, 0.0, 0.25, 0.25]


def test_gates_keep_what_is_cheaper_than_the_reward_and_otherwise_as_little_as_allowed():
    assert minimise_over_gates(LOSSES, 0.75).kept.tolist() == [True, False, False, False]
    assert minimise_over_gates(LOSSES, 0.75, keep_reward=1.0).kept.tolist() == [True, False, True, False]
    assert minimise_over_gates(LOSSES, 0.25, keep_reward=1.0).kept.tolist() == [True, False, True, True]
    assert minimise_over_gates(LOSSES, 0.75, keep_reward=9.0).kept.tolist() == [True, True, True, True]
    assert minimise_over_gates(LOSSES, 0.0).kept.tolist() == [True, True, True, True]


@settings(max_examples=100)
@given(st.integers(1, 3000), st.floats(0, 0.999), st.integers(0, 1000))
def test_the_constraint_allows_exactly_as_many_drops_as_the_selection_rule(n, rho_max, seed):
    losses = torch.rand(n, generator=torch.Generator().manual_seed(seed)) + 0.1
    assert int(minimise_over_gates(losses, rho_max).kept.sum()) == keep_count(n, rho_max)


def test_the_count_survives_its_way_through_a_fraction(monkeypatch):
    # For these numbers (dropped / n) * n rounds to less than dropped, by more than the selection's tolerance.
    n, dropped = 33_701_991, 28_978_282
    assert keep_count(n, dropped / n) != n - dropped
    asked = []
    monkeypatch.setattr(module, "select", lambda losses, drop_fraction: asked.append(drop_fraction))
    minimise_over_gates(torch.ones(1).expand(n), (dropped + 0.5) / n)
    assert keep_count(n, asked[0]) == n - dropped


def test_a_loss_of_minus_infinity_is_not_worth_keeping():
    losses = torch.tensor([-math.inf, -math.inf, 1.0, 2.0])
    assert minimise_over_gates(losses, 0.75).kept.tolist() == [False, False, True, False]


@pytest.mark.parametrize("rho_max", [1.0, 1.5, -0.1, math.nan])
@pytest.mark.parametrize("keep_reward", [0.0, 9.0])
def test_a_rho_max_outside_zero_to_one_is_an_error_whatever_the_reward(rho_max, keep_reward):
    with pytest.raises(InputError, match="rho_max is"):
        minimise_over_gates(LOSSES, rho_max, keep_reward)
