"""What the options of methods would be for some data, before anything is trained."""

import numpy as np
import pytest

import stepe
from stepe import InputError
from stepe.app.methods import describe_method, methods_for
from stepe.methods import EVERY_METHOD


@pytest.fixture
def arrays():
    labels = np.arange(60) % 3
    return np.random.default_rng(0).normal(size=(60, 4)) + 3 * np.eye(4)[labels], labels


@pytest.mark.parametrize("method", ["step-e", "step-e-plus", "one-shot"])
def test_options_are_what_a_run_then_takes(arrays, tmp_path, method):
    options = {"method": method, "noise_rate": 0.1, "epochs": 4, "device": "cpu"}
    told = methods_for(arrays, **options)[method]
    taken = stepe.clean(arrays, out=tmp_path / "run", **options).summary
    assert {name: told[name] for name in ("rho_max", "warmup")} == {
        name: getattr(taken, name) for name in ("rho_max", "warmup")
    }


def test_a_known_noise_rate_and_the_length_of_the_run_decide(arrays):
    told = methods_for(arrays, noise_rate=0.1, epochs=30)
    assert {name: told[name]["rho_max"] for name in ("step-e", "step-e-plus", "truncation", "co-teaching")} == {
        "step-e": pytest.approx(0.15),
        "step-e-plus": 0.1,
        "truncation": pytest.approx(0.15),
        "co-teaching": 0.1,
    }
    assert told["step-e"]["warmup"] == 5
    assert methods_for(arrays)["step-e"]["rho_max"] == "auto"


def test_who_judges_is_taken_into_account(arrays):
    by_others, by_itself = (methods_for(arrays, probe=probe, noise_rate=0.1) for probe in ("cross:5", "in-sample"))
    assert (by_others["step-e"]["score"], by_itself["step-e"]["score"]) == ("posterior", "loss")


def test_a_method_that_cannot_be_had_says_why(arrays):
    told = methods_for(arrays)
    assert set(told) == {name for name in EVERY_METHOD if name != "oracle"}
    assert "rho_max is missing, and truncation cannot find it out" in told["truncation"]
    assert list(methods_for(arrays, method="gce,plain")) == ["gce", "plain"]


def test_nothing_is_trained_or_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("stepe.app.work.begin", lambda *args, **options: pytest.fail("something was trained"))
    assert methods_for("digits")["step-e-plus"]["rho_max"] == pytest.approx(0.4, abs=0.01)
    assert not list(tmp_path.iterdir())


def test_an_unknown_option_names_its_neighbours(arrays):
    with pytest.raises(InputError, match="has no option 'roh_max'; did you mean rho_max"):
        methods_for(arrays, roh_max=0.2)


def test_a_method_is_described_without_data():
    assert describe_method("gce")["options"] == {"q": 0.7}
