import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, f1_score, precision_score, recall_score, roc_auc_score

from stepe.errors import InputError
from stepe.loop.metrics import Truth, accuracy, auroc, detection


@st.composite
def masks(draw) -> tuple[np.ndarray, np.ndarray]:
    pairs = draw(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=60))
    return np.array([a for a, _ in pairs]), np.array([b for _, b in pairs])


def pairwise_auroc(scores: list[float], noisy: list[bool]) -> float:
    """The definition: over all pairs of a noisy and a clean sample, ties counting half."""
    ranked = [score if math.isfinite(score) else math.inf for score in scores]
    positive = [score for score, bad in zip(ranked, noisy, strict=True) if bad]
    negative = [score for score, bad in zip(ranked, noisy, strict=True) if not bad]
    wins = sum((p > q) + (p == q) / 2 for p in positive for q in negative)
    return wins / (len(positive) * len(negative))


@settings(max_examples=150)
@given(masks())
def test_detection_agrees_with_scikit_learn(pair):
    suspected, noisy = pair
    found = detection(suspected, noisy)
    assert found.precision == pytest.approx(precision_score(noisy, suspected, zero_division=0))
    assert found.recall == pytest.approx(recall_score(noisy, suspected, zero_division=0))
    assert found.f1 == pytest.approx(f1_score(noisy, suspected, zero_division=0))


def test_a_ratio_with_nothing_below_it_counts_as_zero():
    none, some = [False, False], [True, False]
    assert detection(none, some).precision == 0
    assert detection(some, none).recall == 0
    assert detection(none, none).f1 == 0


@settings(max_examples=150)
@given(masks(), st.integers(0, 1000), st.sampled_from([2, 5, 10_000]))
def test_auroc_agrees_with_scikit_learn_ties_included(pair, seed, distinct):
    _, noisy = pair
    scores = np.random.default_rng(seed).integers(distinct, size=noisy.shape) / distinct
    if noisy.all() or not noisy.any():
        assert auroc(scores, noisy) is None
    else:
        assert auroc(scores, noisy) == pytest.approx(roc_auc_score(noisy, scores))


@settings(max_examples=150)
@given(
    st.lists(
        st.tuples(st.sampled_from([0.0, 1.0, 3e38, math.nan, math.inf, -math.inf]), st.booleans()),
        min_size=2,
        max_size=12,
    )
)
def test_scores_that_are_not_finite_tie_above_all_others(pairs):
    scores, noisy = [score for score, _ in pairs], [bad for _, bad in pairs]
    for dtype in (np.float32, np.float64):
        got = auroc(np.array(scores, dtype=dtype), noisy)
        if len(set(noisy)) < 2:
            assert got is None
        else:
            assert got == pytest.approx(pairwise_auroc(scores, noisy))


def test_auroc_of_many_samples_does_not_overflow():
    n = 200_000
    noisy = np.arange(n) % 2 == 0
    scores = np.random.default_rng(0).random(n) + 0.3 * noisy
    assert auroc(scores, noisy) == pytest.approx(roc_auc_score(noisy, scores))


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_auroc_takes_any_precision(dtype):
    scores = np.array([0.25, 0.5, 0.5, 1.0], dtype=dtype)
    assert auroc(scores, [False, True, False, True]) == pytest.approx(0.875)


def test_a_truth_of_zeros_and_ones_counts_like_one_of_booleans():
    scores, noisy = np.array([0.1, 0.9, 0.5, 0.2]), np.array([False, True, False, True])
    assert auroc(scores, noisy.astype(int)) == auroc(scores, noisy) == pytest.approx(0.75)
    assert detection(scores > 0.4, noisy.astype(int)) == detection(scores > 0.4, noisy)


@settings(max_examples=50)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=40))
def test_accuracy_agrees_with_scikit_learn(pairs):
    predictions, labels = np.array(pairs).T
    assert accuracy(predictions, labels) == pytest.approx(accuracy_score(labels, predictions))


def test_the_truth_about_labels_is_where_they_differ():
    truth = Truth.from_labels([0, 1, 2], [0, 2, 2])
    assert truth.noisy.tolist() == [False, True, False]
    assert truth.labels.tolist() == [0, 2, 2]
    with pytest.raises(InputError, match="2 clean labels for 3"):
        Truth.from_labels([0, 1, 2], [0, 2])
