"""Our confident learning is cleanlab's."""

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stepe.beliefs.confident import calibrated_joint, prunable

count = pytest.importorskip("cleanlab.count")
filter_ = pytest.importorskip("cleanlab.filter")


def judged(n: int, classes: int, noise: float, sure: float, seed: int, skew: float = 0.0):
    """Labels, some wrong, and the probabilities of a model that is right as often as ``sure`` lets it."""
    draw = np.random.default_rng(seed)
    share = np.arange(1, classes + 1.0) ** -skew
    clean = draw.choice(classes, n, p=share / share.sum())
    clean[:classes] = np.arange(classes)
    wrong = draw.random(n) < noise
    labels = np.where(wrong, draw.integers(0, classes, n), clean)
    labels[:classes] = np.arange(classes)
    logits = sure * np.eye(classes)[clean] + draw.normal(size=(n, classes))
    probability = np.exp(logits)
    return probability / probability.sum(1, keepdims=True), labels


def theirs(probability, labels):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # classes of one sample
        return filter_.find_label_issues(labels, probability, n_jobs=1)


@settings(max_examples=150)
@given(
    n=st.integers(12, 400),
    classes=st.integers(2, 12),
    noise=st.floats(0, 0.9),
    sure=st.floats(0, 8),
    seed=st.integers(0, 10_000),
    skew=st.sampled_from([0.0, 1.0, 3.0]),
)
def test_it_prunes_what_cleanlab_prunes(n, classes, noise, sure, seed, skew):
    probability, labels = judged(n, classes, noise, sure, seed, skew)
    joint = count.compute_confident_joint(labels, probability)
    np.testing.assert_array_equal(calibrated_joint(probability, labels), joint)
    np.testing.assert_array_equal(prunable(probability, labels), theirs(probability, labels))


def test_so_it_does_with_many_classes():
    probability, labels = judged(5000, 100, 0.4, 3.0, seed=1, skew=0.5)
    found = prunable(probability, labels)
    np.testing.assert_array_equal(found, theirs(probability, labels))
    assert 500 < found.sum() < 3000


def test_a_class_that_nobody_carries_is_nobodys():
    probability, labels = judged(200, 4, 0.3, 4.0, seed=0)
    labels[labels == 3] = 0
    assert not calibrated_joint(probability, labels)[:, 3].any()
    assert prunable(probability, labels).any()


def test_planted_errors_are_found():
    probability, labels = judged(1000, 5, 0.3, 6.0, seed=3)
    found = prunable(probability, labels)
    truly = probability.argmax(1) != labels
    assert found[truly].mean() > 0.9
    assert not found[~truly].any()
