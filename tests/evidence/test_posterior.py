import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from stepe.beliefs.rate import Rate
from stepe.evidence.noise_rate import estimate_rate
from stepe.evidence.posterior import label_given_class, of_labels, posterior
from stepe.loop.metrics import auroc

CLASSES = 6


def hard_samples(n: int = 3000, *, next_class: bool, rate: float = 0.2) -> tuple[Tensor, Tensor, Tensor]:
    """Guesses that are often wrong, given labels, and which of those are wrong."""
    draw = torch.Generator().manual_seed(0)
    true = torch.arange(n) % CLASSES
    logits = 3 * F.one_hot(true, CLASSES) + torch.randn(n, CLASSES, generator=draw)
    wrong = torch.rand(n, generator=draw) < rate
    shift = torch.randint(1, CLASSES, (n,), generator=draw)
    if next_class:
        shift.fill_(1)
        logits += 2 * F.one_hot((true + 1) % CLASSES, CLASSES)  # models learn that such labels occur
    guess = logits.softmax(1)
    return guess, torch.where(wrong, (true + shift) % CLASSES, true), wrong


def by_hand(guess: Tensor, labels: Tensor, noise: Rate) -> Tensor:
    """The same, a sample and a class at a time."""
    likelihood = label_given_class(guess, labels, noise)
    rows = []
    for probabilities, label in zip(guess.tolist(), labels.tolist(), strict=True):
        row = [(p + 1e-6) * float(likelihood[label, j]) for j, p in enumerate(probabilities)]
        rows.append([value / sum(row) for value in row])
    return torch.tensor(rows)


@pytest.mark.parametrize("next_class", [False, True])
def test_it_is_bayes_rule(next_class):
    guess, labels, _ = hard_samples(60, next_class=next_class)
    noise = estimate_rate(guess, labels)
    torch.testing.assert_close(posterior(guess, labels, noise), by_hand(guess, labels, noise))
    likely = posterior(guess, labels, noise)
    assert torch.equal(of_labels(likely, labels), likely[torch.arange(60), labels])


def test_labels_that_go_wrong_in_a_pattern_are_found_by_it():
    guess, labels, wrong = hard_samples(next_class=True)
    alone = auroc(1 - guess[torch.arange(len(labels)), labels], wrong)
    assert auroc(1 - of_labels(posterior(guess, labels, estimate_rate(guess, labels)), labels), wrong) > alone + 0.01


def test_labels_that_fall_anywhere_are_ranked_as_the_guess_ranks_them():
    guess, labels, wrong = hard_samples(next_class=False)
    alone = auroc(1 - guess[torch.arange(len(labels)), labels], wrong)
    assert auroc(1 - of_labels(posterior(guess, labels, estimate_rate(guess, labels)), labels), wrong) == pytest.approx(
        alone, abs=0.005
    )


def test_every_class_has_its_labels():
    guess, labels, _ = hard_samples(next_class=True)
    likelihood = label_given_class(guess, labels, Rate(0.2, 0.1, 0.3, 0.05))
    torch.testing.assert_close(likelihood.sum(0), torch.ones(CLASSES))
    assert (likelihood > 0).all()
    assert (likelihood.argmax(0) == torch.arange(CLASSES)).all()


@pytest.mark.parametrize("noise", [Rate(0.0, 0.0, 1.0), Rate(1.0, 1.0, 1.0, 1.0)])
def test_any_estimate_gives_probabilities(noise):
    guess, labels, _ = hard_samples(100, next_class=False)
    guess[:5] = F.one_hot(labels[:5], CLASSES).float()
    likely = posterior(guess.half(), labels, noise)
    torch.testing.assert_close(likely.sum(1), torch.ones(100))


def test_a_class_that_nobody_carries_is_allowed():
    guess, labels, _ = hard_samples(100, next_class=False)
    assert torch.isfinite(posterior(guess, labels % 3, Rate(0.2, 0.1, 0.3))).all()


def test_labels_that_fall_anywhere_fall_on_rare_ones_as_often():
    labels = torch.tensor([0] * 80 + [1] * 15 + [2] * 5)
    guess = F.one_hot(labels, 3).float()
    found = label_given_class(guess, labels, Rate(0.1, 0.1, 0.1, unrelated=0.1))
    assert found[1, 0] == pytest.approx(float(found[2, 0]))
    assert found[0, 2] == pytest.approx(float(found[1, 2]))
