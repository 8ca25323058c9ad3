"""The record of a run, as it is written and read."""

import json

import pytest

from stepe.beliefs.rate import Rate
from stepe.errors import RunError
from stepe.loop.metrics import Detection
from stepe.run.folder import RunFolder
from stepe.run.record import (
    Config,
    Contradicted,
    Environment,
    Fit,
    MethodFacts,
    NoiseFound,
    ProbeFacts,
    Request,
    Summary,
)

CONFIG = Config(
    request=Request(name="mine", data="mine.csv", methods=("step-e", "plain"), features=("a*",), warmup="auto"),
    method=MethodFacts("a method", "given"),
    fit=Fit(method="step-e", options={"rho_max": 0.2, "sticky": True}, epochs=3, samples=9, inputs="abc"),
    class_names=["cat", "dog"],
    environment=Environment(python="3.11", threads=2, seed=0),
)


def write(folder, config):
    (folder / "config.json").write_text(json.dumps(config))


@pytest.mark.parametrize("config", [CONFIG, Config(fit=Fit(method="plain"), class_names=[])], ids=["clean", "fit"])
def test_what_is_written_is_read(tmp_path, config):
    write(tmp_path, config.to_json())
    assert Config.read(tmp_path) == config
    assert RunFolder(tmp_path).request == (config.request or Request())


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"request": {"epochs": "many"}}, 'request.epochs is "many", which is not a whole number'),
        ({"fit": {}}, "fit.method is missing"),
        ({"class_names": "cat"}, 'class_names is "cat", which is not a list'),
        ({"format": 3}, "is not of a run that this version of stepe can read"),
        ({"format": True}, "format is true, which is not a whole number"),
    ],
    ids=str,
)
def test_a_config_that_makes_no_sense_is_refused_in_a_line(tmp_path, changed, told):
    write(tmp_path, CONFIG.to_json() | changed)
    with pytest.raises(RunError) as error:
        RunFolder(tmp_path)
    assert told in str(error.value)
    assert str(tmp_path / "config.json") in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("request_", "clean", "experiment"),
    [
        ({"held_out_noisy": True, "noise": None}, False, False),
        ({"held_out_noisy": True, "noise": "symmetric:0.2"}, False, True),
        ({"held_out_noisy": False, "noise": None}, True, True),
    ],
    ids=["own data", "own data with planted noise", "a benchmark"],
)
def test_the_word_of_older_versions_is_understood(tmp_path, request_, clean, experiment):
    write(tmp_path, CONFIG.to_json() | {"format": 1, "request": request_})
    found = RunFolder(tmp_path).request
    assert (found.held_out_is_clean, found.uniform_classes, found.is_experiment) == (clean, clean, experiment)


FOUND = Detection(0.5, 1.0, 2 / 3)
SUMMARY = Summary(
    method="step-e",
    epochs=3,
    samples=9,
    dropped=2,
    flagged=1,
    probe=ProbeFacts("cross:2x2", True, Contradicted(0.1, 0.2)),
    warmup=1,
    noise_rate=Rate(0.1, 0.0, 0.2),
    hardly_recognised=(1,),
    noise=NoiseFound(2, None, dropped=FOUND, flagged=FOUND),
    more={"tau": 0.3},
)


@pytest.mark.parametrize("summary", [SUMMARY, Summary(samples=9, flagged=0)], ids=["much", "little"])
def test_a_summary_that_is_written_is_read(tmp_path, summary):
    (tmp_path / "summary.json").write_text(json.dumps(summary.to_json()))
    assert Summary.read(tmp_path) == summary


def test_what_older_versions_wrote_for_nothing_seen_is_nothing(tmp_path):
    probe = {"reach": "cross:2x2", "chosen": False, "contradicted": {}}
    (tmp_path / "summary.json").write_text(json.dumps({"samples": 9, "flagged": 0, "probe": probe}))
    assert Summary.read(tmp_path).probe == ProbeFacts("cross:2x2", False)


def test_a_summary_says_only_what_is_known():
    assert SUMMARY.to_json()["tau"] == 0.3
    assert Summary(samples=9, flagged=0).to_json().keys() == {
        *("method", "epochs", "samples", "dropped", "flagged", "seconds", "seconds_per_epoch", "probe")
    }


def test_a_summary_that_makes_no_sense_is_refused_in_a_line(tmp_path):
    changed = SUMMARY.to_json() | {"noise_rate": {"rate": "low", "low": 0, "high": 1}}
    (tmp_path / "summary.json").write_text(json.dumps(changed))
    with pytest.raises(RunError, match=r'summary\.json, noise_rate\.rate is "low", which is not a number; ') as error:
        Summary.read(tmp_path)
    assert "\n" not in str(error.value)
