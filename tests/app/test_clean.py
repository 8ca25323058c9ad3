"""``stepe.clean``: from data to a run folder."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import safetensors.torch
import torch

import stepe
from interrupted import StopHereError, Stopper
from stepe import InputError, Run, RunError
from stepe.app.begin import default_name
from stepe.app.clean import clean
from stepe.app.request import METHOD, method_options
from stepe.app.resume import resume
from stepe.data.source import Source
from stepe.loop.metrics import Truth
from stepe.methods import EVERY_METHOD
from stepe.options import options_of
from stepe.run.lock import locked
from stepe.training.building import Silent, Training

ALL = list(dict.fromkeys([METHOD, *EVERY_METHOD]))
ON_GIVEN_LABELS = [name for name in ALL if EVERY_METHOD[name].trains_on == "given"]


def stopping(method: str, epoch: int) -> Callable[..., Stopper]:
    """For ``follow=``: ends the run of one method."""
    return lambda name, position, total: Stopper(epoch if name == method else None)


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def _no_report(monkeypatch) -> None:
    """Reports have tests of their own, and take longer than these runs."""

    def write(run: Run) -> Path:
        (run.path / "report.html").write_text("report")
        return run.path / "report.html"

    monkeypatch.setattr("stepe.report.html.write_report", write)


@pytest.fixture
def arrays() -> tuple[np.ndarray, np.ndarray]:
    """Three clouds of 30 points, some under the name of another."""
    draw = np.random.default_rng(0)
    names = np.repeat(["ant", "bee", "cat"], 30)
    x = 3 * np.repeat(np.eye(3), 30, axis=0) + draw.normal(size=(90, 3))
    names[::9] = "cat"
    return x, names


@pytest.fixture
def file(arrays, tmp_path) -> Path:
    np.savez(tmp_path / "mine.npz", features=arrays[0], labels=arrays[1])
    return tmp_path / "mine.npz"


def outputs(run: Path) -> dict[str, Any]:
    """What must not depend on interruptions."""
    found: dict[str, Any] = {}
    for folder in (run, *sorted((run / "compare").glob("*"))):
        name = str(folder.relative_to(run))
        for file in ("model.safetensors", "samples.parquet", "issues.csv", "trace.bin"):
            found[f"{name}/{file}"] = (folder / file).read_bytes()
        found[f"{name}/history"] = [
            {key: value for key, value in row.items() if not key.endswith("seconds")} for row in Run(folder).history
        ]
    return found


# ---------------------------------------------------------------------------------------------------------------
# What comes out


def test_digits_become_a_run_with_everything_in_it(tmp_path):
    said: list[str] = []
    run = stepe.clean("digits", epochs=2, say=said.append)
    assert run.path == Path("runs/digits-1")
    assert said == [
        "clean: method step-e-plus, the default",
        "--epochs is for networks, so a network judged (as with --judges network); judges take seconds",
    ]
    assert {entry.name for entry in run.path.iterdir()} == {
        "belief.npz",
        "checkpoint",
        "compare",
        "config.json",
        "exhibits.parquet",
        "history.jsonl",
        "issues.csv",
        "model.safetensors",
        "preprocessing.json",
        "probabilities.npz",
        "report.html",
        "samples.parquet",
        "summary.json",
        "trace.bin",
    }
    assert run.method == "step-e-plus"
    assert sorted(other.method for other in run.others) == ["oracle", "plain"]
    assert run.summary.noise.noisy == round(0.4 * 1438)
    assert set(run.previews) > set(run.issues["row"])
    assert all(preview.picture for preview in run.previews.values())
    samples = run.samples
    assert len(samples) == 1797
    assert (samples["split"] == "test").sum() == 359
    assert sorted(samples["row"]) == list(range(1797))
    assert samples["rank"].tolist() != list(range(1, 1798))
    request = run.request
    assert request.name == "digits"
    assert request.data == "bundled:digits"
    assert request.noise == "symmetric:0.4"
    assert request.methods == ("step-e-plus", "plain", "oracle")


@pytest.mark.usefixtures("_no_report")
def test_peoples_own_data_is_left_as_it_is_and_not_compared(file):
    run = clean(file, rho_max=0.2, epochs=3)
    assert run.path == Path("runs/mine-1")
    assert run.others == []
    assert run.summary.noise is None
    assert run.request.noise is None
    assert run.request.data == str(file)
    assert run.class_names == ["ant", "bee", "cat"]
    assert run.previews == {}
    given = dict(zip(run.samples["row"], run.samples["given_label"], strict=True))
    labels = np.load(file)["labels"]
    assert all(labels[row] == label for row, label in given.items())


@pytest.mark.usefixtures("_no_report")
def test_arrays_are_as_good_as_a_file(arrays, file):
    from_arrays = clean(arrays, rho_max=0.2, epochs=3, out="a")
    from_file = clean(str(file), rho_max=0.2, epochs=3, out="b")
    assert (Path("a") / "model.safetensors").read_bytes() == (Path("b") / "model.safetensors").read_bytes()
    assert from_arrays.request.data is None
    assert from_arrays.issues.equals(from_file.issues)


@pytest.mark.usefixtures("_no_report")
def test_the_first_method_is_the_run_and_the_others_are_compared_with_it(file):
    run = clean(file, method="plain, step-e,plain", rho_max=0.2, epochs=3)
    assert run.method == "plain"
    assert [path.name for path in (run.path / "compare").iterdir()] == ["step-e"]
    assert Run(run.path / "compare" / "step-e").config.request is None
    assert clean(file, method=["plain"], epochs=3).others == []


@pytest.mark.usefixtures("_no_report")
def test_all_means_every_method_that_the_data_allows(file):
    run = clean(file, method="all", rho_max=0.2, epochs=3)
    assert list(run.request.methods) == ON_GIVEN_LABELS
    run = clean(file, method="all", noise="symmetric:0.1", epochs=3)
    assert list(run.request.methods) == ALL
    assert sorted(other.method for other in run.others) == sorted(set(EVERY_METHOD) - {run.method})


@pytest.mark.usefixtures("_no_report")
def test_all_leaves_out_with_a_word_what_the_data_does_not_allow():
    draw = np.random.default_rng(0)
    table = pd.DataFrame({"colour": draw.choice(["red", "green", "blue"], 60), "size": draw.random(60)})
    table["label"] = np.where(table["colour"] == "red", "a", "b")
    said: list[str] = []
    run = clean(table, label="label", method="all", epochs=2, out="all", say=said.append)
    refused = [line.split(":")[0] for line in said if line.startswith("without ")]
    assert refused == ["without truncation", "without mixup"]  # no rate is known; colours cannot be blended
    assert list(run.request.methods) == [name for name in ON_GIVEN_LABELS if name not in ("truncation", "mixup")]
    with pytest.raises(InputError, match="'mixup' trains on blends of two inputs, and texts and categories cannot"):
        clean(table, label="label", method="step-e,mixup", epochs=2, out="mixed")
    assert not Path("mixed").exists()


@pytest.mark.usefixtures("_no_report")
def test_a_comparison_of_all_is_resumed_by_the_same_command(file):
    def stopping(method: str, position: int, total: int) -> Stopper:
        return Stopper(2 if method == "prune" else None)

    options = {"method": "all", "noise": "symmetric:0.2", "epochs": 4}
    whole = clean(file, out="whole", **options)
    with pytest.raises(StopHereError):
        clean(file, out="stopped", follow=stopping, **options)
    resumed = resume("stopped", method="all")
    for name in [".", *(f"compare/{each}" for each in EVERY_METHOD if each != "step-e-plus")]:
        for output in ("model.safetensors", "samples.parquet"):
            assert (whole.path / name / output).read_bytes() == (resumed.path / name / output).read_bytes(), name


@pytest.mark.usefixtures("_no_report")
def test_of_two_networks_the_first_is_that_of_other_methods_and_the_second_is_built_anew(file):
    started: dict[str, list[torch.Tensor]] = {}

    class Started(Silent):
        def run_started(self, training: Training) -> None:
            started[training.method.name] = [weight.detach().clone() for weight in training.model.parameters()]

    run = clean(file, method="plain,co-teaching", epochs=2, follow=lambda method, position, total: Started())
    alone, both = started["plain"], started["co-teaching"]
    assert len(both) == 2 * len(alone)
    for weight, first, second in zip(alone, both[: len(alone)], both[len(alone) :], strict=True):
        assert torch.equal(weight, first)
        assert not torch.equal(weight, second)
    kept = safetensors.torch.load_file(run.path / "compare" / "co-teaching" / "model.safetensors")
    assert kept.keys() == safetensors.torch.load_file(run.path / "model.safetensors").keys()


@pytest.mark.usefixtures("_no_report")
def test_comparing_trains_plain_and_where_clean_labels_are_known_the_oracle(file):
    compared = {"judges": "network", "epochs": 3, "compare": True}
    assert clean(file, rho_max=0.2, **compared).request.methods == ("step-e-plus", "plain")
    planted = clean(file, noise="symmetric:0.1", **compared)
    assert planted.request.methods == ("step-e-plus", "plain", "oracle")
    one_shot = clean(file, method="one-shot", rho_max=0.2, **compared)
    assert one_shot.request.methods == ("one-shot", "plain", "step-e-plus")


@pytest.mark.usefixtures("_no_report")
def test_an_audit_is_compared_with_the_methods_that_were_asked_for(file):
    by_judges = clean(file, method="one-shot", rho_max=0.2, epochs=3, compare=True)
    assert by_judges.request.methods == ("audit", "one-shot", "plain", "step-e-plus")
    assert sorted(other.method for other in by_judges.others) == ["one-shot", "plain", "step-e-plus"]
    assert Run("runs/mine-1/compare/one-shot").summary.epochs == 3


@pytest.mark.usefixtures("_no_report")
def test_a_comparison_of_an_audit_is_resumed_where_it_was(file):
    options = {"noise": "symmetric:0.2", "epochs": 3, "compare": True}
    whole = clean(file, out="whole", **options)

    class Either(Stopper):
        def round_ended(self, number: int, most: int, rate: float) -> None:
            begun.append("round")

    def follow(method: str, position: int, total: int) -> Either:
        begun.append(method)
        return Either(2 if method == stopped else None)

    begun: list[str] = []
    stopped = "plain"
    with pytest.raises(StopHereError):
        clean(file, out="cut", follow=follow, **options)
    before, begun[:], stopped = list(begun), [], ""
    run = resume("cut", follow=follow)
    methods = [name for name in before if name != "round"]
    assert methods == ["audit", "step-e-plus", "plain"]
    assert begun == ["plain", "oracle"]
    assert outputs(run.path) == outputs(whole.path)


@pytest.mark.usefixtures("_no_report")
def test_bundled_data_without_noise_is_known_to_be_clean():
    run = clean("bundled:digits", noise="none", epochs=2, compare=False)
    assert run.summary.noise.noisy == 0
    assert run.config.fit.noise_rate == 0.0


@pytest.mark.usefixtures("_no_report")
def test_no_noise_planted_says_nothing_about_peoples_own_labels(file):
    run = clean(file, noise="none", epochs=3)
    assert run.summary.noise is None
    assert run.config.fit.noise_rate is None


@pytest.mark.usefixtures("_no_report")
@pytest.mark.parametrize("kind", ["symmetric", "asymmetric", "instance", "outliers"])
def test_every_kind_of_noise_can_be_planted(file, kind):
    run = clean(file, noise=f"{kind}:0.25", epochs=2)
    noisy, n = run.summary.noise.noisy, run.summary.samples
    assert noisy == pytest.approx(0.25 * n, abs=1)
    assert run.config.fit.noise_rate == noisy / n


@pytest.mark.usefixtures("_no_report")
def test_a_known_rate_stands_in_for_rho_max(file):
    dropped = [clean(file, method=name, noise_rate=0.15, epochs=3).summary.dropped for name in ("step-e", METHOD)]
    assert dropped == [int(0.2 * 72), int(0.15 * 72)]  # the paper's margin above it, or none


@pytest.mark.usefixtures("_no_report")
def test_the_papers_preset_is_step_e_by_its_losses(file):
    class Chosen(Silent):
        def run_started(self, training: Training) -> None:
            if hasattr(training.method, "settings"):
                ranked.append((training.method.name, training.method.settings.score, training.task.probe))

    ranked: list[tuple[str, str, str]] = []
    planted = {"judges": "network", "preset": "paper", "noise": "symmetric:0.2", "compare": True}
    for options in (planted, {}):
        clean(file, epochs=3, follow=lambda method, position, total: Chosen(), **options)
    compared = ("step-e-plus", "guess", "in-sample")  # by a rule of its own, under the same probe
    assert ranked == [("step-e", "loss", "in-sample"), compared, ("step-e-plus", "posterior", "auto")]


@pytest.mark.usefixtures("_no_report")
def test_the_seed_decides(file):
    runs = [clean(file, rho_max=0.2, epochs=2, seed=seed) for seed in (1, 1, 2)]
    weights = [(run.path / "model.safetensors").read_bytes() for run in runs]
    assert weights[0] == weights[1] != weights[2]


@pytest.mark.usefixtures("_no_report")
def test_a_class_floor_is_passed_on(file):
    run = clean(file, rho_max=0.5, min_keep=1.0, epochs=3)
    assert run.summary.dropped == 0


# ---------------------------------------------------------------------------------------------------------------
# The truth stays out of training


@pytest.mark.usefixtures("_no_report")
def test_shuffling_the_truth_changes_no_weight(file, monkeypatch):
    planted = Source.planted

    def shuffled(self: Source, noise: Any, seed: int) -> Source:
        source = planted(self, noise, seed)
        order = np.random.default_rng(1).permutation(len(source.labels))
        truth = Truth(source.truth.noisy[order], source.truth.labels[order])
        return replace(source, truth=truth, clean_labels=source.clean_labels[order], clean_x=source.clean_x[order])

    methods = ",".join(["step-e", *EVERY_METHOD])
    honest = clean(file, method=methods, noise="symmetric:0.3", epochs=4, out="honest")
    monkeypatch.setattr(Source, "planted", shuffled)
    fooled = clean(file, method=methods, noise="symmetric:0.3", epochs=4, out="fooled")
    for name in ["."] + [f"compare/{name}" for name in EVERY_METHOD if name not in ("step-e", "oracle")]:
        for output in ("model.safetensors", "samples.parquet", "trace.bin"):
            assert (honest.path / name / output).read_bytes() == (fooled.path / name / output).read_bytes(), name
    assert honest.summary.noise != fooled.summary.noise
    oracle = Path("compare/oracle/model.safetensors")
    assert (honest.path / oracle).read_bytes() != (fooled.path / oracle).read_bytes()


@pytest.mark.usefixtures("_no_report")
def test_the_held_out_labels_change_no_weight(file, monkeypatch):
    from stepe.app import begin as recipe

    open_source = recipe.open_source

    def mislabelled(*args: Any, **options: Any) -> Source:
        found = open_source(*args, **options)
        return replace(found, test_labels=(found.test_labels + 1) % 3)

    honest = clean(file, rho_max=0.2, epochs=3, out="honest")
    monkeypatch.setattr("stepe.app.begin.open_source", mislabelled)
    fooled = clean(file, rho_max=0.2, epochs=3, out="fooled")
    assert Path("honest/model.safetensors").read_bytes() == Path("fooled/model.safetensors").read_bytes()
    assert honest.summary.test_accuracy != fooled.summary.test_accuracy


# ---------------------------------------------------------------------------------------------------------------
# What is refused, before anything is written

MISTAKES = {
    "unknown preset": ({"preset": "magic"}, "preset is 'magic'; there is one: paper"),
    "preset and another method": ({"preset": "paper", "method": "plain"}, "preset paper is method step-e with probe"),
    "preset and another probe": ({"preset": "paper", "probe": "cross:2"}, "leave method and probe away, or preset"),
    "unknown method": ({"method": "magic"}, "unknown method 'magic'; choose one of step-e"),
    "unknown method in a list": ({"method": "step-e,magic"}, "unknown method 'magic'"),
    "no method": ({"method": ""}, "unknown method ''"),
    "malformed noise": ({"noise": "symmetric"}, "noise is 'symmetric'"),
    "rho_max of 1": ({"rho_max": 1.0}, "rho_max is 1.0"),
    "negative rho_max": ({"rho_max": -0.1}, "rho_max is -0.1"),
    "rho_max of a word": ({"rho_max": "much"}, "rho_max is 'much'"),
    "unknown probe": ({"probe": "crossed"}, "probe is 'crossed'"),
    "hold-out of everything": ({"holdout": 1.0}, "holdout is 1.0; it must be a number in [0, 0.9]"),
    "a column where there are none": ({"label": "y"}, "has no columns; leave --label out"),
    "model of another kind": ({"model": "hf:x"}, "model 'hf:x' is for text, and the data is features"),
    "model of no kind": ({"model": "resnet"}, "model is 'resnet'; write timm:NAME"),
    "no epochs": ({"epochs": 0}, "epochs is 0"),
    "long warm-up": ({"warmup": 3}, "warm-up is 3 of 3 epochs"),
    "negative warm-up": ({"warmup": -1}, "warmup is -1"),
    "class floor": ({"min_keep": 2.0}, "min_keep is 2.0"),
    "strong augmentation of no pictures": ({"strong": 0.3}, "strong is for pictures"),
    "strong augmentation of more than all": ({"strong": 1.5}, "strong is 1.5; it must be a share in [0, 1]"),
    "device": ({"device": "tpu"}, "device 'tpu' is not there"),
    "a device without numbers": ({"device": "meta"}, "device 'meta' is not there"),
    "a device without its package": ({"device": "hpu"}, "device 'hpu' is not there"),
    "noise rate": ({"noise_rate": 1.5, "rho_max": None}, "noise_rate is 1.5; it must be a share in [0, 1]"),
    "oracle without clean labels": ({"method": "oracle"}, "'oracle' trains on clean labels, which mine does not have"),
    "option of another method": ({"method": "plain"}, "method 'plain' has no rho_max; leave it out"),
}


@pytest.mark.parametrize(("mistake", "told"), MISTAKES.values(), ids=MISTAKES.keys())
def test_mistakes_are_refused_before_anything_is_written(file, mistake, told):
    with pytest.raises(InputError) as error:
        clean(file, **({"rho_max": 0.2, "epochs": 3} | mistake))
    assert told in str(error.value)
    assert [entry.name for entry in Path().iterdir()] == ["mine.npz"]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"rho_max": 1.5}, "rho_max is 1.5"),
        ({"rho_max": 0.2, "warmup": 9}, "warm-up is 9 of 3"),
        ({"rho_max": 0.2, "min_keep": 2.0}, "min_keep is 2.0"),
    ],
)
def test_what_a_compared_method_would_refuse_is_refused_before_the_first_is_trained(file, options, told):
    with pytest.raises(InputError) as error:
        clean(file, method="plain,step-e", epochs=3, **options)
    assert told in str(error.value)
    assert [entry.name for entry in Path().iterdir()] == ["mine.npz"]


def test_an_out_folder_that_is_taken_is_left_alone(file, tmp_path):
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "mine.txt").write_text("mine")
    with pytest.raises(InputError, match="taken is not empty"):
        clean(file, rho_max=0.2, epochs=3, out="taken")
    assert [entry.name for entry in (tmp_path / "taken").iterdir()] == ["mine.txt"]


def test_an_out_folder_in_use_is_refused_whether_it_is_new_or_resumed(file):
    options = {"rho_max": 0.2, "epochs": 2, "method": "step-e"}
    clean(file, out="run", **options)
    with locked(Path("run")):
        for attempt in (lambda: clean(file, out="run", **options), lambda: resume("run")):
            with pytest.raises(RunError, match="run is in use by this very process since"):
                attempt()


def test_runs_go_into_folders_named_after_their_data():
    assert default_name("digits") == default_name("bundled:digits") == "digits"
    assert default_name("../data/my file.npz") == "my file"


# ---------------------------------------------------------------------------------------------------------------
# Resuming


@pytest.fixture
def options() -> dict[str, Any]:
    return {"judges": "network", "noise": "symmetric:0.3", "epochs": 4, "compare": True}


@pytest.mark.usefixtures("_no_report")
@pytest.mark.parametrize(("method", "epoch"), [("step-e-plus", 1), ("step-e-plus", 4), ("plain", 2), ("oracle", 3)])
def test_a_run_interrupted_anywhere_is_resumed_to_the_same_result(file, options, method, epoch):
    clean(file, out="whole", **options)
    with pytest.raises(StopHereError):
        clean(file, out="cut", follow=stopping(method, epoch), **options)
    trained = []

    def follow(name: str, position: int, total: int) -> Stopper:
        trained.append((name, position, total))
        return Stopper(None)

    run = resume("cut", follow=follow)
    assert run.finished
    assert outputs(Path("cut")) == outputs(Path("whole"))
    left = ["step-e-plus", "plain", "oracle"]
    assert trained == [(name, left.index(name), 3) for name in left[left.index(method) :]]
    assert Path("cut/report.html").exists()


@pytest.mark.usefixtures("_no_report")
def test_resuming_a_finished_run_trains_nothing(file, options):
    clean(file, out="run", **options)
    before = outputs(Path("run"))
    Path("run/report.html").unlink()
    resume("run", follow=lambda name, position, total: pytest.fail(f"trained {name} again"))
    assert outputs(Path("run")) == before
    assert Path("run/report.html").exists()


@pytest.mark.usefixtures("_no_report")
def test_a_run_in_a_folder_called_compare_can_be_resumed_like_any_other(file, options):
    with pytest.raises(StopHereError):
        clean(file, out="compare/run", follow=stopping("step-e-plus", 2), **options)
    assert resume("compare/run").request.epochs == 4


@pytest.mark.usefixtures("_no_report")
def test_arguments_that_are_the_same_may_be_repeated(file, options):
    with pytest.raises(StopHereError):
        clean(file, out="run", seed=3, follow=stopping("step-e-plus", 2), **options)
    run = resume("run", seed=3, epochs=4, noise="symmetric:0.3", method="step-e-plus", device="cpu")
    assert run.finished


@pytest.mark.usefixtures("_no_report")
@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"epochs": 5}, "epochs was 4, not 5"),
        ({"seed": 0}, "seed was 3, not 0"),
        ({"noise": "symmetric:0.2"}, "noise was 'symmetric:0.3', not 'symmetric:0.2'"),
        ({"rho_max": 0.1, "warmup": 2}, "rho_max was None, not 0.1; warmup was None, not 2"),
        ({"method": "one-shot"}, "one-shot"),
        ({"min_keep": 0.5}, "min_keep was 0.0, not 0.5"),
    ],
)
def test_arguments_that_differ_are_refused_by_name(file, options, change, told):
    with pytest.raises(StopHereError):
        clean(file, out="run", seed=3, follow=stopping("step-e-plus", 2), **options)
    with pytest.raises(RunError, match=r"run was started with another configuration.*Resume it as it was") as error:
        resume("run", **change)
    assert told in str(error.value)


@pytest.mark.usefixtures("_no_report")
def test_data_that_changed_in_the_meantime_is_noticed(file, arrays):
    with pytest.raises(StopHereError):
        clean(file, out="run", rho_max=0.2, epochs=4, follow=stopping("step-e-plus", 2))
    np.savez(file, features=arrays[0], labels=np.roll(arrays[1], 1))
    with pytest.raises(RunError, match="labels was"):
        resume("run")


@pytest.mark.usefixtures("_no_report")
def test_bundled_data_stays_bundled_whatever_has_come_to_lie_around(tmp_path, monkeypatch):
    with pytest.raises(StopHereError):
        clean("digits", out="run", epochs=2, compare=False, follow=stopping("step-e-plus", 1))
    (tmp_path / "digits").mkdir()
    assert resume("run").finished


@pytest.mark.usefixtures("_no_report")
def test_a_file_is_found_again_from_another_folder(file, tmp_path, monkeypatch):
    with pytest.raises(StopHereError):
        clean("mine.npz", out="run", rho_max=0.2, epochs=3, follow=stopping("step-e-plus", 1))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert resume("../run").finished


@pytest.mark.usefixtures("_no_report")
def test_arrays_cannot_be_brought_back_by_anybody_else(arrays):
    with pytest.raises(StopHereError):
        clean(arrays, out="run", rho_max=0.2, epochs=3, follow=stopping("step-e-plus", 1))
    with pytest.raises(RunError, match=r"was made from arrays; resume it with stepe.clean"):
        resume("run")
    assert clean(arrays, out="run", rho_max=0.2, epochs=3, resume=True).finished


@pytest.mark.usefixtures("_no_report")
def test_every_option_is_written_down_as_the_run_took_it(file, tmp_path):
    run = clean(Path("mine.npz"), method=["step-e", "plain"], warmup=np.int64(1), epochs=3, rho_max=0, out="run")
    written = run.config.options
    assert list(written) == list(options_of(clean))
    taken = {"data": str(tmp_path / "mine.npz"), "method": "step-e,plain", "warmup": 1, "rho_max": 0.0, "out": "run"}
    assert written | taken == written
    assert (written["probe"], written["track"], written["noise"]) == ("auto", [], None)


@pytest.mark.usefixtures("_no_report")
def test_options_that_say_where_things_are_may_change(file, arrays, tmp_path):
    with pytest.raises(StopHereError):
        clean("mine.npz", out="run", rho_max=0.2, epochs=3, follow=stopping("step-e-plus", 1))
    file = Path("mine.npz").rename("moved.npz")
    assert resume("run", data=file, device="cpu").finished


@pytest.mark.parametrize(
    ("forget", "told"),
    [
        (lambda config: config.update(format=1), "begun by an older version of stepe.*; start it anew"),
        (lambda config: config["options"].update(depth=3), "another version of stepe, with depth, .*: start it anew"),
        (lambda config: config["options"].update(track=5), "is damaged, .*: track is 5; it must be a text, or several"),
        (
            lambda config: config["options"].update(epochs="3"),
            "is damaged, .*: epochs is '3'; it must be a",
        ),
        (lambda config: config.update(request=None), "was not made by stepe clean; resume it by what made it"),
    ],
)
@pytest.mark.usefixtures("_no_report")
def test_a_run_of_another_version_says_what_to_do(file, forget, told):
    with pytest.raises(StopHereError):
        clean("mine.npz", out="run", rho_max=0.2, epochs=3, follow=stopping("step-e-plus", 1))
    config = json.loads(Path("run/config.json").read_text())
    forget(config)
    Path("run/config.json").write_text(json.dumps(config))
    for go_on in (lambda: resume("run"), lambda: clean("mine.npz", out="run", rho_max=0.2, epochs=3, resume=True)):
        with pytest.raises(RunError, match=told):
            go_on()


def test_what_is_no_run_cannot_be_resumed():
    with pytest.raises(RunError, match="is not a run folder"):
        resume("nowhere")


def test_the_request_is_plain_json(file, monkeypatch):
    monkeypatch.setattr("stepe.report.html.write_report", lambda run: run.path)
    clean(file, out="run", rho_max=0.2, epochs=2)
    assert json.loads(Path("run/config.json").read_text())["request"]["methods"] == ["step-e-plus"]


def test_balanced_training_finds_more_of_a_rare_class(tmp_path):
    draw = np.random.default_rng(0)
    labels = np.repeat(["common", "rare"], [380, 20])
    features = draw.normal(size=(400, 4)) + 1.2 * (labels == "rare")[:, None]
    found = {}
    for balanced in (False, True):
        run = stepe.clean((features, labels), rho_max=0.05, balanced=balanced, epochs=10, out=tmp_path / f"{balanced}")
        found[balanced] = (run.samples["suggested_label"] == "rare").sum()
        assert run.request.balanced == balanced
    assert found[True] > 2 * found[False]


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"probe": "auto"}, {}),
        ({"probe": "in-sample"}, {"average": 0, "refine": 0, "mixup": 0}),
        (
            {"probe": "auto", "augments": True},
            {"average": 0.85, "refine": 0.5, "cutmix": 0.5, "prior": "none", "score": "guess"},
        ),
        (
            {"probe": "in-sample", "augments": True, "uniform_classes": True},
            {"average": 0.85, "refine": 0.5, "cutmix": 0.5, "prior": "uniform", "score": "guess"},
        ),
    ],
    ids=["rows", "rows judged by the model itself", "pictures", "CIFAR"],
)
def test_step_e_plus_has_the_parts_that_serve_the_data(file, changed, expected):
    clean(file, rho_max=0.2, epochs=2, out="run")
    request = Run("run").request
    found = method_options(replace(request, **changed), "step-e-plus")
    assert {name: value for name, value in found.items() if name not in ("rho_max", "warmup", "min_keep")} == expected
