"""Planted noise: the realised share is exact, and each kind corrupts what it says."""

import numpy as np
import pytest

from stepe import InputError
from stepe.data.noise import KINDS, Noise, Planted

N, CLASSES = 1000, 5
RELABELLING = ("symmetric", "asymmetric", "instance")


@pytest.fixture(scope="module")
def x() -> np.ndarray:
    return np.random.default_rng(0).random((N, 3, 4), dtype=np.float32)


@pytest.fixture(scope="module")
def labels() -> np.ndarray:
    """Classes of different sizes."""
    return np.repeat(np.arange(CLASSES), [400, 300, 150, 100, 50])


def plant(kind: str, rate: float, x: np.ndarray, labels: np.ndarray, seed: int = 0) -> Planted:
    return Noise(kind, rate).plant(x, labels, CLASSES, seed)


@pytest.mark.parametrize("rate", [0.02, 0.1, 0.4, 0.9])
@pytest.mark.parametrize("kind", KINDS)
def test_the_realised_share_is_exact(kind, rate, x, labels):
    planted = plant(kind, rate, x, labels)
    assert int(planted.noisy.sum()) == round(rate * N)


@pytest.mark.parametrize("rate", [0.1, 0.4, 0.9])
@pytest.mark.parametrize("kind", RELABELLING)
def test_exactly_the_noisy_labels_are_changed_to_other_classes(kind, rate, x, labels):
    planted = plant(kind, rate, x, labels)
    assert np.array_equal(planted.noisy, planted.labels != labels)
    assert int(planted.labels.min()) >= 0
    assert int(planted.labels.max()) < CLASSES
    assert planted.labels.dtype == np.int64
    assert planted.x is x


@pytest.mark.parametrize(
    ("kind", "noisy", "given"),
    [
        ("symmetric", [3, 6, 15, 16, 17], [2, 2, 2, 2, 1]),
        ("asymmetric", [3, 6, 10, 14, 16, 17], [1, 1, 2, 0, 2, 0]),
        ("instance", [0, 14, 15, 16, 19], [2, 0, 1, 2, 0]),
        ("outliers", [3, 6, 15, 16, 17], [0, 0, 0, 1, 2]),
    ],
)
def test_the_same_noise_is_planted_everywhere_and_in_every_version(kind, noisy, given):
    x = (np.arange(80).reshape(20, 4) * 7919 % 101).astype(np.float32)
    planted = Noise(kind, 0.25).plant(x, np.arange(20) % 3, 3, seed=5)
    assert np.flatnonzero(planted.noisy).tolist() == noisy
    assert planted.labels[noisy].tolist() == given
    if kind == "outliers":
        assert planted.x[noisy].round().sum(1).tolist() == [254, 196, 195, 197, 209]


@pytest.mark.parametrize("kind", KINDS)
def test_the_originals_stay_as_they_are(kind, x, labels):
    before = x.copy(), labels.copy()
    plant(kind, 0.5, x, labels)
    assert np.array_equal(x, before[0])
    assert np.array_equal(labels, before[1])


@pytest.mark.parametrize("kind", KINDS)
def test_a_rate_of_zero_changes_nothing(kind, x, labels):
    planted = plant(kind, 0.0, x, labels)
    assert not planted.noisy.any()
    assert np.array_equal(planted.labels, labels)
    assert np.array_equal(planted.x, x)


@pytest.mark.parametrize("kind", KINDS)
def test_the_seed_decides(kind, x, labels):
    one, same, other = (plant(kind, 0.3, x, labels, seed) for seed in (1, 1, 2))
    assert np.array_equal(one.noisy, same.noisy)
    assert np.array_equal(one.labels, same.labels)
    assert np.array_equal(one.x, same.x)
    assert not np.array_equal(one.noisy, other.noisy)


def test_symmetric_noise_is_spread_evenly_over_the_other_classes(x, labels):
    planted = plant("symmetric", 0.9, x, labels)
    for given in range(CLASSES):
        of_class = labels == given
        share = planted.noisy[of_class].mean()
        assert abs(share - 0.9) < 0.12
        changed = planted.labels[of_class & planted.noisy]
        counts = np.bincount(changed, minlength=CLASSES) / len(changed)
        assert counts[given] == 0
        others = counts[np.arange(CLASSES) != given]
        assert np.abs(others - 1 / (CLASSES - 1)).max() < 4 * (0.25 * 0.75 / len(changed)) ** 0.5


def test_with_two_classes_symmetric_noise_flips(x):
    labels = np.arange(N) % 2
    planted = Noise("symmetric", 0.3).plant(x, labels, 2, 0)
    assert np.array_equal(planted.labels[planted.noisy], 1 - labels[planted.noisy])


def test_asymmetric_noise_is_the_next_class_at_the_same_share_of_every_class(x, labels):
    planted = plant("asymmetric", 0.3, x, labels)
    assert np.array_equal(planted.labels[planted.noisy], (labels[planted.noisy] + 1) % CLASSES)
    shares = [float(planted.noisy[labels == given].mean()) for given in range(CLASSES)]
    assert shares == pytest.approx([0.3] * CLASSES)


def test_instance_noise_depends_on_the_inputs(x, labels):
    planted = plant("instance", 0.3, x, labels)
    other_inputs = plant("instance", 0.3, x[::-1], labels)
    assert not np.array_equal(planted.noisy, other_inputs.noisy)
    assert not np.array_equal(planted.labels, other_inputs.labels)


def test_instance_noise_takes_like_inputs_for_the_same_class():
    # Two kinds of inputs under one label: each kind is mostly taken for one class, which is not the other kind's.
    kinds = np.arange(N) % 2
    x = np.where(kinds[:, None] == 1, 8.0, -8.0) * np.ones((N, 16))
    x += 0.01 * np.random.default_rng(0).normal(size=(N, 16))
    labels = np.zeros(N, dtype=np.int64)
    differ = 0
    for seed in range(8):
        planted = Noise("instance", 0.5).plant(x, labels, 4, seed)
        mistaken = [planted.labels[planted.noisy & (kinds == kind)] for kind in (0, 1)]
        shares = [np.bincount(taken, minlength=4) / max(1, len(taken)) for taken in mistaken]
        differ += np.abs(shares[0] - shares[1]).sum() > 0.5
    assert differ >= 6


def test_instance_noise_survives_features_that_never_change(labels):
    planted = plant("instance", 0.3, np.ones((N, 4)), labels)
    assert int(planted.noisy.sum()) == 300


def test_outliers_corrupt_inputs_and_leave_the_labels(x, labels):
    planted = plant("outliers", 0.2, x, labels)
    assert np.array_equal(planted.labels, labels)
    changed = (planted.x != x).reshape(N, -1).any(1)
    assert np.array_equal(changed, planted.noisy)
    assert planted.x.shape == x.shape
    assert planted.x.dtype == x.dtype
    drawn = planted.x[planted.noisy]
    assert float(drawn.min()) >= float(x.min())
    assert float(drawn.max()) <= float(x.max())
    assert float(drawn.std()) == pytest.approx(float(x.max() - x.min()) / 12**0.5, rel=0.1)
    assert len(np.unique(drawn.reshape(len(drawn), -1), axis=0)) == len(drawn)


@pytest.mark.parametrize("kind", KINDS)
def test_kind_and_rate_are_read_from_text(kind):
    assert Noise.parse(f"{kind}:0.25") == Noise(kind, 0.25)
    assert Noise.parse(f"{kind}:0") == Noise(kind, 0.0)


def test_none_plants_nothing():
    assert Noise.parse("none") is None


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("magic:0.4", "'magic' is no kind of noise"),
        ("0.4", "'0.4' is no kind of noise"),
        ("", "'' is no kind of noise"),
        ("Symmetric:0.4", "'Symmetric' is no kind of noise"),
        ("symmetric", "'' is no number"),
        ("symmetric:", "'' is no number"),
        ("symmetric:lots", "'lots' is no number"),
        ("symmetric:0.4:0.2", "'0.4:0.2' is no number"),
        ("symmetric:40%", "'40%' is no number"),
        ("symmetric:-0.1", "must lie in"),
        ("symmetric:1", "must lie in"),
        ("symmetric:40", "must lie in"),
        ("symmetric:nan", "must lie in"),
        ("symmetric:inf", "must lie in"),
    ],
)
def test_malformed_noise_is_an_error_that_names_it_and_shows_how(text, told):
    with pytest.raises(InputError) as error:
        Noise.parse(text)
    assert told in str(error.value)
    assert f"noise is {text!r}" in str(error.value)
    assert "for example symmetric:0.4" in str(error.value)
    assert all(kind in str(error.value) for kind in KINDS)
