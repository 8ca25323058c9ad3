"""Fleets on a CPU: who takes turns when, and that nobody notices the others; tests/gpu has the streams."""

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import stepe
from stepe import InputError
from stepe.engine.steps import Awaitable, Steps
from stepe.methods import METHODS, make_method
from stepe.training import fleet
from stepe.training.building import Result, Training
from stepe.training.fit import Job, begin
from stepe.training.fleet import run_together
from stepe.training.session import Row

CPU = torch.device("cpu")


class Silent:
    """An observer to be overridden."""

    def run_started(self, training: Training) -> None: ...

    def epoch_ended(self, training: Training, row: Row) -> None: ...

    def run_ended(self, result: Result) -> None: ...


@pytest.fixture
def prepare(blobs, make_model) -> Callable[..., Job]:
    """A run of a method that is ready to be carried out."""

    def prepare(method: str = "step-e", **options: Any) -> Job:
        kind = make_method(method, **({"rho_max": 0.3} if "rho_max" in METHODS[method].options() else {}))
        options = {"epochs": 4, "batch_size": 16, "device": "cpu", "engine": "resident", "truth": blobs.truth} | options
        return begin(make_model(), blobs.x, blobs.given, method=kind, test=(blobs.x, blobs.clean), **options)

    return prepare


def rows(result: Result) -> list[Row]:
    """The history without its clock."""
    return [{key: value for key, value in row.items() if not key.endswith("seconds")} for row in result.history]


def test_every_run_is_what_it_is_alone_bit_for_bit(prepare, bits):
    """Different methods, seeds, lengths, batch sizes and engines, whose steps and probes fall between each other's."""
    settings = [
        {"method": method, "seed": seed, "epochs": 3 + number % 3, "batch_size": 16 - number % 8, "engine": engine}
        for number, (method, seed, engine) in enumerate(
            (method, seed, engine) for method in METHODS for seed, engine in ((1, "resident"), (2, "eager"))
        )
    ]
    together = run_together([prepare(**setting) for setting in settings])
    assert len(together) == len(settings)
    for setting, found in zip(settings, together, strict=True):
        alone = prepare(**setting).finish()
        assert bits(found.model) == bits(alone.model), setting
        assert rows(found) == rows(alone), setting
        for name, column in alone.ledger.state_dict().items():
            torch.testing.assert_close(found.ledger[name], column, rtol=0, atol=0, equal_nan=True, msg=str(setting))
    assert len({bits(found.model) for found in together}) == len(settings)


def test_runs_really_take_turns(prepare):
    ended: list[tuple[str, int]] = []

    class Ended(Silent):
        def __init__(self, name: str):
            self.name = name

        def epoch_ended(self, training: Training, row: Row) -> None:
            ended.append((self.name, row["epoch"]))

    jobs = [prepare("plain", epochs=epochs, observers=(Ended(name),)) for name, epochs in (("long", 4), ("short", 2))]
    results = run_together(jobs)
    assert [result.summary.epochs for result in results] == [4, 2]
    assert ended.index(("short", 1)) < ended.index(("long", 2))
    assert ended.index(("long", 0)) < ended.index(("short", 1))


def test_a_fleet_of_none_has_no_results():
    assert run_together([]) == []


def test_an_interrupted_run_of_a_fleet_goes_on_in_another(prepare, bits, tmp_path):
    class Interrupt(Silent):
        def epoch_ended(self, training: Training, row: Row) -> None:
            if training.epoch == 2:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_together(
            [prepare(seed=1, run=tmp_path / "one"), prepare(seed=2, run=tmp_path / "two", observers=(Interrupt(),))]
        )
    jobs = [prepare(seed=seed, run=tmp_path / name, resume=True) for seed, name in ((1, "one"), (2, "two"))]
    for seed, resumed in zip((1, 2), run_together(jobs), strict=True):
        assert bits(resumed.model) == bits(prepare(seed=seed).finish().model)


class Failing(Silent):
    def epoch_ended(self, training: Training, row: Row) -> None:
        if training.epoch == 2:
            raise ValueError("disk full")


def test_an_error_in_one_run_is_the_fleets(prepare):
    reached: list[int] = []

    class Reached(Silent):
        def epoch_ended(self, training: Training, row: Row) -> None:
            reached.append(training.epoch)

    jobs = [prepare(epochs=30, observers=(Reached(),)), prepare(observers=(Failing(),))]
    with pytest.raises(ValueError, match="disk full"):
        run_together(jobs)
    assert 1 <= len(reached) < 30


@pytest.mark.parametrize("fails", [False, True])
def test_the_users_generators_and_settings_are_as_before(fails, prepare):
    during: list[bool] = []

    class Settings(Silent):
        def epoch_ended(self, training: Training, row: Row) -> None:
            during.append(torch.are_deterministic_algorithms_enabled())

    torch.manual_seed(11)
    before = torch.get_rng_state(), np.random.get_state(), random.getstate()  # noqa: NPY002
    jobs = [
        prepare(deterministic=True, observers=(Settings(), *([Failing()] if fails else []))),
        prepare("plain", engine="eager"),
    ]
    assert torch.equal(torch.get_rng_state(), before[0])
    if fails:
        with pytest.raises(ValueError, match="disk full"):
            run_together(jobs)
    else:
        run_together(jobs)
    assert during[0]
    assert not torch.are_deterministic_algorithms_enabled()
    assert torch.equal(torch.get_rng_state(), before[0])
    np.testing.assert_equal(np.random.get_state(), before[1])  # noqa: NPY002
    assert random.getstate() == before[2]


@pytest.mark.parametrize("deterministic", [(), (0,), (1,)])
def test_the_fleet_is_deterministic_if_any_run_is(deterministic, prepare):
    during: list[bool] = []

    class Settings(Silent):
        def epoch_ended(self, training: Training, row: Row) -> None:
            during.append(torch.are_deterministic_algorithms_enabled())

    run_together([prepare(epochs=2, deterministic=i in deterministic, observers=(Settings(),)) for i in range(2)])
    assert set(during) == {bool(deterministic)}


# Turns, with work that is made up


class Event:
    """Something that will have happened once it was asked about often enough, or somebody says so."""

    def __init__(self, patience: float = float("inf")):
        self.patience = patience
        self.happened = False
        self.asked = 0

    def query(self) -> bool:
        self.asked += 1
        return self.happened or self.asked > self.patience


def work(log: list[str], name: str, awaited: dict[int, Awaitable] | None = None, steps: int = 4) -> Steps[Any]:
    for step in range(steps):
        log.append(f"{name}{step}")
        yield (awaited or {}).get(step)
    return name


def job(steps: Steps[Any]) -> Job:
    return Job(steps, CPU, deterministic=False)


def test_runs_take_a_step_each_in_their_order():
    log: list[str] = []
    assert run_together([job(work(log, "a", steps=2)), job(work(log, "b", steps=3))]) == ["a", "b"]
    assert log == ["a0", "b0", "a1", "b1", "b2"]


def test_of_many_runs_so_many_as_asked_for_take_turns_and_the_next_begins_when_one_ends():
    log: list[str] = []
    jobs = [job(work(log, name, steps=steps)) for name, steps in (("a", 1), ("b", 3), ("c", 2))]
    assert run_together(jobs, at_once=2) == ["a", "b", "c"]
    assert log == ["a0", "b0", "b1", "b2", "c0", "c1"]


def test_a_fleet_of_nobody_at_a_time_is_refused():
    with pytest.raises(InputError, match="at_once is 0; at least one run"):
        run_together([job(work([], "a"))], at_once=0)


def test_a_run_that_awaits_something_is_passed_over_until_it_happened():
    log: list[str] = []
    event = Event()

    def releasing() -> Steps[str]:
        for step in range(5):
            log.append(f"b{step}")
            event.happened = step == 3
            yield None
        return "b"

    assert run_together([job(work(log, "a", {1: event}, steps=3)), job(releasing())]) == ["a", "b"]
    assert log == ["a0", "b0", "a1", "b1", "b2", "b3", "a2", "b4"]


def test_the_host_rests_only_while_every_run_waits(monkeypatch):
    log: list[str] = []
    monkeypatch.setattr(fleet.time, "sleep", lambda seconds: log.append("rest"))
    one, other = Event(patience=4), Event(patience=1)
    run_together([job(work(log, "a", {0: one}, steps=2)), job(work(log, "b", {0: other}, steps=2))])
    assert log == ["a0", "b0", "rest", "b1", "rest", "a1"]
    assert one.asked == 5


def test_results_come_in_the_order_of_the_jobs_not_of_their_ends():
    late = Event(patience=5)
    assert run_together([job(work([], "slow", {0: late})), job(work([], "quick", steps=1))]) == ["slow", "quick"]


def test_alone_a_run_does_not_wait():
    """What it needs on the host is waited for there."""
    event = Event()
    log: list[str] = []
    assert job(work(log, "a", {0: event, 2: event})).finish() == "a"
    assert event.asked == 0
    assert len(log) == 4


def test_begin_and_finish_is_fit(prepare, blobs, make_model, bits):
    fitted = stepe.fit(
        make_model(), blobs.x, blobs.given, rho_max=0.3, epochs=4, batch_size=16, device="cpu", engine="resident"
    )
    assert bits(prepare().finish().model) == bits(fitted.model)
