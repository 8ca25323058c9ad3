import json
from dataclasses import asdict

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.optim import SGD, Adam
from torch.optim.lr_scheduler import ReduceLROnPlateau, StepLR
from torch.utils.data import TensorDataset

import stepe
from stepe import InputError
from stepe.engine.learning_rate import ProgressRate, TorchRate, constant, cosine
from stepe.loop.randomness import Stream
from stepe.samples.samples import DatasetSamples, TensorSamples
from stepe.training.building import (
    check_amp,
    check_batch_size,
    check_groups,
    cross_entropy,
    determinism,
    find_device,
    held_out_samples,
    make_optimizer,
    make_rate,
    place,
)

CPU = torch.device("cpu")


@pytest.mark.parametrize("name", ["cpu", torch.device("cpu")])
def test_a_device_is_found_by_name_or_as_it_is(name):
    assert find_device(name) == CPU


def test_auto_finds_a_device_that_works():
    assert torch.zeros(1, device=find_device("auto")).sum() == 0


@pytest.mark.parametrize("name", ["nonsense", "cuda:99", "cpu:x", "hip:0"])
def test_a_device_that_is_not_there_is_refused_by_name(name):
    with pytest.raises(InputError, match=rf"device '{name}' is not there.*cpu always is"):
        find_device(name)


def test_tensors_are_placed_once_and_data_sets_left_alone():
    samples = TensorSamples(torch.zeros(3), augment=lambda x, index, stream: x)
    placed = place(samples, torch.device("meta"))
    assert placed.x.device.type == "meta"
    assert placed.augment is samples.augment
    data = DatasetSamples([1, 2, 3])
    assert place(data, torch.device("meta")) is data


@pytest.mark.parametrize(
    "test",
    [
        (torch.zeros(3, 2), [1, 0, 1]),
        TensorDataset(torch.zeros(3, 2), torch.tensor([1, 0, 1])),
        [(torch.zeros(2), 1), (torch.zeros(2), 0), (torch.zeros(2), 1)],
        ([torch.zeros(2)] * 3, torch.tensor([1, 0, 1])),
    ],
)
def test_test_data_comes_in_every_form_training_data_does(test):
    samples, labels = held_out_samples(test, CPU)
    (x,) = samples.fetch([torch.arange(3)], Stream(0), "augmented")
    assert x.shape == (3, 2)
    assert labels.tolist() == [1, 0, 1]


def test_test_data_may_hold_a_single_class_and_be_absent():
    assert held_out_samples((torch.zeros(2, 2), [1, 1]), CPU) is not None
    assert held_out_samples(None, CPU) is None


@pytest.mark.parametrize(
    ("test", "message"),
    [
        ((torch.zeros(3, 2), [0, 1]), "in the test data, there are 2 labels for 3 samples"),
        ((torch.zeros(2, 2), [0.5, 1.0]), "in the test data, labels are torch.float64"),
        ((torch.zeros(2, 2), ["a", "b"]), "in the test data, labels must be integers"),
        ((torch.zeros(2, 2), [-1, 0]), "in the test data, label -1"),
        (torch.zeros(2, 2), "pass labels="),
        ((torch.zeros(0, 2), []), "test data is empty"),
    ],
)
def test_test_data_that_cannot_be_used_is_refused_as_such(test, message):
    with pytest.raises(InputError, match=message):
        held_out_samples(test, CPU)


def test_the_default_criterion_is_cross_entropy_per_sample():
    logits, labels = torch.randn(5, 4, generator=torch.Generator().manual_seed(0)), torch.tensor([0, 1, 2, 3, 0])
    expected = torch.stack([-row.softmax(0)[label].log() for row, label in zip(logits, labels, strict=True)])
    torch.testing.assert_close(cross_entropy(4)(logits, labels), expected)
    torch.testing.assert_close(cross_entropy(4)(logits, F.one_hot(labels, 4).float()), expected)


@pytest.mark.parametrize("shape", [(5, 3), (5,), (5, 4, 2)])
def test_outputs_that_are_not_one_logit_per_class_are_refused(shape):
    with pytest.raises(InputError, match=r"shape \(5.*4 classes.*criterion="):
        cross_entropy(4)(torch.zeros(shape), torch.tensor([0, 1, 2, 3, 0]))


def test_groups_may_be_any_integers():
    assert check_groups([-1, 5, 5], 3).tolist() == [-1, 5, 5]
    assert check_groups(torch.tensor([True, False]), 2).tolist() == [1, 0]


@pytest.mark.parametrize("groups", [[0, 1], [[0], [1], [2]], [0.0, 1.0, 2.0], ["a", "b", "c"], [None, 1, 2]])
def test_groups_that_are_not_one_integer_a_sample_are_refused(groups):
    with pytest.raises(InputError, match="groups"):
        check_groups(groups, 3)


def test_a_batch_is_never_larger_than_the_data():
    assert check_batch_size(128, 50) == 50
    assert check_batch_size(16, 50) == 16


@pytest.mark.parametrize("size", [0, -4, 2.5, "16", None])
def test_a_batch_size_that_is_none_is_refused(size):
    with pytest.raises(InputError, match=r"batch size is .*at least 1"):
        check_batch_size(size, 50)


def test_the_default_optimizer_is_the_papers():
    made = make_optimizer(None, nn.Linear(2, 2), None, 5e-4)
    assert isinstance(made, SGD)
    expected = {"lr": 0.1, "momentum": 0.9, "weight_decay": 5e-4, "nesterov": True}
    assert expected.items() <= made.param_groups[0].items()
    assert make_optimizer(None, nn.Linear(2, 2), 0.02, 0.0).param_groups[0]["lr"] == 0.02


def test_optimizers_come_ready_made_or_as_a_function():
    model = nn.Linear(2, 2)
    ready = Adam([model.weight])  # a part of the model is enough
    assert make_optimizer(ready, model, None, 0.0) is ready
    assert isinstance(make_optimizer(Adam, model, None, 0.0), Adam)


def test_optimizers_that_would_not_train_the_model_are_refused():
    model, other = nn.Linear(2, 2), nn.Linear(2, 2)
    with pytest.raises(InputError, match="no parameter of this model"):
        make_optimizer(SGD(other.parameters(), lr=0.1), model, None, 0.0)
    with pytest.raises(InputError, match="own optimizer"):
        make_optimizer(Adam, model, 0.1, 0.0)
    with pytest.raises(InputError, match="gave a str"):
        make_optimizer("adam", model, None, 0.0)
    with pytest.raises(InputError, match="gave a list"):
        make_optimizer(list, model, None, 0.0)


def test_rates_come_as_a_shape_a_scheduler_or_a_function():
    optimizer = SGD(nn.Linear(2, 2).parameters(), lr=0.1)
    scheduler = StepLR(optimizer, 1)
    assert isinstance(make_rate(cosine, None, "epoch", optimizer, epochs=3, full_steps=4), ProgressRate)
    ready = make_rate(cosine, scheduler, "step", optimizer, epochs=3, full_steps=4)
    made = make_rate(constant, lambda found: StepLR(found, 1), "epoch", optimizer, epochs=3, full_steps=4)
    assert isinstance(ready, TorchRate)
    assert isinstance(made, TorchRate)
    assert ready.scheduler is scheduler
    assert (ready.total, made.total) == (12, 3)


def test_schedulers_that_would_drive_nothing_are_refused():
    optimizer, other = (SGD(nn.Linear(2, 2).parameters(), lr=0.1) for _ in range(2))

    def make(scheduler, interval="epoch"):
        return make_rate(cosine, scheduler, interval, optimizer, epochs=3, full_steps=4)

    with pytest.raises(InputError, match="another optimizer"):
        make(StepLR(other, 1))
    with pytest.raises(InputError, match="ReduceLROnPlateau"):
        make(ReduceLROnPlateau)
    with pytest.raises(InputError, match="gave a str"):
        make("cosine")
    with pytest.raises(InputError, match="scheduler_interval is 'batch'"):
        make(None, "batch")


def test_unknown_precisions_are_refused():
    for known in (None, "bf16", "fp16"):
        check_amp(known)
    with pytest.raises(InputError, match=r"amp is 'fp8'.*bf16, fp16"):
        check_amp("fp8")


@pytest.fixture
def _torch_settings():
    """Whatever a test sets, the next one starts from torch's own settings."""
    yield
    torch.use_deterministic_algorithms(False)
    torch.backends.cudnn.benchmark = False


def settings() -> tuple[bool, bool, bool]:
    return (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
        torch.backends.cudnn.benchmark,
    )


@pytest.mark.usefixtures("_torch_settings")
@pytest.mark.parametrize("wanted", [True, False])
@pytest.mark.parametrize("enabled", [(False, False), (True, False), (True, True)])
def test_determinism_is_switched_on_and_put_back(wanted, enabled):
    torch.use_deterministic_algorithms(enabled[0], warn_only=enabled[1])
    torch.backends.cudnn.benchmark = True
    before = settings()

    def fail() -> None:
        with determinism(wanted):
            if wanted:
                assert torch.are_deterministic_algorithms_enabled()
                assert not torch.backends.cudnn.benchmark
                # A user who asked for errors still gets errors.
                assert torch.is_deterministic_algorithms_warn_only_enabled() == (enabled != (True, False))
            else:
                assert settings() == before
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert settings() == before


@pytest.fixture
def config(blobs, make_model):
    def make(labels=blobs.given, model=None, **options):
        options = {"method": "step-e", "rho_max": 0.2, "epochs": 2, "batch_size": 32, "device": "cpu"} | options
        return stepe.fit(model or make_model(), blobs.x, labels, **options).training.config

    return make


def halfway(progress: float) -> float:
    return min(1.0, 2 * progress)


def test_the_config_of_a_run_is_plain_json_and_repeatable(config):
    first = config(schedule=halfway, method="step-e")
    assert json.loads(json.dumps(asdict(first))) == asdict(first)
    assert first == config(schedule=halfway, method="step-e")
    assert "0x" not in json.dumps(asdict(first))


@pytest.mark.parametrize(
    "change",
    [
        {"rho_max": 0.3},
        {"memory": 0.5},
        {"epochs": 3},
        {"seed": 1},
        {"batch_size": 16},
        {"noise_rate": 0.1},
        {"optimizer": Adam},
        {"learning_rate": 0.2},
        {"amp": "bf16"},
        {"deterministic": True},
        {"labels": torch.arange(97) % 3},
        {"model": nn.Linear(6, 3)},
    ],
    ids=lambda change: next(iter(change)),
)
def test_the_config_tells_runs_apart_that_cannot_continue_each_other(config, change):
    assert config(**change) != config()


def test_the_summary_reports_the_last_epoch_and_names_the_best(blobs, make_model):
    result = stepe.fit(
        make_model(),
        blobs.x,
        blobs.given,
        rho_max=0.3,
        epochs=6,
        batch_size=16,
        device="cpu",
        truth=blobs.truth,
        test=(blobs.x, blobs.clean),
    )
    summary, history, dropped = result.summary, result.history, result.ledger["dropped"]
    accuracies = [row["test_accuracy"] for row in history]
    assert summary.test_accuracy == accuracies[-1]
    assert summary.best_test_accuracy == max(accuracies)
    flagged = dropped & (result.ledger["margin"] < 0)
    assert summary.flagged == int(flagged.sum()) <= summary.dropped == int(dropped.sum())
    noise = summary.noise
    assert noise.noisy == int((blobs.given != blobs.clean).sum())
    assert noise.dropped.precision == pytest.approx(float((blobs.given != blobs.clean)[dropped].double().mean()))
    assert asdict(noise.dropped) == {key: history[-1][key] for key in ("precision", "recall", "f1")}
    assert summary.seconds == pytest.approx(sum(row["seconds"] for row in history))


def test_without_truth_or_test_data_nothing_is_said_of_them(blobs, make_model):
    result = stepe.fit(make_model(), blobs.x, blobs.given, rho_max=0.3, epochs=2, device="cpu")
    assert not {"test_accuracy", "noise"} & result.summary.to_json().keys()
    assert not {"test_accuracy", "auroc", "f1"} & result.history[-1].keys()
    assert result.held_out is None
