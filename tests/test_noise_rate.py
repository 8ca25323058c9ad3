import math

import pytest

from stepe.errors import InputError
from stepe.noise_rate import drop_max_from_rate, resolve_drop_max


@pytest.mark.parametrize(("rate", "expected"), [(0, 0.05), (0.2, 0.25), (0.4, 0.45), (0.45, 0.5), (0.6, 0.5), (1, 0.5)])
def test_rho_max_is_a_little_above_the_rate_and_at_most_half(rate, expected):
    assert drop_max_from_rate(rate) == pytest.approx(expected)


@pytest.mark.parametrize("rate", [-0.1, 1.1, math.nan, 40])
def test_a_rate_that_is_no_share_is_an_error_that_shows_it(rate):
    with pytest.raises(InputError, match="noise rate is") as error:
        drop_max_from_rate(rate)
    assert repr(rate) in str(error.value)


def test_a_given_rho_max_wins_over_a_known_rate():
    assert resolve_drop_max(0.1, 0.4) == 0.1
    assert resolve_drop_max(0, 0.4) == 0
    assert isinstance(resolve_drop_max(0, 0.4), float)


def test_a_known_rate_of_zero_is_still_a_known_rate():
    assert resolve_drop_max(None, 0.4) == pytest.approx(0.45)
    assert resolve_drop_max(None, 0.0) == pytest.approx(0.05)


@pytest.mark.parametrize("rho_max", [1.0, -0.1, math.nan, True])
def test_a_given_rho_max_is_checked(rho_max):
    with pytest.raises(InputError, match="rho_max is"):
        resolve_drop_max(rho_max, None)


def test_knowing_nothing_is_an_error_that_names_both_ways_out():
    with pytest.raises(InputError, match=r"rho_max=.*noise_rate"):
        resolve_drop_max(None, None)
