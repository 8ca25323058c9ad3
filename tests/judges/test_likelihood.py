"""Temperatures and likelihoods beside the slow, obvious formulas."""

import numpy as np
import pytest
from scipy.special import log_softmax

from stepe.judges.likelihood import Fit, sample_of_rows, softmax, tempered

RANDOM = np.random.default_rng(0)
SCORES, WEIGHTS = RANDOM.standard_normal((50, 4)), RANDOM.uniform(0, 1, 50)
TARGETS = {"soft": RANDOM.dirichlet(np.ones(4), 50), "certain": np.eye(4)[RANDOM.integers(0, 4, 50)]}


@pytest.mark.parametrize("kind", TARGETS)
def test_the_likelihood_is_the_mean_logarithm_of_what_counts(kind):
    expected = np.average((TARGETS[kind] * log_softmax(SCORES / 0.3, axis=1)).sum(1), weights=WEIGHTS)
    assert Fit(SCORES, WEIGHTS, TARGETS[kind]).likelihood(0.3) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("kind", TARGETS)
def test_no_other_temperature_is_likelier(kind):
    fit = Fit(SCORES, WEIGHTS, TARGETS[kind])
    best = fit.likelihood(fit.best_temperature())
    assert all(fit.likelihood(temperature) <= best + 1e-4 for temperature in np.logspace(-2, 2, 60))


def test_answers_may_be_written_in_place():
    for function in (softmax, tempered):
        numbers = np.abs(SCORES)
        expected = function(numbers, 0.5)
        assert function(numbers, 0.5, out=numbers) is numbers
        np.testing.assert_array_equal(numbers, expected)


def test_many_classes_are_sampled_by_fewer_rows():
    assert len(sample_of_rows(np.ones(10_000), 2)) == 5_000
    assert len(sample_of_rows(np.ones(10_000), 1_000)) == 2_000
    assert len(sample_of_rows(np.ones(10_000), 10**9)) == 1
