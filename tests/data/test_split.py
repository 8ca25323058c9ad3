"""The hold-out: stratified, reproducible, and true to groups."""

import numpy as np
import pytest

from stepe import InputError
from stepe.data.split import hold_out

LABELS = np.repeat([0, 1, 2], [50, 30, 1])


def test_each_class_gives_its_share_and_a_lonely_sample_stays():
    chosen = hold_out(LABELS, 0.3)
    assert np.bincount(LABELS[chosen], minlength=3).tolist() == [15, 9, 0]
    assert (chosen == hold_out(LABELS, 0.3)).all()


def test_nothing_can_be_held_out():
    assert not hold_out(LABELS, 0).any()


@pytest.mark.parametrize("share", [1.0, 0.95, -0.1, float("nan")])
def test_a_share_that_is_none_is_refused(share):
    with pytest.raises(InputError, match="holdout is"):
        hold_out(LABELS, share)


def test_many_classes_take_no_time():
    chosen = hold_out(np.arange(200_000) % 10_000)
    assert chosen.sum() == 40_000


def test_whoever_belongs_together_stays_together():
    draw = np.random.default_rng(0)
    patient = draw.integers(0, 60, 600)
    labels = (patient + draw.integers(0, 2, 600)) % 3
    chosen = hold_out(labels, 0.2, [str(number) for number in patient])
    assert not set(patient[chosen]) & set(patient[~chosen])
    share = np.bincount(labels[chosen]) / np.bincount(labels)
    assert (abs(share - 0.2) < 0.05).all()


def test_samples_of_nobody_are_on_their_own():
    chosen = hold_out(np.arange(100) % 2, 0.2, [""] * 100)
    assert chosen.sum() == 20


def test_groups_that_hold_a_whole_class_cannot_be_split():
    with pytest.raises(InputError, match="2 groups cannot be split so that every class stays in training"):
        hold_out(np.array([0, 0, 1, 1]), 0.5, ["a", "a", "b", "b"])
