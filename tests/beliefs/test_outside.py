"""Inputs that are of none of the known classes."""

import numpy as np
import pytest

from stepe.beliefs.believe import believe
from stepe.beliefs.outside import hesitation, outside


def strangers(seed: int = 0, *, n: int = 2_000, classes: int = 8):
    """A fifth of the rows is of no class: labels of chance, and guesses spread over all classes."""
    random = np.random.default_rng(seed)
    truth = random.integers(0, classes, n)
    strange = random.random(n) < 0.2
    labels = np.where(strange, random.integers(0, classes, n), truth)
    sure = 0.95 * np.eye(classes)[truth] + 0.05 / classes
    spread = random.dirichlet(np.full(classes, 20.0), n)
    return labels, np.where(strange[:, None], spread, sure), strange


def test_where_an_expert_could_tell_strangers_are_flagged_and_nothing_is_suggested():
    labels, guesses, strange = strangers()
    found = believe(labels, guesses, evidence=0.5, strangers=1.0)
    assert found.flagged[strange].mean() > 0.9
    assert found.flagged[~strange].mean() < 0.01
    assert (found.suggestion[strange & found.flagged] == -1).mean() > 0.9
    assert np.isnan(found.confidence[found.suggestion == -1]).all()


def test_strangers_are_looked_for_only_where_that_is_asked_for():
    labels, guesses, strange = strangers()
    assert not outside(guesses, 0.0).any()
    np.testing.assert_allclose(2 * outside(guesses, 0.5), outside(guesses, 1.0))
    assert believe(labels, guesses, evidence=0.5).flagged[strange].mean() < 0.1


def test_guesses_that_all_hesitate_are_about_no_strangers():
    assert not outside(np.full((50, 10), 0.1), 1.0).any()


@pytest.mark.parametrize("classes", [2, 3])
def test_a_few_classes_are_always_hesitated_between(classes):
    guesses = np.vstack([np.eye(classes), np.full(classes, 1 / classes)])
    assert not outside(guesses, 1.0).any()


def test_rows_that_taught_nothing_do_not_say_what_is_usual():
    guesses = np.vstack([np.eye(10), np.full((30, 10), 0.1)])
    learned = np.arange(40) < 10
    assert not outside(guesses, 1.0).any()
    np.testing.assert_allclose(outside(guesses, 1.0, learned)[10:], 1)


def test_hesitation_is_the_number_of_equally_likely_classes():
    np.testing.assert_allclose(hesitation(np.array([[0.25] * 4, [0.5, 0.5, 0, 0], [0, 0, 1, 0]])), [4, 2, 1])
