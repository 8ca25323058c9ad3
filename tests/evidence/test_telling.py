from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from stepe.evidence.telling import FAVOUR, SURE, entropy, telling

CLASSES = 10


def guesses(n: int, *, nothing: float = 0.0, sureness: float = 6.0) -> tuple[Tensor, Tensor, Tensor]:
    """Calibrated guesses, labels drawn by them, and which inputs show nothing, so that labels do not depend on them."""
    draw = torch.Generator().manual_seed(0)
    blank = torch.rand(n, generator=draw) < nothing
    scale = torch.where(blank, 0.7, sureness * torch.rand(n, generator=draw))
    guess = (scale[:, None] * torch.randn(n, CLASSES, generator=draw)).softmax(1)
    drawn = torch.multinomial(guess, 1, generator=draw).squeeze(1)
    return guess, torch.where(blank, torch.randint(CLASSES, (n,), generator=draw), drawn), blank


def by_hand(guess: Tensor, labels: Tensor) -> list[float]:
    """What every sample shows, a sample at a time."""
    n = len(labels)
    used = [labels.tolist().count(each) / n for each in range(guess.shape[1])]
    order = sorted(range(n), key=lambda i: float(entropy(guess[i : i + 1])))
    size = n // 20
    blocks = []  # of parts: told, claimed, variance, members
    for start in range(0, n, size):
        told = claimed = variance = 0.0
        for i in order[start : start + size]:
            apart = [p - u for p, u in zip(guess[i].tolist(), used, strict=True)]
            chance = sum(a * u for a, u in zip(apart, used, strict=True))
            told += apart[int(labels[i])] - chance
            claimed += sum(a * a for a in apart)
            variance += sum(a * a * u for a, u in zip(apart, used, strict=True)) - chance**2
        weight = claimed**2 / variance
        blocks.append([told / claimed, weight, claimed, variance, order[start : start + size]])
    while any(one[0] < other[0] for one, other in pairwise(blocks)):  # whoever rises is averaged with the one before
        at = next(k for k, (one, other) in enumerate(pairwise(blocks)) if one[0] < other[0])
        one, other = blocks[at], blocks.pop(at + 1)
        value = (one[0] * one[1] + other[0] * other[1]) / (one[1] + other[1])
        blocks[at] = [value, *(x + y for x, y in zip(one[1:], other[1:], strict=True))]
    values = sorted(block[0] for block in blocks for _ in range(len(block[4]) // size))
    shows, usual, least = [0.0] * n, values[9], 1.0
    for value, _, claimed, variance, members in blocks:
        error = variance**0.5 / claimed
        if usual - value > SURE * error:
            least = min(least, max(0.0, (value + FAVOUR * error) / usual))
        for i in members:
            shows[i] = least
    return shows


def test_inputs_that_show_nothing_give_themselves_away():
    guess, labels, blank = guesses(4000, nothing=0.2, sureness=30)
    shows = telling(guess, labels)
    assert shows[blank].mean() < 0.4
    assert shows[~blank].mean() > 0.9


@pytest.mark.parametrize("rate", [0.0, 0.2, 0.4])
def test_wrong_labels_are_not_taken_for_inputs_that_show_nothing(rate):
    guess, labels, _ = guesses(4000)
    wrong = torch.rand(4000, generator=torch.Generator().manual_seed(1)) < rate
    labels = torch.where(wrong, (labels + 3) % CLASSES, labels)
    assert telling(guess, labels).mean() > 0.97


def test_what_guesses_tell_is_what_they_give_over_what_they_claim():
    guess, labels, _ = guesses(2000, nothing=0.3, sureness=30)
    assert telling(guess, labels).tolist() == pytest.approx(by_hand(guess, labels), abs=1e-4)


def test_guesses_about_rare_classes_are_as_good_as_any():
    draw = torch.Generator().manual_seed(0)
    labels = (torch.rand(4000, generator=draw) < 0.1).long()
    seen = 0.7 * (2 * labels - 1) + torch.randn(4000, generator=draw)
    odds = torch.exp(1.4 * seen) * 0.1 / 0.9  # Bayes' rule: guesses are right as often as they say
    guess = torch.stack([1 / (1 + odds), odds / (1 + odds)], dim=1)
    assert telling(guess, labels)[labels == 1].mean() > 0.9


@pytest.mark.parametrize("seed", range(8))
def test_of_two_classes_the_least_sure_guesses_are_not_held_against_their_inputs(seed):
    draw = torch.Generator().manual_seed(seed)
    seen = 2 * torch.randn(2000, generator=draw)
    right = torch.sigmoid(seen)
    guess = torch.stack([1 - right, right], dim=1) * 0.6 + 0.2  # calibrated to labels of which a fifth are wrong
    labels = torch.bernoulli(guess[:, 1], generator=draw).long()
    assert telling(guess, labels).min() > 0.5


def test_it_does_not_depend_on_the_order_of_the_samples():
    guess, labels, _ = guesses(1000, nothing=0.3)
    order = torch.randperm(1000, generator=torch.Generator().manual_seed(2))
    assert torch.allclose(telling(guess, labels)[order], telling(guess[order], labels[order]))


def test_guesses_that_know_nothing_say_nothing_about_inputs():
    labels = torch.arange(1000) % CLASSES
    opposed = F.one_hot((labels + 1) % CLASSES, CLASSES).float()
    assert torch.equal(telling(opposed, labels), torch.ones(1000))


@pytest.mark.parametrize("n", [1, 2, 499])
def test_few_samples_prove_nothing(n):
    guess, labels, _ = guesses(n, nothing=0.5)
    assert torch.equal(telling(guess.half(), labels), torch.ones(n))


def test_guesses_that_are_not_finite_are_no_trouble():
    guess, labels, _ = guesses(1000)
    guess[3] = float("nan")
    assert torch.isfinite(telling(guess, labels)).all()
