"""What a look at the data can tell."""

import numpy as np
import pytest

from stepe.beliefs.signal import hardly_recognised, has_signal


def blurred(truth, classes, sure, seed=0):
    """Guesses that name the truth in a share of the rows, and anything in the others."""
    random = np.random.default_rng(seed)
    named = np.where(random.random(len(truth)) < sure, truth, random.choice(truth, len(truth)))
    return 0.9 * np.eye(classes)[named] + 0.1 / classes


@pytest.mark.parametrize("sure", [0.2, 0.9])
def test_guesses_that_know_something_have_signal(sure):
    labels = np.random.default_rng(1).integers(0, 3, 3_000)
    calibrated = sure * np.eye(3)[labels] + (1 - sure) / 3
    assert has_signal(labels, calibrated)


def test_guesses_of_chance_have_none():
    labels = np.random.default_rng(2).choice(3, 3_000, p=[0.7, 0.2, 0.1])
    noise = np.random.default_rng(3).dirichlet([7, 2, 1], 3_000)
    assert not has_signal(labels, noise)
    assert not has_signal(labels, np.full((3_000, 3), 1 / 3))


@pytest.mark.parametrize("classes", [2, 3])
def test_a_rare_class_that_is_mixed_up_is_hardly_recognised_and_a_clear_one_is(classes):
    truth = np.arange(1_000) % (classes - 1)
    truth[-30:] = classes - 1
    assert hardly_recognised(truth, blurred(truth, classes, 0.3)) == [classes - 1]
    assert hardly_recognised(truth, blurred(truth, classes, 1.0)) == []


def test_a_class_of_usual_size_is_never_doubted():
    labels = np.arange(90) % 3
    assert hardly_recognised(labels, np.full((90, 3), 1 / 3)) == []


def test_a_class_without_labels_is_no_rare_one():
    assert hardly_recognised(np.zeros(20, dtype=int), np.full((20, 4), 0.25)) == []
