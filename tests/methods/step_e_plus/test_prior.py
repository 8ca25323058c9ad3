"""How often classes occur."""

import pytest
import torch

from stepe import InputError
from stepe.methods.step_e_plus.prior import align, check_prior, class_prior

LABELS = torch.tensor([0, 0, 0, 1, 2, 2])


@pytest.mark.parametrize(
    ("prior", "expected"),
    [
        ("uniform", [1 / 3, 1 / 3, 1 / 3]),
        ("given", [4 / 9, 2 / 9, 3 / 9]),
        ([1, 2, 5], [0.125, 0.25, 0.625]),
    ],
)
def test_a_prior_has_a_name_or_is_given(prior, expected):
    check_prior(prior, 3)
    torch.testing.assert_close(class_prior(prior, LABELS, 3), torch.tensor(expected))


def test_without_a_prior_guesses_stay_as_they_are():
    guess = torch.rand(6, 3).softmax(1)
    assert class_prior("none", LABELS, 3) is None
    assert torch.equal(align(guess, None), guess)


def test_aligned_guesses_lean_to_what_is_guessed_too_rarely():
    guess = torch.tensor([[0.9, 0.1], [0.6, 0.4], [0.9, 0.1]])
    aligned = align(guess, torch.tensor([0.5, 0.5]))
    torch.testing.assert_close(aligned.sum(1), torch.ones(3))
    assert aligned.argmax(1).tolist() == [0, 1, 0]
    # As a slow reference says it, sample by sample.
    for row, found in zip(guess.tolist(), aligned.tolist(), strict=True):
        parts = [row[0] * 0.5 / 0.8, row[1] * 0.5 / 0.2]
        assert found == pytest.approx([part / sum(parts) for part in parts])


def test_a_sample_that_nothing_is_known_of_leaves_the_others_alone():
    guess = torch.tensor([[0.9, 0.1], [0.5, 0.5]])
    with_gap = torch.cat([guess, torch.full((1, 2), float("nan"))])
    prior = torch.tensor([0.5, 0.5])
    torch.testing.assert_close(align(with_gap, prior)[:2], align(guess, prior))
    assert align(with_gap, prior)[2].isnan().all()


@pytest.mark.parametrize("prior", ["balanced", [0.5, 0.5], [1.0, 0.0, 1.0], [1.0, float("nan"), 1.0], [-1.0, 1, 1]])
def test_other_priors_are_refused(prior):
    with pytest.raises(InputError, match="prior"):
        check_prior(prior, 3)
