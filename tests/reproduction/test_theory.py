"""What docs/research/theory.md claims about the objective J and the selection, each claim under a name of its own."""

import itertools
import math
import re
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor

from stepe.loop.objective import minimise_over_gates, objective
from stepe.loop.schedule import make_schedule
from stepe.loop.selection import keep_count, select, soften

# Steps of 1/64, so that sums are exact and ties are real ones.
LOSS = st.integers(1, 400).map(lambda k: k / 64)
LOSSES = st.lists(LOSS, min_size=1, max_size=9).map(lambda values: torch.tensor(values, dtype=torch.float64))
REWARD = st.integers(0, 500).map(lambda k: k / 64)
DROP_MAX = st.sampled_from([0.0, 0.1, 0.25, 1 / 3, 0.5, 0.75, 0.9])


def all_gates(n: int, rho_max: float) -> list[Tensor]:
    """Every gamma in {0, 1}^n that drops at most rho_max * n samples."""
    gates = itertools.product([False, True], repeat=n)
    return [torch.tensor(gate) for gate in gates if n - sum(gate) <= rho_max * n + 1e-9]


# The minimum over the gates (sections 3.2 and 3.3)


@settings(max_examples=100)
@given(LOSSES, DROP_MAX, REWARD)
def test_the_gates_are_a_global_minimum_of_j(losses, rho_max, reward):
    chosen = minimise_over_gates(losses, rho_max, reward)
    best = min(float(objective(losses, gate, reward)) for gate in all_gates(len(losses), rho_max))
    # J, not gamma: equal losses, or a loss equal to the reward, leave several minima.
    assert float(objective(losses, chosen.kept, reward)) == pytest.approx(best, abs=1e-12)
    assert int((~chosen.kept).sum()) <= rho_max * len(losses) + 1e-9


@settings(max_examples=100)
@given(LOSSES, DROP_MAX)
def test_the_selection_of_an_epoch_is_a_global_minimum_of_j_without_reward(losses, drop_fraction):
    kept = select(losses, drop_fraction).kept
    best = min(float(objective(losses, gate)) for gate in all_gates(len(losses), drop_fraction))
    assert float(objective(losses, kept)) == pytest.approx(best, abs=1e-12)


@settings(max_examples=60)
@given(LOSSES, DROP_MAX, st.data())
def test_weights_between_zero_and_one_reach_no_lower_j_than_gates(losses, rho_max, data):
    # J is linear in gamma, so relaxing {0, 1} to [0, 1] buys nothing where rho_max * n is whole.
    n = len(losses)
    allowed = math.floor(rho_max * n + 1e-9)
    loss_of_weight = torch.tensor(data.draw(st.lists(st.floats(0, 1), min_size=n, max_size=n)), dtype=torch.float64)
    weight = 1 - loss_of_weight * min(1.0, allowed / max(float(loss_of_weight.sum()), 1e-9))
    reward = data.draw(REWARD)
    chosen = minimise_over_gates(losses, rho_max, reward)
    assert float(objective(losses, chosen.kept, reward)) <= float(objective(losses, weight, reward)) + 1e-12


# The objective's sign


@settings(max_examples=100)
@given(LOSSES, DROP_MAX)
def test_a_reward_above_every_loss_keeps_all(losses, rho_max):
    assert bool(minimise_over_gates(losses, rho_max, keep_reward=float(losses.max()) + 1e-6).kept.all())


@settings(max_examples=100)
@given(LOSSES, DROP_MAX)
def test_without_reward_exactly_the_allowed_number_goes_and_it_is_the_highest_losses(losses, rho_max):
    kept = minimise_over_gates(losses, rho_max, keep_reward=0.0).kept
    assert int(kept.sum()) == keep_count(len(losses), rho_max)
    if not bool(kept.all()):
        assert float(losses[kept].max()) <= float(losses[~kept].min())


@settings(max_examples=60)
@given(LOSSES, DROP_MAX, REWARD)
def test_with_the_printed_sign_the_second_term_never_keeps_anything(losses, rho_max, weight):
    # Eq. 1 as printed, mean(gamma * loss) + lambda * mean(gamma), is the objective under a negative reward.
    gates = all_gates(len(losses), rho_max)
    best = min(gates, key=lambda gate: float(objective(losses, gate, keep_reward=-weight)))
    assert int(best.sum()) == keep_count(len(losses), rho_max)
    assert float(objective(losses, best)) == pytest.approx(
        float(objective(losses, select(losses, rho_max).kept)), abs=1e-12
    )


def test_without_noise_only_a_reward_recovers_training_on_everything():
    losses = torch.tensor([0.1, 0.2, 0.3, 0.4], dtype=torch.float64)  # all clean
    assert not bool(minimise_over_gates(losses, 0.25, keep_reward=0.0).kept.all())
    assert bool(minimise_over_gates(losses, 0.25, keep_reward=0.5).kept.all())


# What "differentiable" means


@settings(max_examples=50)
@given(st.integers(0, 10_000), DROP_MAX)
def test_gates_are_constant_around_almost_every_point(seed, drop_fraction):
    scores = torch.rand(12, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    gap = float((scores[:, None] - scores[None, :] + torch.eye(12)).abs().min())
    assume(gap > 1e-9)
    nudge = torch.rand(12, generator=torch.Generator().manual_seed(seed + 1)) * gap * 0.49
    assert torch.equal(select(scores + nudge, drop_fraction).kept, select(scores, drop_fraction).kept)


@pytest.mark.parametrize("temperature", [0.0, 0.5])
def test_no_gradient_passes_through_gates_or_soft_weights(temperature):
    x, y, theta = problem(seed=0)
    theta.requires_grad_()
    losses = per_sample(theta, x, y)
    weight = soften(losses, select(losses, 0.3), temperature).double()
    assert not weight.requires_grad
    (through,) = torch.autograd.grad(objective(losses, weight), theta)
    (with_constants,) = torch.autograd.grad((weight.detach() * per_sample(theta, x, y)).mean(), theta)
    assert torch.equal(through, with_constants)


@settings(max_examples=20)
@given(st.integers(0, 1000))
def test_the_gradient_of_j_is_that_of_the_kept_samples_alone(seed):
    x, y, theta = problem(seed)
    theta.requires_grad_()
    kept = select(per_sample(theta, x, y), 0.3).kept
    (of_j,) = torch.autograd.grad(objective(per_sample(theta, x, y), kept), theta)
    (of_kept,) = torch.autograd.grad(per_sample(theta, x[kept], y[kept]).mean(), theta)
    assert torch.allclose(of_j, of_kept * kept.double().mean())


# Alternating updates


def problem(seed: int, n: int = 60, classes: int = 3) -> tuple[Tensor, Tensor, Tensor]:
    """Softmax regression with a third of the labels drawn at random: convex in theta."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 4, dtype=torch.float64, generator=generator)
    y = x[:, :classes].argmax(1)
    wrong = torch.rand(n, generator=generator) < 1 / 3
    y = torch.where(wrong, torch.randint(classes, (n,), generator=generator), y)
    return x, y, torch.randn(4, classes, dtype=torch.float64, generator=generator)


def per_sample(theta: Tensor, x: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(x @ theta, y, reduction="none")


def curvature(x: Tensor) -> float:
    """A bound on the second derivatives of J: that of softmax cross-entropy is at most 1/2 in the logits."""
    return float(torch.linalg.matrix_norm(x, 2)) ** 2 / (2 * len(x))


def trace(seed: int, drop_fractions: list[float], reward: float) -> list[float]:
    """J after every half step of the alternation: gates, then one full-batch gradient step."""
    x, y, theta = problem(seed)
    values = []
    for drop_fraction in drop_fractions:
        theta = theta.detach().requires_grad_()
        losses = per_sample(theta, x, y)
        kept = minimise_over_gates(losses.detach(), drop_fraction, reward).kept
        j = objective(losses, kept, reward)
        values.append(float(j.detach()))
        (gradient,) = torch.autograd.grad(j, theta)
        theta = theta.detach() - gradient / curvature(x)
        values.append(float(objective(per_sample(theta, x, y), kept, reward)))
    return values


@settings(max_examples=25)
@given(st.integers(0, 10_000), st.sampled_from(["linear", "early"]), st.sampled_from([0.0, 0.5, 2.0]))
def test_full_batch_alternation_never_raises_j_while_the_drop_fraction_does_not_fall(seed, shape, reward):
    schedule = make_schedule(shape, rho_max=0.45, epochs=25, warmup=4)
    values = trace(seed, [schedule(epoch) for epoch in range(25)], reward)
    assert all(after <= before + 1e-12 for before, after in itertools.pairwise(values))
    assert values[-1] < values[0]


def test_j_can_rise_where_the_drop_fraction_falls():
    values = trace(0, [0.4] * 5 + [0.1], reward=0.0)
    assert values[-2] > values[-3]


@settings(max_examples=25)
@given(st.integers(0, 10_000))
def test_the_mean_over_the_kept_samples_never_rises_either(seed):
    # What an epoch trains on is J divided by the kept share; it falls too, since the lowest losses stay.
    schedule = make_schedule("linear", rho_max=0.45, epochs=25, warmup=4)
    fractions = [schedule(epoch) for epoch in range(25)]
    values = trace(seed, fractions, reward=0.0)
    kept_share = [keep_count(60, fraction) / 60 for fraction in fractions for _ in range(2)]
    means = [value / share for value, share in zip(values, kept_share, strict=True)]
    assert all(after <= before + 1e-12 for before, after in itertools.pairwise(means))


# Separation (section 3.5)


@st.composite
def separated(draw) -> tuple[Tensor, Tensor]:
    """Losses under ideal parameters, and which samples are noisy; L_out = 1 lies between the two kinds."""
    noisy = draw(st.lists(st.booleans(), min_size=2, max_size=40))
    assume(any(noisy) and not all(noisy))
    low, high = st.floats(0.001, 0.99), st.floats(1.01, 20)
    losses = [draw(high if bad else low) for bad in noisy]
    return torch.tensor(losses, dtype=torch.float64), torch.tensor(noisy)


def rho_max_at_least(noisy: Tensor, extra: float) -> float:
    """A rho_max between the noise rate and 1."""
    rate = float(noisy.double().mean())
    return rate + extra * (0.999 - rate)


@settings(max_examples=150)
@given(separated(), st.floats(0, 1), st.floats(0, 1))
def test_a_reward_between_the_losses_keeps_exactly_the_clean_set_for_any_rho_max_above_the_rate(case, extra, where):
    losses, noisy = case
    lowest, highest = float(losses[~noisy].max()), float(losses[noisy].min())
    reward = lowest + (0.01 + 0.98 * where) * (highest - lowest)
    kept = minimise_over_gates(losses, rho_max_at_least(noisy, extra), reward).kept
    assert kept.tolist() == (~noisy).tolist()


@settings(max_examples=150)
@given(separated(), st.floats(0, 1))
def test_without_reward_a_rho_max_above_the_rate_also_drops_clean_samples(case, extra):
    losses, noisy = case
    rho_max, n = rho_max_at_least(noisy, extra), len(losses)
    kept = minimise_over_gates(losses, rho_max, keep_reward=0.0).kept
    assert not bool((kept & noisy).any())
    lost = int((~noisy).sum()) - int(kept.sum())
    assert lost == math.floor(rho_max * n + 1e-9) - int(noisy.sum())


@settings(max_examples=100)
@given(separated(), st.floats(0, 1))
def test_a_rho_max_below_the_rate_keeps_every_clean_sample_and_some_noisy_ones(case, share):
    losses, noisy = case
    rho_max = share * (int(noisy.sum()) - 1) / len(losses)
    kept = minimise_over_gates(losses, rho_max, keep_reward=0.0).kept
    assert bool(kept[~noisy].all())
    assert bool(kept[noisy].any())


def test_a_rho_max_equal_to_the_rate_needs_no_reward():
    losses, noisy = torch.tensor([0.1, 3.0, 0.2, 2.0, 0.3]), torch.tensor([False, True, False, True, False])
    assert minimise_over_gates(losses, 0.4).kept.tolist() == (~noisy).tolist()


def test_a_model_that_learns_its_labels_by_heart_separates_nothing():
    # Separation is a claim about ideal parameters. A model with one logit row per sample reaches a lower J by
    # memorising, and the gates it leaves behind know nothing of the noise.
    clean, given_labels = torch.tensor([0, 1, 0, 1, 0]), torch.tensor([0, 0, 0, 1, 0])
    noisy = clean != given_labels
    ideal = 4.0 * F.one_hot(clean, 2).double()
    by_heart = 40.0 * F.one_hot(given_labels, 2).double()
    at_ideal, at_heart = (F.cross_entropy(logits, given_labels, reduction="none") for logits in (ideal, by_heart))
    best_at_ideal, best_at_heart = minimise_over_gates(at_ideal, 0.2), minimise_over_gates(at_heart, 0.2)
    assert best_at_ideal.kept.tolist() == (~noisy).tolist()
    assert objective(at_heart, best_at_heart.kept) < objective(at_ideal, best_at_ideal.kept)
    assert best_at_heart.kept.tolist() != (~noisy).tolist()


def test_every_test_that_the_theory_page_names_exists():
    page = (Path(__file__).parents[2] / "docs" / "research" / "theory.md").read_text()
    named = set(re.findall(r"`(test_\w+)`", page))
    assert len(named) > 10
    assert named <= set(globals())
