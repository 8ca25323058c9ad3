import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from stepe.beliefs.rate import Rate, stated_rate
from stepe.errors import InputError
from stepe.evidence.noise_rate import (
    confident_joint,
    deniable_share,
    estimate_rate,
    resolve_rho_max,
    rho_max_from_rate,
    unrelated_share,
)


@pytest.mark.parametrize(("rate", "expected"), [(0, 0.05), (0.2, 0.25), (0.4, 0.45), (0.45, 0.5), (0.6, 0.5), (1, 0.5)])
def test_rho_max_is_a_little_above_the_rate_and_at_most_half(rate, expected):
    assert rho_max_from_rate(rate) == pytest.approx(expected)


@pytest.mark.parametrize("rate", [-0.1, 1.1, math.nan, 40])
def test_a_rate_that_is_no_share_is_an_error_that_shows_it(rate):
    with pytest.raises(InputError, match="noise rate is") as error:
        rho_max_from_rate(rate)
    assert repr(rate) in str(error.value)


def test_a_given_rho_max_wins_over_a_known_rate():
    assert resolve_rho_max(0.1, 0.4) == 0.1
    assert resolve_rho_max(0, 0.4) == 0
    assert isinstance(resolve_rho_max(0, 0.4), float)


def test_a_known_rate_of_zero_is_still_a_known_rate():
    assert resolve_rho_max(None, 0.4) == pytest.approx(0.45)
    assert resolve_rho_max(None, 0.0) == pytest.approx(0.05)


@pytest.mark.parametrize("rho_max", [1.0, -0.1, math.nan, True])
def test_a_given_rho_max_is_checked(rho_max):
    with pytest.raises(InputError, match="rho_max is"):
        resolve_rho_max(rho_max, None)


def test_knowing_nothing_leaves_it_to_be_found_out():
    assert resolve_rho_max(None, None) is None
    assert resolve_rho_max("auto", 0.4) is None


def planted(n: int, classes: int, rate: float, seed: int = 0, *, next_class: bool = False) -> tuple[Tensor, Tensor]:
    """True classes, and labels of which a share is wrong: any other class, or always the next one."""
    draw = torch.Generator().manual_seed(seed)
    true = torch.arange(n) % classes
    wrong = torch.rand(n, generator=draw) < rate
    shift = torch.ones(n, dtype=torch.int64) if next_class else torch.randint(1, classes, (n,), generator=draw)
    return true, torch.where(wrong, (true + shift) % classes, true)


@pytest.mark.parametrize("rate", [0.0, 0.1, 0.4, 0.7])
def test_guesses_that_are_right_give_the_rate(rate):
    true, given = planted(2000, 5, rate)
    found = estimate_rate(F.one_hot(true, 5).float(), given)
    exact = float((true != given).double().mean())
    assert found.rate == pytest.approx(exact, abs=0.02)
    assert found.low <= exact <= found.high
    assert found.high - found.low < 0.05


def test_doubt_widens_the_range():
    true, given = planted(2000, 5, 0.2)
    sure, unsure = (0.96 * F.one_hot(true, 5) + 0.008, 0.6 * F.one_hot(true, 5) + 0.08)
    ranges = [estimate_rate(guess, given) for guess in (sure, unsure)]
    assert ranges[1].high - ranges[1].low > 2 * (ranges[0].high - ranges[0].low)
    told = estimate_rate(unsure, given, unsure=0.0)
    assert told.high - told.low < ranges[0].high - ranges[0].low


def test_where_models_differ_their_own_mistakes_are_taken_off():
    true, given = planted(2000, 5, 0.2, next_class=True)
    # The next class is the runner-up, as it is for models that learned such labels.
    guess = 0.9 * F.one_hot(true, 5) + 0.1 * F.one_hot((true + 1) % 5, 5)
    one, several = estimate_rate(guess, given), estimate_rate(guess, given, unsure=0.2, doubt=0.3)
    assert several.rate == pytest.approx(one.rate - 0.08)
    assert several.low < one.low
    assert several.high > one.high
    assert estimate_rate(guess, given, unsure=0.2, doubt=0.5).low == 0
    assert estimate_rate(F.one_hot(given, 5).float(), given, unsure=0.2).rate == 0


def random_guesses(true: Tensor, classes: int, sharpness: float, seed: int = 1) -> Tensor:
    draw = torch.Generator().manual_seed(seed)
    return (sharpness * F.one_hot(true, classes) + torch.randn(len(true), classes, generator=draw)).softmax(1)


@pytest.mark.parametrize("sharpness", [5.0, 7.0])
@pytest.mark.parametrize("rate", [0.0, 0.1, 0.4])
def test_labels_that_fell_anywhere_are_counted_whatever_the_models_think_of_each_other(rate, sharpness):
    true, given = planted(4000, 10, rate)
    guess = random_guesses(true, 10, sharpness)
    unrelated = unrelated_share(guess, given)
    assert unrelated == pytest.approx(rate, abs=0.04)
    found = estimate_rate(guess, given, unsure=0.5)
    assert found.rate == pytest.approx(rate, abs=0.04)
    assert found.low == pytest.approx(unrelated / 2)  # the doubt alone would leave nothing


def test_models_that_know_little_say_nothing_about_unrelated_labels():
    true, given = planted(4000, 10, 0.4)
    guess = (random_guesses(true, 10, 6.0) + 1).softmax(1)
    assert float(guess.max()) < 0.5
    assert unrelated_share(guess, given) == 0


def test_labels_on_inputs_that_show_nothing_are_unrelated_to_them():
    true, _ = planted(4000, 10, 0.0)
    guess = random_guesses(true, 10, 6.0)
    guess[:800] = random_guesses(true[:800], 10, 0.0)
    assert unrelated_share(guess, true) == pytest.approx(0.2, abs=0.04)


@pytest.mark.parametrize("classes", [2, 10])
def test_labels_that_follow_a_pattern_or_stand_second_are_not_unrelated(classes):
    true, given = planted(4000, classes, 0.3, next_class=True)
    guess = 0.7 * F.one_hot(true, classes) + 0.3 * F.one_hot((true + 1) % classes, classes)
    assert unrelated_share(guess, given) == 0


def test_with_two_classes_a_weak_model_says_nothing_about_unrelated_labels():
    true, _ = planted(1000, 2, 0.0)
    assert unrelated_share(random_guesses(true, 2, 0.5), true) == 0


def test_a_guess_that_is_not_finite_does_not_spoil_the_others():
    true, given = planted(2000, 5, 0.2)
    guess = F.one_hot(true, 5).float()
    guess[:3] = float("nan")
    assert estimate_rate(guess, given).rate == pytest.approx(0.2, abs=0.03)


def test_a_range_that_says_nothing_is_not_stated_as_a_rate():
    assert stated_rate(Rate(0.5, 0.0, 0.8)).startswith("How many labels are wrong cannot be told")
    assert "give it more epochs" in stated_rate(Rate(0.0, 0.0, 1.0))


def test_more_than_half_is_dropped_only_on_good_evidence():
    assert Rate(0.6, 0.5, 0.7).rho_max == pytest.approx(0.675)
    assert Rate(0.6, 0.1, 0.8).rho_max == 0.5
    assert Rate(0.9, 0.8, 1.0).rho_max == 0.8


def test_an_unsure_estimate_drops_a_little_more_but_next_to_nothing_of_clean_labels():
    assert Rate(0.4, 0.3, 0.4).rho_max == pytest.approx(0.45)
    assert Rate(0.4, 0.3, 0.5).rho_max == pytest.approx(0.475)
    assert Rate(0.02, 0.0, 0.02).rho_max == pytest.approx(0.025)
    assert Rate(0.02, 0.0, 0.3).rho_max == pytest.approx(0.03)
    assert Rate(0.0, 0.0, 1.0).rho_max == 0


@pytest.mark.parametrize("classes", [2, 10])
def test_a_model_that_knows_nothing_says_nothing(classes):
    given = torch.arange(1000) % classes
    one_class = torch.full((1000, classes), 0.01 / classes)
    one_class[:, 1] += 0.99
    assert estimate_rate(one_class, given) == Rate(0.0, 0.0, 1.0)
    at_random = torch.rand(1000, classes, generator=torch.Generator().manual_seed(0))
    assert estimate_rate(at_random / at_random.sum(1, keepdim=True), given) == Rate(0.0, 0.0, 1.0)


def test_a_rare_class_can_be_judged_too():
    given = (torch.arange(1000) < 50).long()
    guess = F.one_hot((torch.arange(1000) < 40).long(), 2).float()
    assert estimate_rate(guess, given).rate == pytest.approx(0.01, abs=0.005)


def naming(predicted: Tensor, classes: int, sure: float = 0.9) -> Tensor:
    """Guesses that name these classes."""
    return torch.where(F.one_hot(predicted, classes).bool(), sure, (1 - sure) / (classes - 1))


def test_a_class_that_is_never_named_is_not_taken_for_mislabelled():
    true, given = planted(1000, 5, 0.05, next_class=True)
    found = estimate_rate(naming(true.where(true < 4, torch.arange(1000) % 4), 5), given)
    assert found.rate == pytest.approx(0.05, abs=0.02)
    assert found.high > 0.2, "its labels may be wrong all the same"


def test_labels_of_a_class_that_is_never_named_are_not_unrelated_to_their_inputs():
    true = torch.arange(1000) % 10
    known = naming(true, 10)
    blind = known.clone()
    blind[true == 9] = naming(true[true == 9] - 1, 10)
    blind[:, 9] = 0
    assert unrelated_share(blind, true) == unrelated_share(known, true) == 0


@pytest.mark.parametrize(("recognised", "share"), [(0, 0.0), (5, 0.25), (10, 0.5), (20, 1.0), (100, 1.0)])
def test_what_may_be_denied_of_a_class_grows_with_what_is_recognised(recognised, share):
    given = torch.arange(300) // 100
    predicted = torch.where(torch.arange(300) < 200 + recognised, given, 0)
    assert deniable_share(naming(predicted, 3), given).tolist() == pytest.approx([1, 1, share])


def test_all_of_a_class_may_be_denied_where_few_labels_of_any_are_agreed_with():
    true, given = planted(5000, 10, 0.85)
    assert deniable_share(naming(true, 10), given).min() == 1


def test_a_class_that_nobody_carries_is_nobodys():
    guess = torch.tensor([[0.5, 0.1, 0.4], [0.1, 0.5, 0.4], [0.6, 0.2, 0.2]])
    assert float(confident_joint(guess, torch.tensor([0, 1, 0]))[:, 2].sum()) == 0


def test_the_joint_is_cleanlabs():
    count = pytest.importorskip("cleanlab.count")
    true, given = planted(600, 4, 0.3)
    draw = torch.Generator().manual_seed(1)
    guess = (2 * F.one_hot(true, 4) + torch.randn(600, 4, generator=draw)).softmax(1)
    theirs = count.compute_confident_joint(given.numpy(), guess.numpy(), calibrate=False)
    assert confident_joint(guess, given).tolist() == theirs.tolist()
    joint = count.estimate_joint(given.numpy(), guess.numpy())
    assert estimate_rate(guess, given).rate == pytest.approx(1 - joint.trace(), abs=0.01)


def test_the_doubts_of_a_model_that_leans_to_its_labels_count_all():
    labels = torch.arange(1000) % 4
    said = torch.where(torch.arange(1000) < 300, (labels + 1) % 4, labels)
    unsure = 0.4 * F.one_hot(said, 4) + 0.3 * F.one_hot(labels, 4) + 0.075
    guess = torch.where((said != labels)[:, None], unsure, 0.9 * F.one_hot(labels, 4) + 0.025)
    assert estimate_rate(guess, labels).rate < 0.1
    assert estimate_rate(guess, labels, leaning=True).rate == pytest.approx(0.3)
