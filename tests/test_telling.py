import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from stepe.telling import entropy, telling

CLASSES = 10


def guesses(n: int, *, nothing: float = 0.0, sureness: float = 6.0) -> tuple[Tensor, Tensor, Tensor]:
    """Calibrated guesses, labels drawn by them, and which inputs show nothing, so that labels do not depend on them."""
    draw = torch.Generator().manual_seed(0)
    blank = torch.rand(n, generator=draw) < nothing
    scale = torch.where(blank, 0.7, sureness * torch.rand(n, generator=draw))
    guess = (scale[:, None] * torch.randn(n, CLASSES, generator=draw)).softmax(1)
    drawn = torch.multinomial(guess, 1, generator=draw).squeeze(1)
    return guess, torch.where(blank, torch.randint(CLASSES, (n,), generator=draw), drawn), blank


def by_hand(guess: Tensor, labels: Tensor) -> list[tuple[float, float]]:
    """(told, claimed) of every part, a sample at a time."""
    n = len(labels)
    used = [sum(int(label == each) for label in labels.tolist()) / n for each in range(guess.shape[1])]
    order = sorted(range(n), key=lambda i: float(entropy(guess[i : i + 1])))
    size, parts = n // 20, []
    for start in range(0, n, size):
        told = claimed = 0.0
        for i in order[start : start + size]:
            row = guess[i].tolist()
            chance = sum(p * u for p, u in zip(row, used, strict=True))
            told += row[int(labels[i])] - chance
            claimed += sum(p * p for p in row) - chance
        parts.append((told, claimed))
    return parts


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
    shows = telling(guess, labels)
    assert shows.mean() > 0.97
    assert shows[wrong].mean() == pytest.approx(float(shows[~wrong].mean()), abs=0.02) or rate == 0


def test_what_guesses_tell_is_what_they_give_over_what_they_claim():
    guess, labels, _ = guesses(1000, nothing=0.3, sureness=30)
    parts = by_hand(guess, labels)
    shows = telling(guess, labels)
    order = torch.argsort(entropy(guess), stable=True)
    told, claimed = parts[-1]
    assert told / claimed < 0.5
    assert float(shows[order[-1]]) < 1
    assert (shows[order].diff() <= 0).all()
    assert float(shows[order[0]]) == 1


def test_it_does_not_depend_on_the_order_of_the_samples():
    guess, labels, _ = guesses(1000, nothing=0.3)
    order = torch.randperm(1000, generator=torch.Generator().manual_seed(2))
    assert torch.allclose(telling(guess, labels)[order], telling(guess[order], labels[order]))


def test_guesses_that_know_nothing_say_nothing_about_inputs():
    labels = torch.arange(200) % CLASSES
    assert torch.equal(telling(torch.full((200, CLASSES), 0.1), labels), torch.ones(200))
    opposed = F.one_hot((labels + 1) % CLASSES, CLASSES).float()
    assert torch.equal(telling(opposed, labels), torch.ones(200))


@pytest.mark.parametrize("n", [1, 2, 149])
def test_few_samples_prove_nothing(n):
    guess, labels, _ = guesses(n, nothing=0.5)
    assert torch.equal(telling(guess.half(), labels), torch.ones(n))


def test_guesses_that_are_not_finite_are_no_trouble():
    guess, labels, _ = guesses(100)
    guess[3] = float("nan")
    assert torch.isfinite(telling(guess, labels)).all()
