"""Planted noise: the realised share is exact, and each kind corrupts what it says."""

import pytest
import torch
from torch import Tensor

from stepe import InputError
from stepe.data.noise import KINDS, Noise, Planted

N, CLASSES = 1000, 5
RELABELLING = ("symmetric", "asymmetric", "instance")


@pytest.fixture(scope="module")
def x() -> Tensor:
    return torch.rand(N, 3, 4, generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def labels() -> Tensor:
    """Classes of different sizes."""
    return torch.repeat_interleave(torch.arange(CLASSES), torch.tensor([400, 300, 150, 100, 50]))


def plant(kind: str, rate: float, x: Tensor, labels: Tensor, seed: int = 0) -> Planted:
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
    assert torch.equal(planted.noisy, planted.labels != labels)
    assert int(planted.labels.min()) >= 0
    assert int(planted.labels.max()) < CLASSES
    assert planted.labels.dtype == torch.int64
    assert planted.x is x


@pytest.mark.parametrize("kind", KINDS)
def test_the_originals_stay_as_they_are(kind, x, labels):
    before = x.clone(), labels.clone()
    plant(kind, 0.5, x, labels)
    assert torch.equal(x, before[0])
    assert torch.equal(labels, before[1])


@pytest.mark.parametrize("kind", KINDS)
def test_a_rate_of_zero_changes_nothing(kind, x, labels):
    planted = plant(kind, 0.0, x, labels)
    assert not planted.noisy.any()
    assert torch.equal(planted.labels, labels)
    assert torch.equal(planted.x, x)


@pytest.mark.parametrize("kind", KINDS)
def test_the_seed_decides(kind, x, labels):
    one, same, other = (plant(kind, 0.3, x, labels, seed) for seed in (1, 1, 2))
    assert torch.equal(one.noisy, same.noisy)
    assert torch.equal(one.labels, same.labels)
    assert torch.equal(one.x, same.x)
    assert not torch.equal(one.noisy, other.noisy)


def test_symmetric_noise_is_spread_evenly_over_the_other_classes(x, labels):
    planted = plant("symmetric", 0.9, x, labels)
    for given in range(CLASSES):
        of_class = labels == given
        share = planted.noisy[of_class].double().mean()
        assert abs(share - 0.9) < 0.12
        changed = planted.labels[of_class & planted.noisy]
        counts = torch.bincount(changed, minlength=CLASSES).double() / len(changed)
        assert counts[given] == 0
        others = counts[torch.arange(CLASSES) != given]
        assert (others - 1 / (CLASSES - 1)).abs().max() < 4 * (0.25 * 0.75 / len(changed)) ** 0.5


def test_with_two_classes_symmetric_noise_flips(x):
    labels = torch.arange(N) % 2
    planted = Noise("symmetric", 0.3).plant(x, labels, 2, 0)
    assert torch.equal(planted.labels[planted.noisy], 1 - labels[planted.noisy])


def test_asymmetric_noise_is_the_next_class_at_the_same_share_of_every_class(x, labels):
    planted = plant("asymmetric", 0.3, x, labels)
    assert torch.equal(planted.labels[planted.noisy], (labels[planted.noisy] + 1) % CLASSES)
    shares = [float(planted.noisy[labels == given].double().mean()) for given in range(CLASSES)]
    assert shares == pytest.approx([0.3] * CLASSES)


def test_instance_noise_depends_on_the_inputs(x, labels):
    planted = plant("instance", 0.3, x, labels)
    other_inputs = plant("instance", 0.3, x.flip(0), labels)
    assert not torch.equal(planted.noisy, other_inputs.noisy)
    assert not torch.equal(planted.labels, other_inputs.labels)


def test_instance_noise_takes_like_inputs_for_the_same_class():
    # Two kinds of inputs under one label: each kind is mostly taken for one class, which is not the other kind's.
    kinds = torch.arange(N) % 2
    x = torch.where(kinds[:, None] == 1, 8.0, -8.0) * torch.ones(N, 16)
    x += 0.01 * torch.randn(N, 16, generator=torch.Generator().manual_seed(0))
    labels = torch.zeros(N, dtype=torch.int64)
    differ = 0
    for seed in range(8):
        planted = Noise("instance", 0.5).plant(x, labels, 4, seed)
        mistaken = [planted.labels[planted.noisy & (kinds == kind)] for kind in (0, 1)]
        shares = [torch.bincount(taken, minlength=4).double() / max(1, len(taken)) for taken in mistaken]
        differ += float((shares[0] - shares[1]).abs().sum()) > 0.5
    assert differ >= 6


def test_instance_noise_survives_features_that_never_change(labels):
    planted = plant("instance", 0.3, torch.ones(N, 4), labels)
    assert int(planted.noisy.sum()) == 300


def test_outliers_corrupt_inputs_and_leave_the_labels(x, labels):
    planted = plant("outliers", 0.2, x, labels)
    assert torch.equal(planted.labels, labels)
    changed = (planted.x != x).flatten(1).any(1)
    assert torch.equal(changed, planted.noisy)
    assert planted.x.shape == x.shape
    assert planted.x.dtype == x.dtype
    drawn = planted.x[planted.noisy]
    assert float(drawn.min()) >= float(x.min())
    assert float(drawn.max()) <= float(x.max())
    assert float(drawn.std()) == pytest.approx(float(x.max() - x.min()) / 12**0.5, rel=0.1)
    assert len(torch.unique(drawn.flatten(1), dim=0)) == len(drawn)


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
