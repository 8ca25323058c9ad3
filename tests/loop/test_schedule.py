import math
from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stepe.errors import InputError
from stepe.loop.schedule import SHORT_RUN, Schedule, default_warmup, make_schedule


def square(progress: float) -> float:
    return progress**2


SHAPES = st.sampled_from(["auto", "linear", "early", "proportional", square, math.sqrt])


@st.composite
def runs(draw) -> tuple[int, int]:
    epochs = draw(st.integers(1, 80))
    return epochs, draw(st.integers(0, epochs - 1))


def fractions(schedule: Schedule) -> list[float]:
    return [schedule(epoch) for epoch in range(schedule.epochs)]


@settings(max_examples=300)
@given(SHAPES, runs(), st.floats(0, 1, exclude_max=True))
def test_every_schedule_is_zero_in_the_warmup_bounded_and_never_decreases(shape, run, rho_max):
    epochs, warmup = run
    rho = fractions(make_schedule(shape, rho_max=rho_max, epochs=epochs, warmup=warmup))
    assert rho[:warmup] == [0.0] * warmup
    assert all(0 <= fraction <= rho_max for fraction in rho)
    assert all(before <= after for before, after in pairwise(rho))


@settings(max_examples=100)
@given(runs(), st.fractions(0, Fraction(99, 100)))
def test_linear_is_equation_2_counted_from_zero(run, rho_max):
    epochs, warmup = run
    rho = fractions(make_schedule("linear", rho_max=float(rho_max), epochs=epochs, warmup=warmup))
    for t in range(warmup, epochs):
        assert rho[t] == pytest.approx(float(rho_max * Fraction(t - warmup, epochs - warmup)))


def test_the_papers_run_ends_just_under_rho_max():
    schedule = make_schedule("auto", rho_max=0.45, epochs=60, warmup=10)
    assert schedule(10) == 0
    assert schedule(35) == pytest.approx(0.225)
    assert schedule(59) == pytest.approx(0.45 * 49 / 50)


@settings(max_examples=100)
@given(st.integers(2, SHORT_RUN - 1), st.floats(0.01, 0.99))
def test_auto_reaches_rho_max_in_a_short_run_and_stays_there(epochs, rho_max):
    rho = fractions(make_schedule("auto", rho_max=rho_max, epochs=epochs, warmup=default_warmup(epochs)))
    reached = rho.index(rho_max)
    assert rho[reached:] == [rho_max] * (epochs - reached)
    # "early" is halfway between the warm-up and the end.
    assert reached == default_warmup(epochs) + (epochs - default_warmup(epochs)) // 2


@pytest.mark.parametrize(
    ("epochs", "warmup", "expected"),
    [(2, 1, [0, 0.4]), (3, 1, [0, 0, 0.4]), (5, 1, [0, 0, 0.2, 0.4, 0.4]), (6, 2, [0, 0, 0, 0.2, 0.4, 0.4])],
)
def test_auto_in_a_short_run_number_by_number(epochs, warmup, expected):
    rho = fractions(make_schedule("auto", rho_max=0.4, epochs=epochs, warmup=warmup))
    assert rho == pytest.approx(expected)


def test_auto_is_linear_from_fifteen_epochs_on():
    for epochs in (SHORT_RUN, 16, 60):
        given_name = fractions(make_schedule("auto", rho_max=0.4, epochs=epochs, warmup=2))
        assert given_name == fractions(make_schedule("linear", rho_max=0.4, epochs=epochs, warmup=2))
    short = fractions(make_schedule("auto", rho_max=0.4, epochs=SHORT_RUN - 1, warmup=2))
    assert short == fractions(make_schedule("early", rho_max=0.4, epochs=SHORT_RUN - 1, warmup=2))


@pytest.mark.parametrize(
    ("warmup", "expected"), [(0, [0, 0.4, 0.4, 0.4, 0.4]), (2, [0, 0, 0, 0.2, 0.4]), (4, [0, 0, 0, 0, 0])]
)
def test_a_proportional_ramp_takes_as_long_as_the_warmup_if_the_run_does(warmup, expected):
    rho = fractions(make_schedule("proportional", rho_max=0.4, epochs=5, warmup=warmup))
    assert rho == pytest.approx(expected)


def test_auto_keeps_a_ramp_end_that_was_asked_for():
    schedule = make_schedule("auto", rho_max=0.4, epochs=10, warmup=2, ramp_end=6)
    assert fractions(schedule) == pytest.approx([0, 0, 0, 0.1, 0.2, 0.3, 0.4, 0.4, 0.4, 0.4])


@pytest.mark.parametrize("shape", ["auto", "linear", "early", "proportional"])
@pytest.mark.parametrize("ramp_end", [2, 5, 20])
def test_every_ramp_is_done_at_its_end_and_not_before(shape, ramp_end):
    rho = fractions(make_schedule(shape, rho_max=0.4, epochs=20, warmup=2, ramp_end=ramp_end))
    assert rho[ramp_end:] == [0.4] * (20 - ramp_end)
    assert all(fraction < 0.4 for fraction in rho[:ramp_end])


def test_a_function_of_the_progress_is_scaled_by_rho_max_and_clamped():
    rho = fractions(make_schedule(lambda progress: 4 * progress - 1, rho_max=0.4, epochs=9, warmup=1))
    assert rho == pytest.approx([0, 0, 0, 0, 0.2, 0.4, 0.4, 0.4, 0.4])


def test_a_ready_schedule_is_taken_as_it_is():
    ready = Schedule(rho_max=0.3, epochs=10, warmup=3)
    assert make_schedule(ready, rho_max=0.4, epochs=10, warmup=2) is ready


@pytest.mark.parametrize(
    "shape",
    [lambda progress: 1 - progress, lambda progress: float(progress < 0.5), Schedule(0.3, 10, 2, lambda p: 1 - p)],
)
def test_a_schedule_that_decreases_is_an_error(shape):
    with pytest.raises(InputError, match="never decrease"):
        make_schedule(shape, rho_max=0.4, epochs=10, warmup=2)


@pytest.mark.parametrize("epochs", [1, 10])
@pytest.mark.parametrize(
    "shape", [lambda progress: math.nan, Schedule(math.nan, 10, 0), Schedule(1.5, 1, 0, lambda p: 1)]
)
def test_a_schedule_that_gives_no_fraction_is_an_error(shape, epochs):
    with pytest.raises(InputError, match=r"\[0, 1\)|above rho_max"):
        make_schedule(shape, rho_max=0.4, epochs=epochs, warmup=0)


def test_a_ready_schedule_above_rho_max_is_an_error():
    with pytest.raises(InputError, match=r"goes up to 0\.8, above rho_max, 0\.1"):
        make_schedule(Schedule(0.8, 6, 1), rho_max=0.1, epochs=6, warmup=1)


@pytest.mark.parametrize("rho_max", [-0.1, 1, 1.0, 1.5, math.nan, math.inf, True, False, "0.2", None])
def test_a_rho_max_outside_zero_to_one_is_an_error_that_shows_it(rho_max):
    with pytest.raises(InputError, match=r"rho_max is .*\[0, 1\)") as error:
        make_schedule("linear", rho_max=rho_max, epochs=10, warmup=2)
    assert repr(rho_max) in str(error.value)


@pytest.mark.parametrize("epochs", [0, -1, 2.0, True, None])
def test_epochs_must_be_a_whole_number_of_at_least_one(epochs):
    with pytest.raises(InputError, match="epochs is"):
        make_schedule("linear", rho_max=0.4, epochs=epochs, warmup=0)


@pytest.mark.parametrize("warmup", [-1, 1.0, True, None])
def test_the_warmup_must_be_a_whole_number(warmup):
    with pytest.raises(InputError, match="warm-up is"):
        make_schedule("linear", rho_max=0.4, epochs=10, warmup=warmup)


@pytest.mark.parametrize("warmup", [10, 11])
def test_a_warmup_that_leaves_no_epoch_is_an_error(warmup):
    with pytest.raises(InputError, match="nothing would ever be dropped"):
        make_schedule("linear", rho_max=0.4, epochs=10, warmup=warmup)


@pytest.mark.parametrize("ramp_end", [1, 11, math.nan])
def test_a_ramp_must_end_between_the_warmup_and_the_last_epoch(ramp_end):
    with pytest.raises(InputError, match="the ramp ends"):
        make_schedule("linear", rho_max=0.4, epochs=10, warmup=2, ramp_end=ramp_end)


def test_an_unknown_name_is_an_error_that_lists_the_known_ones():
    with pytest.raises(InputError, match="auto, linear, early, proportional"):
        make_schedule("exponential", rho_max=0.4, epochs=10, warmup=2)


def test_the_default_warmup_is_a_sixth_and_always_leaves_an_epoch():
    assert default_warmup(60) == 10
    for epochs in range(1, 100):
        assert 0 <= default_warmup(epochs) < epochs
    assert [default_warmup(epochs) for epochs in (1, 2, 3, 6, 12)] == [0, 1, 1, 1, 2]
