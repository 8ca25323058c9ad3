import pytest

from stepe.engine.steps import Steps, exhaust


class Never:
    """Something that has not happened, and need not: what needs it on the host waits for it there."""

    def query(self) -> bool:
        raise AssertionError("nobody asks where one run is alone")


def counting(done: list[int], upto: int) -> Steps[str]:
    for step in range(upto):
        done.append(step)
        yield Never() if step % 2 else None
    return "result"


def test_all_steps_are_carried_out_in_order_and_the_result_comes_back():
    done: list[int] = []
    assert exhaust(counting(done, 5)) == "result"
    assert done == [0, 1, 2, 3, 4]


def test_work_without_steps_has_a_result_too():
    assert exhaust(counting([], 0)) == "result"


def test_work_that_was_begun_is_finished():
    done: list[int] = []
    steps = counting(done, 4)
    next(steps)
    next(steps)
    assert exhaust(steps) == "result"
    assert done == [0, 1, 2, 3]


def test_an_error_in_a_step_is_the_callers():
    def failing() -> Steps[None]:
        yield None
        raise ValueError("third step")

    with pytest.raises(ValueError, match="third step"):
        exhaust(failing())
