"""What is believed of labels, by guesses that they had no say in."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from stepe.beliefs.believe import STEPS, SURE, TINY, Grounds, believe
from stepe.beliefs.noise_model import NoiseModel, undone

SIGNAL = 3


def planted(seed: int, *, n: int = 3_000, classes: int = 5, rate: float = 0.2, asymmetric: bool = False):
    """Labels of which some are wrong, and guesses of the given label by somebody who knows what the input tells."""
    random = np.random.default_rng(seed)
    truth = random.integers(0, classes, n)
    shift = 1 if asymmetric else random.integers(1, classes, n)
    labels = np.where(random.random(n) < rate, (truth + shift) % classes, truth)
    scores = random.normal(size=(n, classes))
    scores[np.arange(n), truth] += SIGNAL
    true = np.exp(SIGNAL * scores) / np.exp(SIGNAL * scores).sum(1, keepdims=True)
    wrong = np.roll(np.eye(classes), 1, 1) if asymmetric else (1 - np.eye(classes)) / (classes - 1)
    return truth, labels, true @ ((1 - rate) * np.eye(classes) + rate * wrong), true


def slow(labels, looks, evidence):
    """The rule row by row, in plain words."""
    n, classes = looks[0].shape
    models = [NoiseModel.counted(labels, look) for look in (looks[0], looks[-1])]
    guess = (undone(looks[0], models[0].matrix, STEPS // len(looks)) + sum(looks[1:])) / len(looks)
    counted = models[1].of_labels()

    def right(row, of_label):
        weight = [max(guess[row, k], TINY) * of_label[k] ** evidence for k in range(classes)]
        return weight[labels[row]] / sum(weight)

    rate = 1 - np.mean([right(row, counted[row]) for row in range(n)])
    alike = [[1 - rate if k == labels[row] else rate / (classes - 1) for k in range(classes)] for row in range(n)]
    gain = [np.log(guess[row] @ counted[row]) - np.log(guess[row] @ alike[row]) for row in range(n)]
    surely = np.mean(gain) / (np.std(gain) / n**0.5)
    structure = 1 / (1 + np.exp(-(surely - SURE) / 3))
    return [right(row, counted[row] ** structure * np.array(alike[row]) ** (1 - structure)) for row in range(n)]


@pytest.mark.parametrize("evidence", [0.5, 1.0])
@pytest.mark.parametrize("looks", [1, 3])
def test_the_fast_rule_is_the_slow_one(looks, evidence):
    _, labels, noisy, true = planted(0, n=150, classes=3)
    given = [noisy, true, true][:looks]
    assert_allclose(believe(labels, given, evidence=evidence).p_right, slow(labels, given, evidence), atol=1e-6)


@pytest.mark.parametrize("asymmetric", [False, True])
def test_wrong_labels_are_found_corrected_and_counted(asymmetric):
    truth, labels, noisy, _ = planted(1, asymmetric=asymmetric)
    wrong = truth != labels
    found = believe(labels, [noisy])
    flagged = found.flagged
    assert (flagged & wrong).sum() / (flagged | wrong).sum() > 0.75
    assert (found.suggestion == truth)[flagged & wrong].mean() > 0.95
    assert found.rate.rate == pytest.approx(wrong.mean(), abs=0.05)


def test_suspicion_is_a_probability_that_holds():
    truth, labels, noisy, true = planted(2, n=20_000)
    suspicion = 1 - believe(labels, [noisy, true]).p_right
    wrong, tenth = truth != labels, np.minimum((10 * suspicion).astype(int), 9)
    size = np.bincount(tenth, minlength=10)
    claimed, found = (np.bincount(tenth, weights=each, minlength=10) for each in (suspicion, wrong))
    assert np.abs(claimed - found).sum() / size.sum() < 0.05


def test_right_labels_are_believed():
    _, _, _, true = planted(3)
    drawn = np.array([np.random.default_rng(row).choice(5, p=guess) for row, guess in enumerate(true)])
    found = believe(drawn, [true])
    assert (found.p_right < 0.5).mean() < 0.03


def test_beside_a_label_that_is_pointed_out_stands_another_class_and_its_probability():
    _, labels, noisy, _ = planted(4, n=400)
    found = believe(labels, noisy)
    assert not (found.suggestion == labels)[found.flagged].any()
    assert (found.suggestion == labels)[~found.flagged].mean() > 0.9
    assert (found.confidence + found.p_right <= 1 + 1e-9)[found.flagged].all()
    two = believe(labels % 2, noisy[:, :2] / noisy[:, :2].sum(1, keepdims=True))
    assert_allclose(two.confidence, np.maximum(two.p_right, 1 - two.p_right))


def test_what_was_checked_is_right():
    truth, labels, noisy, _ = planted(4, n=400)
    checked = truth != labels
    found = believe(labels, noisy, trusted=checked)
    assert (found.p_right[checked] == 1).all()
    assert not found.flagged[checked].any()


def test_rows_that_taught_nothing_are_judged_on_the_same_scale_and_change_nothing():
    truth, labels, noisy, _ = planted(5)
    learned = np.arange(len(labels)) % 5 > 0
    found = believe(labels, noisy, learned=learned)
    alone = believe(labels[learned], noisy[learned])
    assert_allclose(found.p_right[learned], alone.p_right)
    assert_allclose(found.noise, alone.noise)
    assert found.rate == alone.rate
    wrong = truth != labels
    assert (found.flagged & wrong)[~learned].sum() / (found.flagged | wrong)[~learned].sum() > 0.7


def test_parts_of_the_rows_make_the_whole(monkeypatch):
    _, labels, noisy, true = planted(6, n=300)
    whole = Grounds.of(labels, [noisy, true]).posterior(1.0)
    monkeypatch.setattr("stepe.beliefs.parts.CELLS", 64)
    for part, expected in zip(Grounds.of(labels, [noisy, true]).posterior(1.0), whole, strict=True):
        assert_allclose(part, expected)


def test_single_precision_gives_the_same_belief():
    _, labels, noisy, true = planted(6)
    exact, single = (believe(labels, [noisy.astype(kind), true.astype(kind)]) for kind in (np.float64, np.float32))
    assert_allclose(single.p_right, exact.p_right, atol=1e-4)


def test_labels_of_a_class_that_is_hardly_recognised_are_never_called_wrong():
    random = np.random.default_rng(9)
    labels = np.repeat([0, 1, 2], [500, 470, 30])
    guesses = np.eye(3)[np.where(labels == 2, random.integers(0, 2, 1_000), labels)] * 0.9 + 1 / 30
    found = believe(labels, guesses)
    assert found.hardly_recognised == [2]
    assert not found.flagged[labels == 2].any()
    assert (found.p_right[labels == 2] >= 0.5).all()


def test_where_guesses_know_nothing_nothing_is_flagged():
    labels = np.random.default_rng(10).integers(0, 4, 500)
    found = believe(labels, np.random.default_rng(11).dirichlet(np.ones(4), 500))
    assert not found.has_signal
    assert not found.flagged.any()
    assert found.hardly_recognised == []


def test_a_guess_of_nothing_leaves_labels_as_they_are():
    labels = np.random.default_rng(5).integers(0, 4, 500)
    found = believe(labels, [np.full((500, 4), 0.25)])
    assert not (found.p_right < 0.25).any()


@pytest.mark.parametrize("rate", [0.05, 0.2])
@pytest.mark.parametrize("asymmetric", [False, True])
def test_the_range_of_the_rate_holds_the_truth(rate, asymmetric):
    truth, labels, noisy, true = planted(6, rate=rate, asymmetric=asymmetric)
    found = believe(labels, [noisy, true, true]).rate
    assert found.low <= (truth != labels).mean() <= found.high
    assert found.low < found.rate < found.high < found.low + 0.2


def test_where_nothing_is_wrong_the_range_begins_at_nothing():
    _, _, _, true = planted(7)
    drawn = np.array([np.random.default_rng(row).choice(5, p=guess) for row, guess in enumerate(true)])
    found = believe(drawn, [true, true, true])
    assert found.may_be_clean
    assert found.rate.high < 0.15


def test_one_look_has_a_range_too():
    _, labels, noisy, _ = planted(8, n=300)
    found = believe(labels, [noisy]).rate
    assert found.low < found.rate < found.high
