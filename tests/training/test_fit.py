import dataclasses
import inspect
import math
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import SGD, Adagrad, Adam, AdamW, RMSprop
from torch.optim.lr_scheduler import CosineAnnealingLR, OneCycleLR, StepLR
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

import stepe
from stepe import InputError, RunError
from stepe.engine.learning_rate import constant, cosine
from stepe.loop.ledger import Ledger
from stepe.loop.plan import Plan
from stepe.loop.randomness import Stream
from stepe.methods import METHODS, Method, SelfPaced, StepEPlus, StepwiseElimination, Truncation
from stepe.samples.samples import DatasetSamples, TensorSamples
from stepe.training.building import Result, Training
from stepe.training.fit import begin
from stepe.training.session import Row


def fit(model: nn.Module, data: Any, labels: Any = None, **options: Any) -> Result:
    options = {"rho_max": 0.3, "epochs": 4, "batch_size": 16, "device": "cpu"} | options
    if isinstance(options.get("method"), Method) or options.get("method") in ("plain", "oracle", "self-paced"):
        options.pop("rho_max")
    return stepe.fit(model, data, labels, **options)


class Watcher:
    """An observer that keeps what it hears."""

    def __init__(self) -> None:
        self.heard: list[str] = []
        self.dropped: list[Tensor] = []

    def run_started(self, training: Training) -> None:
        self.heard.append(f"started at {training.epoch}")

    def epoch_ended(self, training: Training, row: Row) -> None:
        self.heard.append(f"epoch {row['epoch']}")
        self.dropped.append(training.ledger["dropped"].clone())

    def run_ended(self, result: Result) -> None:
        self.heard.append("ended")


# The algorithm


def test_step_e_is_the_papers_algorithm_written_out(blobs, make_model):
    """Sections 3.3 and 3.4 by hand: warm up; then probe all, drop the highest, train on the rest."""
    epochs, warmup, rho_max, n = 6, 2, 0.4, 97
    watcher = Watcher()
    result = fit(
        make_model(), blobs.x, blobs.given, epochs=epochs, warmup=warmup, rho_max=rho_max, schedule="linear",
        seed=11, weight_decay=0.0, observers=(watcher,),
    )  # fmt: skip

    model = make_model()
    optimizer = SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True)
    for epoch in range(epochs):
        kept = torch.ones(n, dtype=torch.bool)
        if epoch >= warmup:
            model.eval()
            with torch.no_grad():
                losses = F.cross_entropy(model(blobs.x), blobs.given, reduction="none")
            drop = math.floor(rho_max * (epoch - warmup) / (epochs - warmup) * n + 1e-9)
            kept[losses.argsort(descending=True)[:drop]] = False
        assert torch.equal(watcher.dropped[epoch], ~kept)
        model.train()
        plan = Plan(epoch, epochs, kept, seed=11)
        for share in plan.batches(16):
            torch.manual_seed(Stream.named(11, "model", epoch, share.step).seed)
            optimizer.param_groups[0]["lr"] = 0.1 * cosine(share.progress)
            optimizer.zero_grad()
            F.cross_entropy(model(blobs.x[share.index]), blobs.given[share.index]).backward()
            optimizer.step()
    torch.testing.assert_close(result.model.state_dict(), model.state_dict(), rtol=1e-4, atol=1e-5)
    assert int(watcher.dropped[-1].sum()) == math.floor(0.3 * n)


def test_what_is_dropped_is_mostly_what_is_wrong(blobs, make_model):
    result = fit(make_model(), blobs.x, blobs.given, epochs=10, truth=blobs.truth, test=(blobs.x, blobs.clean))
    assert result.summary.noise.dropped.recall > 0.9
    assert result.summary.noise.auroc > 0.95
    assert result.summary.test_accuracy > 0.95


def test_the_last_word_on_every_sample_comes_from_the_finished_model(blobs, make_model):
    result = fit(make_model(), blobs.x, blobs.given, method="plain")
    losses = F.cross_entropy(result.model.eval()(blobs.x), blobs.given, reduction="none").detach()
    torch.testing.assert_close(result.ledger["loss"], losses)
    assert result.ledger["times_probed"].eq(1).all()


def test_observers_follow_the_run(blobs, make_model):
    watcher = Watcher()
    fit(make_model(), blobs.x, blobs.given, epochs=2, observers=(watcher,))
    assert watcher.heard == ["started at 0", "epoch 0", "epoch 1", "ended"]


# What can be handed over


class Unstored(Dataset[tuple[Tensor, int]]):
    def __init__(self, x: Tensor, y: Tensor):
        self.items = list(zip(x, y.tolist(), strict=True))

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return self.items[index]


def test_data_comes_in_many_forms_and_trains_alike(blobs, make_model, bits):
    forms = [
        (blobs.x, blobs.given),
        (blobs.x, blobs.given.tolist()),
        (blobs.x, blobs.given.numpy()),
        ((blobs.x, blobs.given), None),
        (TensorDataset(blobs.x, blobs.given), None),
        (TensorDataset(blobs.x), blobs.given),
        (Unstored(blobs.x, blobs.given), None),
        (list(blobs.x), blobs.given),
        (blobs.x.numpy(), blobs.given),
        (TensorSamples(blobs.x), blobs.given),
        (DatasetSamples(Unstored(blobs.x, blobs.given)), blobs.given),
    ]
    assert len({bits(fit(make_model(), data, labels).model) for data, labels in forms}) == 1


def test_labels_handed_over_win_over_the_data_sets_own(blobs, make_model, bits):
    others = (blobs.given + 1) % 3
    expected = bits(fit(make_model(), blobs.x, others).model)
    assert bits(fit(make_model(), TensorDataset(blobs.x, blobs.given), others).model) == expected
    assert bits(fit(make_model(), (blobs.x, blobs.given), others).model) == expected
    assert bits(fit(make_model(), Unstored(blobs.x, blobs.given), others).model) == expected


def test_dictionaries_of_inputs_reach_the_model_through_forward(blobs, make_model, bits):
    items = [({"left": x[:2], "right": x[2:]}, y) for x, y in zip(blobs.x, blobs.given.tolist(), strict=True)]

    def forward(model: nn.Module, inputs: dict[str, Tensor]) -> Tensor:
        return model(torch.cat([inputs["left"], inputs["right"]], 1))

    result = fit(make_model(), items, forward=forward, test=items)
    assert bits(result.model) == bits(fit(make_model(), blobs.x, blobs.given).model)


def test_a_criterion_of_ones_own_both_trains_and_ranks(blobs, make_model):
    def squared(outputs: Tensor, targets: Tensor) -> Tensor:
        return (outputs.softmax(1) - F.one_hot(targets, 3)).square().sum(1)

    result = fit(make_model(), blobs.x, blobs.given, criterion=squared, epochs=8, test=(blobs.x, blobs.clean))
    expected = squared(result.model.eval()(blobs.x), blobs.given).detach()
    torch.testing.assert_close(result.ledger["loss"], expected)
    assert result.summary.test_accuracy > 0.9


def test_a_binary_criterion_with_one_output_works(blobs):
    def binary(outputs: Tensor, targets: Tensor) -> Tensor:
        return F.binary_cross_entropy_with_logits(outputs.squeeze(1), targets.float(), reduction="none")

    result = fit(nn.Linear(6, 1), blobs.x, (blobs.given > 0).long(), criterion=binary)
    assert torch.isfinite(result.ledger["loss"]).all()
    assert result.ledger["prediction"].eq(-1).all()
    assert result.summary.flagged == result.summary.dropped > 0  # nothing to disagree with: the drop decides


def test_augmentation_draws_by_sample_and_epoch(blobs, make_model):
    seen: dict[int, list[float]] = {}

    def augment(x: Tensor, index: Tensor, stream: Stream) -> Tensor:
        shift = stream.normal(index)
        for i, value in zip(index.tolist(), shift.tolist(), strict=True):
            seen.setdefault(i, []).append(value)
        return x + shift[:, None]

    fit(make_model(), blobs.x, blobs.given, method="plain", epochs=3, augment=augment)
    first = {i: list(values) for i, values in seen.items()}
    assert all(len(set(values)) == 4 for values in seen.values())  # three epochs and the last probe
    seen.clear()
    fit(make_model(), blobs.x, blobs.given, method="plain", epochs=3, augment=augment, batch_size=40)
    assert seen == first


def test_groups_set_the_floor_of_min_keep(blobs, make_model):
    hard = (blobs.given != blobs.clean).long()  # the wrongly labelled as a group that may not be dropped
    options = {"rho_max": 0.5, "schedule": "early", "min_keep": 0.9}
    result = fit(make_model(), blobs.x, blobs.given, groups=hard, epochs=6, **options)
    size, kept = int(hard.sum()), int((hard.bool() & ~result.ledger["dropped"]).sum())
    assert kept >= math.ceil(0.9 * size)
    assert result.history[-1]["shortfall"] > 0
    by_class = fit(make_model(), blobs.x, blobs.given, epochs=6, **options)
    assert int((hard.bool() & ~by_class.ledger["dropped"]).sum()) != kept


def test_a_known_noise_rate_stands_in_for_rho_max(blobs, make_model, bits):
    by_rate = fit(make_model(), blobs.x, blobs.given, rho_max=None, noise_rate=0.25)
    assert by_rate.history[-1]["drop_fraction"] == pytest.approx(0.3)
    assert bits(by_rate.model) == bits(fit(make_model(), blobs.x, blobs.given, rho_max=0.25 + 0.05).model)


# Optimizers and rates


@pytest.mark.parametrize("kind", [SGD, Adam, AdamW, RMSprop, Adagrad])
@pytest.mark.parametrize("as_function", [True, False])
def test_any_optimizer_trains(kind, as_function, blobs, make_model):
    model = make_model()
    optimizer = (lambda p: kind(p, lr=0.01)) if as_function else kind(model.parameters(), lr=0.01)
    result = fit(model, blobs.x, blobs.given, optimizer=optimizer, epochs=6)
    assert type(result.training.engine.optimizer) is kind
    assert result.history[-1]["train_loss"] < result.history[0]["train_loss"]


def test_parameter_groups_keep_their_ratio(blobs, make_model):
    model = make_model()
    groups = [{"params": model[0].parameters(), "lr": 0.01}, {"params": model[4].parameters(), "lr": 0.1}]
    optimizer = SGD(groups)
    fit(model, blobs.x, blobs.given, optimizer=optimizer)
    low, high = (group["lr"] for group in optimizer.param_groups)
    assert 0 < low < 0.01
    assert high == pytest.approx(10 * low)


class Steps:
    """Counts an optimizer's steps and notes the rate of each."""

    def __init__(self, optimizer: SGD):
        self.rates: list[float] = []
        optimizer.register_step_pre_hook(lambda *_: self.rates.append(optimizer.param_groups[0]["lr"]))


def test_the_rate_follows_progress_although_epochs_get_shorter(blobs, make_model):
    model = make_model()
    optimizer = SGD(model.parameters(), lr=0.2)
    steps = Steps(optimizer)
    result = fit(model, blobs.x, blobs.given, optimizer=optimizer, epochs=6, warmup=1, rho_max=0.7, ramp_end=2)
    lengths = [6, 6, 2, 2, 2, 2]  # 97 samples in batches of 16, then 30
    expected = [
        0.2 * cosine((epoch + step / length) / 6) for epoch, length in enumerate(lengths) for step in range(length)
    ]
    assert steps.rates == pytest.approx(expected)
    last_of_epoch = np.cumsum(lengths) - 1
    assert [row["learning_rate"] for row in result.history] == [steps.rates[i] for i in last_of_epoch]


def test_a_rate_shape_of_ones_own_is_followed(blobs, make_model):
    model = make_model()
    optimizer = SGD(model.parameters(), lr=0.2)
    steps = Steps(optimizer)
    fit(model, blobs.x, blobs.given, optimizer=optimizer, method="plain", epochs=2, rate_shape=lambda p: 1 - p)
    assert steps.rates == pytest.approx([0.2 * (1 - i / 12) for i in range(12)])


def test_an_epoch_scheduler_steps_once_an_epoch(blobs, make_model):
    model = make_model()
    optimizer = SGD(model.parameters(), lr=0.1)
    result = fit(model, blobs.x, blobs.given, optimizer=optimizer, scheduler=StepLR(optimizer, 1, gamma=0.5), epochs=4)
    assert [row["learning_rate"] for row in result.history] == pytest.approx([0.1, 0.05, 0.025, 0.0125])


def test_one_cycle_built_for_the_full_length_anneals_though_half_is_dropped(blobs, make_model):
    model, epochs, full = make_model(), 10, 6
    optimizer = SGD(model.parameters(), lr=0.1, momentum=0.9)
    scheduler = OneCycleLR(optimizer, max_lr=0.1, total_steps=epochs * full)
    steps = Steps(optimizer)
    result = fit(
        model, blobs.x, blobs.given, optimizer=optimizer, scheduler=scheduler, scheduler_interval="step",
        epochs=epochs, rho_max=0.5, ramp_end=3,
    )  # fmt: skip
    assert result.history[-1]["kept"] == 49
    assert len(steps.rates) < 0.7 * epochs * full
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.1 / 25 / 1e4)
    assert max(steps.rates) == pytest.approx(0.1, rel=0.05)
    top = steps.rates.index(max(steps.rates))
    assert all(a >= b for a, b in pairwise(steps.rates[top:]))
    assert steps.rates[-1] < 0.002


def test_a_scheduler_may_be_a_function_of_the_optimizer(blobs, make_model):
    result = fit(
        make_model(), blobs.x, blobs.given, scheduler=lambda optimizer: CosineAnnealingLR(optimizer, 4), epochs=4
    )
    assert [row["learning_rate"] for row in result.history] == pytest.approx([0.1 * cosine(i / 4) for i in range(4)])


def test_rates_held_in_tensors_end_up_as_numbers_in_the_history(blobs, make_model):
    result = fit(make_model(), blobs.x, blobs.given, optimizer=lambda p: Adam(p, lr=torch.tensor(0.01)), epochs=2)
    assert all(type(row["learning_rate"]) is float for row in result.history)


# Precision and sizes


@pytest.mark.parametrize("amp", ["bf16", "fp16"])
def test_reduced_precision_works_on_a_cpu(amp, blobs, make_model):
    result = fit(make_model(), blobs.x, blobs.given, amp=amp, epochs=6, test=(blobs.x, blobs.clean))
    assert result.summary.test_accuracy > 0.9


def test_a_batch_larger_than_the_data_is_the_data(blobs, make_model, bits):
    large = fit(make_model(), blobs.x, blobs.given, batch_size=5000, rate_shape=constant)
    exact = fit(make_model(), blobs.x, blobs.given, batch_size=97, rate_shape=constant)
    assert bits(large.model) == bits(exact.model)
    assert large.training.config.batch_size == 97


@pytest.mark.parametrize(("n", "batch_size"), [(97, 16), (65, 64), (34, 3), (5, 4)])
def test_one_sample_left_over_is_no_trouble_for_batch_norm(n, batch_size, blobs, make_model):
    result = fit(make_model(), blobs.x[:n], blobs.clean[:n], batch_size=batch_size, method="plain")
    assert n % batch_size == 1
    assert len(result.history) == 4


def test_the_probe_batch_size_changes_no_decision(blobs, make_model):
    results = [fit(make_model(), blobs.x, blobs.given, probe_batch_size=size) for size in (1, 30, 5000)]
    for result in results[1:]:
        assert torch.equal(result.ledger["dropped"], results[0].ledger["dropped"])
        torch.testing.assert_close(result.ledger["loss"], results[0].ledger["loss"])


def test_samples_whose_loss_is_not_finite_are_dropped_first_and_counted(blobs, make_model):
    x = blobs.x.clone()
    x[[4, 50]] = float("nan")

    def forward(model: nn.Module, inputs: Tensor) -> Tensor:
        outputs = model(torch.nan_to_num(inputs))
        # The model survives them in training; the probe sees what they are.
        return outputs if model.training else outputs + 0 * inputs.sum(1, keepdim=True)

    result = fit(make_model(), x, blobs.given, forward=forward, rho_max=0.0, warmup=1)
    assert [row["nonfinite"] for row in result.history] == [0, 2, 2, 2]
    assert torch.nonzero(result.ledger["dropped"]).flatten().tolist() == [4, 50]


def test_deterministic_runs_leave_torch_as_it_was(blobs, make_model):
    before = torch.are_deterministic_algorithms_enabled()
    fit(make_model(), blobs.x, blobs.given, deterministic=True, epochs=2)
    assert torch.are_deterministic_algorithms_enabled() == before


# What is refused


class Endless(IterableDataset):
    def __iter__(self) -> Iterator[Tensor]:
        yield from ()


X = torch.zeros(12, 6)
Y = torch.arange(12) % 3


@pytest.mark.parametrize(
    ("data", "labels", "message"),
    [
        (X, None, r"sample 0 .* is a Tensor.*pass labels="),
        (X, Y.float(), r"labels are torch\.float32"),
        (X, Y - 1, "label -1 of sample 0 is negative"),
        (X, ["cat", "dog", "cow"] * 4, r"map names to numbers.*numpy\.unique"),
        (X, Y[:5], "5 labels for 12 samples"),
        (X, Y[:, None], r"labels have shape \(12, 1\)"),
        (X, torch.ones(12, dtype=torch.int64), "all 12 labels are 1; at least two classes"),
        (X[:0], Y[:0], "the data set is empty"),
        ([], None, "the data set is empty"),
        (TensorDataset(X[:0], Y[:0]), None, "the data set is empty"),
        (Endless(), Y, r"Endless cannot be read by index.*map-style"),
        (DataLoader(TensorDataset(X, Y)), None, r"got a DataLoader.*loader\.dataset"),
        (None, Y, "NoneType cannot be read by index"),
    ],
)
def test_data_that_cannot_be_used_is_refused_with_value_and_fix(data, labels, message, make_model):
    with pytest.raises(InputError, match=message):
        fit(make_model(), data, labels)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "step-f"}, r"unknown method 'step-f'.*step-e, step-e-plus, plain"),
        ({"rho": 0.2}, "fit has no option 'rho'; did you mean rho_max"),
        ({"min_kep": 0.1}, "fit has no option 'min_kep'; did you mean min_keep"),
        (
            {"mixup": 0},
            r"fit has no option 'mixup'.* of method 'step-e-plus': give .*StepEPlus\(mixup=\.\.\.\)",
        ),
        ({"method": "plain", "warmup": 2}, "'plain' has no option 'warmup'; it takes: none"),
        ({"rho_max": 1.0}, r"rho_max is 1\.0.*\[0, 1\)"),
        ({"rho_max": -0.1}, r"rho_max is -0\.1"),
        ({"rho_max": float("nan")}, "rho_max is nan"),
        ({"rho_max": "0.2"}, "rho_max is '0.2'"),
        ({"rho_max": None, "method": "truncation"}, r"rho_max is missing.*rho_max=0\.2.*noise_rate"),
        ({"rho_max": "auto", "epochs": 1}, "found out in the warm-up, and there is none: train for 2 epochs or more"),
        ({"rho_max": "auto", "warmup": 0}, "found out in the warm-up, and there is none"),
        ({"warmup": "soon"}, "warmup is 'soon'.*a whole number.*'auto'"),
        ({"score": "rank"}, "score is 'rank'; choose one of auto, loss, guess, posterior"),
        ({"trusted": [True]}, r"trusted has shape \(1,\)"),
        ({"trusted": [1] * 12}, "trusted has .*int64; give one bool a sample"),
        ({"probe": "outside"}, "probe is 'outside'; choose in-sample, cross:5, cross:2x2"),
        ({"probe": "cross:1"}, "probe is 'cross:1'; write cross:5"),
        ({"probe": "cross:2x0"}, "probe is 'cross:2x0'"),
        ({"probe": "cross:13"}, "12 samples cannot be split into 13 folds"),
        ({"rho_max": None, "noise_rate": 1.5}, r"noise_rate is 1\.5; it must be a share in \[0, 1\]"),
        ({"warmup": 4}, r"warm-up is 4 of 4 epochs.*below 4"),
        ({"warmup": -1}, "warmup is -1; it must be a whole number, at least 0"),
        ({"epochs": 0}, "epochs is 0"),
        ({"epochs": 2.5}, r"epochs is 2\.5"),
        ({"batch_size": 0}, "batch size is 0"),
        ({"probe_batch_size": 0}, "batch size is 0"),
        ({"schedule": "wavy"}, r"unknown schedule 'wavy'.*linear"),
        ({"memory": 1.0}, r"memory is 1\.0"),
        ({"softness": -1}, "softness is -1"),
        ({"min_keep": 2}, "min_keep is 2"),
        ({"view": "sideways"}, "view is 'sideways'"),
        ({"method": Truncation(rho_max=0.3, threshold="late")}, "threshold is 'late'"),
        ({"method": Truncation(rho_max=0.3, threshold="first-epoch"), "epochs": 1}, "needs 2 epochs or more"),
        ({"method": SelfPaced(keep_start=0)}, "keep_start is 0"),
        ({"amp": "int4"}, "amp is 'int4'"),
        ({"device": "cuda:9"}, r"device 'cuda:9' is not there.*'auto'"),
        ({"device": "nonsense"}, "device 'nonsense' is not there"),
        ({"groups": [1, 2]}, r"groups have shape \(2,\)"),
        ({"truth": stepe.Truth(torch.zeros(3, dtype=torch.bool))}, "the truth covers 3 samples, the data 12"),
        ({"test": (X, Y[:3])}, "in the test data, there are 3 labels for 12 samples"),
        ({"learning_rate": 0.1, "optimizer": Adam}, "own optimizer"),
        ({"scheduler": lambda optimizer: "cosine"}, "scheduler gave a str"),
    ],
    ids=lambda value: str(list(value)) if isinstance(value, dict) else "",
)
def test_options_that_cannot_be_used_are_refused_with_value_and_fix(options, message, make_model):
    with pytest.raises(InputError, match=message):
        fit(make_model(), X, Y, **options)


def test_the_signature_names_what_a_run_and_step_e_take_with_the_same_defaults():
    told, taken = inspect.signature(stepe.fit).parameters, inspect.signature(begin).parameters
    step_e = {option.name: option.default for option in dataclasses.fields(StepwiseElimination)}
    assert set(told) == set(taken) | set(step_e)
    assert {name: told[name].default for name in step_e} == step_e
    assert all(told[name].default == taken[name].default for name in taken if name != "method")
    assert not any(parameter.kind is parameter.VAR_KEYWORD for parameter in told.values())


def test_options_belong_into_a_method_one_makes_oneself(blobs, make_model):
    told = r"rho_max beside a 'step-e-plus' method that is ready; make it with them: StepEPlus\(rho_max=\.\.\.\)"
    with pytest.raises(InputError, match=told):
        stepe.fit(make_model(), blobs.x, blobs.given, method=StepEPlus(), rho_max=0.2, device="cpu")


def test_the_plain_view_of_a_data_set_is_asked_for_before_training(blobs, make_model):
    model = make_model()
    before = model[0].weight.clone()
    with pytest.raises(InputError, match="plain_view="):
        fit(model, Unstored(blobs.x, blobs.given), view="plain")
    assert torch.equal(model[0].weight, before)


def test_augment_is_for_tensors(blobs, make_model):
    with pytest.raises(InputError, match="augment= works on tensors"):
        fit(make_model(), Unstored(blobs.x, blobs.given), augment=lambda x, index, stream: x)


@pytest.mark.parametrize("method", ["plain", "step-e", "self-paced", "truncation"])
@pytest.mark.parametrize("criterion", [nn.CrossEntropyLoss(), lambda outputs, y: outputs[:, :1]])
def test_a_criterion_without_one_loss_per_sample_is_refused(method, criterion, blobs, make_model):
    with pytest.raises(InputError, match=r'one loss per sample.*reduction="none"'):
        fit(make_model(), blobs.x, blobs.given, method=method, criterion=criterion)


class Named(nn.Linear):
    def forward(self, x: Tensor) -> dict[str, Tensor]:
        return {"logits": super().forward(x)}


def test_a_model_that_returns_no_tensor_is_refused_or_told_where_the_logits_are(blobs):
    with pytest.raises(InputError, match="the model returned a dict, not a tensor of logits; give forward="):
        fit(Named(6, 3), blobs.x, blobs.given)
    result = fit(Named(6, 3), blobs.x, blobs.given, forward=lambda model, x: model(x)["logits"])
    assert result.ledger["dropped"].any()


def test_a_model_with_too_few_outputs_is_refused(blobs):
    with pytest.raises(InputError, match=r"shape \(16, 2\) and the labels 3 classes"):
        fit(nn.Linear(6, 2), blobs.x, blobs.given)


def test_test_accuracy_needs_logits(blobs):
    def first(outputs: Tensor, targets: Tensor) -> Tensor:
        return (outputs[:, 0] - targets).square()

    with pytest.raises(InputError, match="test accuracy needs logits"):
        fit(nn.Linear(6, 1), blobs.x, blobs.given, criterion=first, test=(blobs.x, blobs.clean))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "plain"}, "the training loss became nan in epoch 0"),
        ({"warmup": 0}, "every loss is NaN or infinite before epoch 0"),
    ],
)
def test_a_run_in_which_every_loss_is_nan_stops_and_says_what_to_do(options, message, blobs, make_model):
    with pytest.raises(RunError, match=f"{message}; lower the learning rate"):
        fit(make_model(), blobs.x * float("nan"), blobs.given, **options)


def test_a_method_that_drops_everything_stops_with_the_cause(blobs, make_model):
    class Nothing(METHODS["plain"]):
        def plan(self, epoch: int, ledger: Ledger) -> Plan:
            return Plan(epoch, self.task.epochs, torch.zeros(97, dtype=torch.bool), self.task.seed)

    with pytest.raises(RunError, match="epoch 0 would train on nothing"):
        stepe.fit(make_model(), blobs.x, blobs.given, method=Nothing(), epochs=2, device="cpu")


def test_a_run_that_fails_leaves_the_generators_alone(blobs, make_model):
    before = torch.get_rng_state()
    with pytest.raises(RunError):
        fit(make_model(), blobs.x * float("nan"), blobs.given)
    assert torch.equal(torch.get_rng_state(), before)


def test_options_of_data_sets_are_refused_for_tensors_and_leave_held_out_tensors_alone(blobs):
    with pytest.raises(InputError, match="tensors need neither"):
        stepe.fit(nn.Linear(6, 3), blobs.x, blobs.given, epochs=1, method="plain", loader_options={"num_workers": 0})
    data = [(x, int(y)) for x, y in zip(blobs.x, blobs.given, strict=True)]
    test = (blobs.x, blobs.clean)
    stepe.fit(nn.Linear(6, 3), data, epochs=1, method="plain", test=test, loader_options={"num_workers": 0})


# Weights


def test_equal_weights_change_nothing(blobs, make_model, bits):
    plain = fit(make_model(), blobs.x, blobs.given)
    weighted = fit(make_model(), blobs.x, blobs.given, weight=torch.ones(97))
    assert bits(plain.model) == bits(weighted.model)


def test_a_sample_without_weight_teaches_nothing(blobs, make_model, bits):
    weight = torch.ones(97)
    weight[5] = 0
    changed = blobs.given.clone()
    changed[5] = (changed[5] + 1) % 3
    options = {"weight": weight, "rho_max": 0.0}
    assert bits(fit(make_model(), blobs.x, blobs.given, **options).model) == bits(
        fit(make_model(), blobs.x, changed, **options).model
    )


def test_weights_multiply_those_of_the_method(blobs, make_model):
    """Twice the weight everywhere is the same mean."""
    soft = fit(make_model(), blobs.x, blobs.given, softness=0.5)
    twice = fit(make_model(), blobs.x, blobs.given, softness=0.5, weight=torch.full((97,), 2.0))
    torch.testing.assert_close(soft.model.state_dict(), twice.model.state_dict())


@pytest.mark.parametrize(
    ("weight", "message"),
    [
        (torch.ones(3), "one number a sample"),
        (-torch.ones(97), "0 or more"),
        (torch.full((97,), float("nan")), "0 or more"),
        (torch.zeros(97), "every weight is 0"),
    ],
)
def test_weights_that_cannot_be_used_say_so(blobs, make_model, weight, message):
    with pytest.raises(InputError, match=message):
        fit(make_model(), blobs.x, blobs.given, weight=weight)


@pytest.mark.parametrize("method", ["step-e", "step-e-plus", "co-teaching"])
def test_lazy_weights_are_refused_until_they_have_a_shape(method, blobs):
    model = nn.Sequential(nn.LazyLinear(8), nn.ReLU(), nn.Linear(8, 3))
    with pytest.raises(InputError, match="call it once before"):
        stepe.fit(model, blobs.x, blobs.given, method=method, epochs=2, device="cpu")
    model(blobs.x[:2])
    stepe.fit(model, blobs.x, blobs.given, method=method, epochs=2, device="cpu")
