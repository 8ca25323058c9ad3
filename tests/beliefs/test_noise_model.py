"""The noise matrix, beside a slow count."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from stepe.beliefs.confident import CLOSE
from stepe.beliefs.noise_model import DRAWN, NOBODY, NoiseModel, undone


def made(seed: int, n: int = 60, classes: int = 4):
    random = np.random.default_rng(seed)
    labels = random.integers(0, classes, n)
    guesses = random.dirichlet(np.full(classes, 0.4), n)
    guesses[np.arange(n), labels] += random.random(n)
    return labels, guesses / guesses.sum(1, keepdims=True)


def slow_matrix(labels, named, classes, without=None, like=None):
    """The matrix as the docstrings say it, row by row; one row's count may be left out."""
    like = labels if like is None else like
    counted = [sum(labels[i] == j and named[i] != NOBODY for i in range(len(labels))) for j in range(classes)]
    frequency = [float(np.mean(labels == j)) for j in range(classes)]
    counts = np.zeros((classes, classes))
    for i in range(len(labels)):
        if named[i] != NOBODY and i != without:
            counts[named[i], labels[i]] += frequency[labels[i]] * len(labels) / counted[labels[i]]
    matrix = np.eye(classes)
    for k in range(classes):
        if counts[k].sum() < CLOSE:
            continue
        found = counts[k] / counts[k].sum()
        for j in range(classes):
            by_frequency = (1 - found[k]) * frequency[j] / max(1 - frequency[k], CLOSE)
            matrix[k, j] = found[k] if j == k else (1 - DRAWN) * found[j] + DRAWN * by_frequency
    return matrix


@pytest.mark.parametrize("seed", range(5))
def test_the_matrix_is_the_slow_one(seed):
    labels, guesses = made(seed)
    model = NoiseModel.counted(labels, guesses)
    assert_allclose(model.matrix, slow_matrix(labels, model.named, 4), atol=1e-12)
    assert_allclose(model.matrix.sum(1), 1)


@pytest.mark.parametrize("seed", range(5))
def test_a_row_is_judged_without_its_own_count(seed):
    labels, guesses = made(seed, n=12)
    model = NoiseModel.counted(labels, guesses)
    evidence = model.of_labels()
    for row in range(12):
        expected = model.matrix[:, labels[row]].copy()
        if (class_ := model.named[row]) != NOBODY:
            expected[class_] = slow_matrix(labels, model.named, 4, without=row)[class_, labels[row]]
        assert_allclose(evidence[row], expected, atol=1e-9)


def test_a_class_that_no_guess_names_keeps_its_labels():
    guesses = np.array([[0.9, 0.1, 0.0]] * 5 + [[0.1, 0.9, 0.0]] * 5)
    model = NoiseModel.counted(np.array([0] * 5 + [1] * 5), guesses)
    assert model.matrix[2].tolist() == [0, 0, 1]


def test_what_was_planted_is_found_with_good_guesses():
    random = np.random.default_rng(0)
    truth = random.integers(0, 3, 30_000)
    labels = np.where((truth == 1) & (random.random(len(truth)) < 0.3), 2, truth)
    guesses = np.full((len(truth), 3), 0.05)
    guesses[np.arange(len(truth)), truth] = 0.9
    found = NoiseModel.counted(labels, guesses).matrix
    assert_allclose(found[1], [0.075, 0.7, 0.225], atol=0.03)  # half-way to the frequencies of the others
    assert_allclose(found.diagonal()[[0, 2]], 1, atol=0.02)


def test_undoing_finds_the_guess_that_the_noise_turned_into_the_one_at_hand():
    matrix = np.array([[0.7, 0.2, 0.1], [0.1, 0.8, 0.1], [0.0, 0.3, 0.7]])
    true = np.random.default_rng(1).dirichlet(np.ones(3), 50)
    assert_allclose(undone(true @ matrix, matrix, 20_000), true, atol=0.02)
    assert_allclose(undone(true, np.eye(3), 5), true)
    assert_allclose(undone(true, matrix, 3).sum(1), 1)
