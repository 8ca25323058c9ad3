"""The resident engine on a CPU, where the same code runs without graphs; tests/gpu has it with them."""

import copy
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import SGD, AdamW, Optimizer
from torch.optim.lr_scheduler import ExponentialLR, LRScheduler, OneCycleLR, StepLR

import stepe
from stepe import InputError
from stepe.engine.eager import EagerEngine
from stepe.engine.learning_rate import ProgressRate, RateShape, constant
from stepe.engine.resident import ResidentEngine
from stepe.loop.ledger import Ledger, Observation
from stepe.loop.plan import Plan
from stepe.loop.randomness import Stream
from stepe.methods import METHODS, Method, Task, make_method
from stepe.samples.augmentation import CropFlip
from stepe.samples.samples import Augment, TensorSamples
from stepe.samples.strong import Strong
from stepe.training.building import Result, Silent, Training
from stepe.training.session import Row

N, CLASSES, EPOCHS = 75, 3, 6
ENGINES: dict[str, type[EagerEngine]] = {"eager": EagerEngine, "resident": ResidentEngine}
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    name: (name, {"rho_max": 0.3} if "rho_max" in kind.options() else {}) for name, kind in METHODS.items()
} | {
    "step-e soft": ("step-e", {"rho_max": 0.3, "softness": 0.3}),
    "step-e sticky": ("step-e", {"rho_max": 0.3, "sticky": True, "memory": 0.5}),
    "step-e plain probe": ("step-e", {"rho_max": 0.3, "view": "plain"}),
    "one-shot soft": ("one-shot", {"rho_max": 0.3, "softness": 0.3}),
    "truncation first-epoch": ("truncation", {"rho_max": 0.3, "threshold": "first-epoch"}),
}


@dataclass(frozen=True)
class Pictures:
    """Bright upper, left or middle parts; some carry the label of another kind."""

    x: Tensor
    """uint8"""
    given: Tensor


@pytest.fixture(scope="module")
def pictures() -> Pictures:
    draw = torch.Generator().manual_seed(0)
    clean = torch.arange(N) % CLASSES
    x = torch.randint(0, 120, (N, 3, 8, 8), generator=draw)
    x[clean == 0, :, :4] += 100
    x[clean == 1, :, :, :4] += 100
    x[clean == 2, :, 2:6, 2:6] += 100
    wrong = torch.rand(N, generator=draw) < 0.25
    return Pictures(x.to(torch.uint8), torch.where(wrong, (clean + 1) % CLASSES, clean))


def network(seed: int = 0, *, dropout: float = 0.2) -> nn.Module:
    """A small network with all that makes agreement hard."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1, bias=False),
            nn.BatchNorm2d(8),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, 2, 1),
            nn.Conv2d(8, 8, 3, padding=1),
            nn.BatchNorm2d(8),
            nn.ReLU(inplace=True),
            nn.AdaptiveAvgPool2d(2),
            nn.Flatten(),
            nn.Dropout(dropout),
            nn.Linear(32, CLASSES),
        )


def scaled(model: nn.Module, x: Tensor) -> Tensor:
    """Bytes in [-1, 1], in the model's own precision."""
    return model(x.to(next(model.parameters()).dtype) / 127.5 - 1)


def unreduced(outputs: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(outputs, targets, reduction="none")


def fit(model: nn.Module, x: Any, y: Any, variant: str = "step-e", engine: str = "resident", **options: Any) -> Result:
    method, method_options = VARIANTS[variant]
    defaults = {"epochs": EPOCHS, "batch_size": 16, "learning_rate": 0.05, "augment": CropFlip(2), "forward": scaled}
    if "optimizer" in options:
        del defaults["learning_rate"]
    return stepe.fit(
        model,
        x,
        y,
        method=make_method(method, **method_options),
        engine=engine,
        device="cpu",
        seed=3,
        **(defaults | options),
    )


def make_engine(
    kind: str,
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    *,
    learning_rate: float = 0.05,
    shape: RateShape = constant,
    augment: Augment | None = None,
    batch_size: int = 16,
    **options: Any,
) -> EagerEngine:
    task = Task(y, classes=CLASSES, epochs=EPOCHS, seed=3, criterion=unreduced)
    made = SGD(
        model.parameters(),
        lr=learning_rate,
        momentum=0.9,
        weight_decay=1e-3,
        nesterov=True,
        fused=kind == "resident",
    )
    return ENGINES[kind](
        model,
        TensorSamples(x, augment),
        task,
        optimizer=made,
        rate=ProgressRate(made, shape),
        device=torch.device("cpu"),
        batch_size=batch_size,
        probe_batch_size=32,
        **{"forward": scaled, **options},
    )


def plain(engine: EagerEngine) -> Method:
    method = make_method("plain")
    method.task = engine.task
    return method


def whole_plan(epoch: int = 1, **options: Any) -> Plan:
    return Plan(**{"epoch": epoch, "epochs": EPOCHS, "kept": torch.ones(N, dtype=torch.bool), "seed": 3, **options})


def rows(result: Result) -> list[Row]:
    """The history without its clock."""
    return [{key: value for key, value in row.items() if not key.endswith("seconds")} for row in result.history]


def same_ledger(one: Result, other: Result) -> bool:
    columns, others = one.ledger.state_dict(), other.ledger.state_dict()
    return all(
        torch.equal(torch.nan_to_num(columns[name].double(), nan=-7), torch.nan_to_num(others[name].double(), nan=-7))
        for name in columns
    )


class States(Silent):
    """Everything a run holds, at three points of it."""

    def __init__(self) -> None:
        self.found: dict[int, list[dict[str, Any]]] = {}

    def epoch_ended(self, training: Training, row: Row) -> None:
        if training.epoch in (1, 3, 5):
            parts = (training.model, training.engine, training.method, training.ledger)
            self.found[training.epoch] = [copy.deepcopy(part.state_dict()) for part in parts]


# Against the eager engine


@pytest.mark.parametrize("variant", ["step-e", "step-e soft", "truncation"])
def test_a_step_from_equal_state_is_the_eager_engines_at_three_points_of_a_run(variant, pictures):
    states = States()
    fit(network(), pictures.x, pictures.given, variant, "eager", observers=(states,))
    assert sorted(states.found) == [1, 3, 5]
    for epoch, (weights, engine_state, method_state, ledger_state) in states.found.items():
        stepped = {}
        for kind in ENGINES:
            model = network(seed=9)
            engine = make_engine(kind, model, pictures.x, pictures.given, augment=CropFlip(2))
            name, options = VARIANTS[variant]
            method, ledger = make_method(name, **options), Ledger(N)
            method.start(engine.task, ledger)
            for part, state in ((model, weights), (engine, engine_state), (method, method_state)):
                part.load_state_dict(copy.deepcopy(state))
            ledger.load_state_dict(ledger_state)
            if method.wants_probe(epoch):
                method.observe(epoch, engine.probe(epoch, "augmented"), ledger)
            method.prepare(epoch)
            next(engine.train_steps(method.plan(epoch, ledger), method))
            momenta = [engine.optimizer.state[p]["momentum_buffer"] for p in model.parameters()]
            stepped[kind] = (model.state_dict(), momenta)
            assert not torch.equal(model[0].weight, weights["0.weight"])  # a step was taken
        torch.testing.assert_close(stepped["resident"], stepped["eager"], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("variant", VARIANTS)
def test_in_double_precision_whole_runs_are_the_eager_engines(variant, pictures):
    """Rounding is then too small to grow into anything, other than in the learning rates, which are float32 here."""
    runs = [fit(network().double(), pictures.x, pictures.given, variant, engine) for engine in ENGINES]
    torch.testing.assert_close(runs[0].model.state_dict(), runs[1].model.state_dict(), rtol=1e-4, atol=1e-6)
    assert torch.equal(runs[0].ledger["drop_count"], runs[1].ledger["drop_count"])
    for name in ("train_loss", "learning_rate", "kept", "came", "went"):
        assert [row[name] for row in runs[1].history] == pytest.approx([row[name] for row in runs[0].history], rel=1e-5)
    if variant.split()[0] in ("step-e", "one-shot", "self-paced", "margins"):
        assert int(runs[1].ledger["drop_count"].sum()) > 0


@pytest.mark.parametrize("batch_size", [1, 2, 7, 16, 24, 74, 75, 500])
def test_any_batch_size_trains_every_sample_once_as_the_eager_engine_does(batch_size, pictures):
    runs = [
        fit(network().double(), pictures.x, pictures.given, "step-e", engine, epochs=2, batch_size=batch_size)
        for engine in ENGINES
    ]
    torch.testing.assert_close(runs[0].model.state_dict(), runs[1].model.state_dict(), rtol=1e-4, atol=1e-6)
    assert torch.equal(runs[0].ledger["dropped"], runs[1].ledger["dropped"])
    assert runs[1].training.engine.train_losses.isfinite().all()


def test_an_epoch_at_rate_zero_leaves_equal_batchnorm_buffers(pictures):
    models = {}
    for kind in ENGINES:
        engine = make_engine(kind, network(), pictures.x, pictures.given, learning_rate=0.0, augment=CropFlip(2))
        engine.train(whole_plan(), plain(engine))
        models[kind] = engine.model
    torch.testing.assert_close(models["resident"].state_dict(), models["eager"].state_dict(), rtol=1e-4, atol=1e-6)
    assert int(models["resident"][1].num_batches_tracked) == 5
    assert not torch.equal(models["resident"][1].running_mean, network()[1].running_mean)
    for found, before in zip(models["resident"].parameters(), network().parameters(), strict=True):
        assert torch.equal(found, before)


@pytest.mark.parametrize("variant", ["step-e", "step-e soft", "step-e sticky", "one-shot", "self-paced"])
def test_the_same_losses_give_the_same_kept_sets(variant, pictures, monkeypatch):
    def scripted(engine: EagerEngine, epoch: int, view: str, **asked: bool) -> Observation:
        return Observation(torch.rand(N, generator=torch.Generator().manual_seed(epoch)))

    class Kept(Silent):
        def __init__(self) -> None:
            self.dropped: list[Tensor] = []

        def epoch_ended(self, training: Training, row: Row) -> None:
            self.dropped.append(training.ledger["dropped"].clone())

    monkeypatch.setattr(EagerEngine, "probe", scripted)
    kept = {engine: Kept() for engine in ENGINES}
    for engine, observer in kept.items():
        fit(network(), pictures.x, pictures.given, variant, engine, observers=(observer,))
    dropped = torch.stack(kept["resident"].dropped)
    assert torch.equal(dropped, torch.stack(kept["eager"].dropped))
    assert dropped.any()


def test_plans_with_and_without_weights_and_targets_may_alternate(pictures):
    draw = torch.Generator().manual_seed(0)
    soft = torch.rand(N, CLASSES, generator=draw, dtype=torch.float64)
    plans = [
        whole_plan(0, weight=torch.rand(N, generator=draw)),
        whole_plan(1),
        whole_plan(2, weight=torch.rand(N, generator=draw), target=(pictures.given + 1) % CLASSES),
        whole_plan(3, target=soft / soft.sum(1, keepdim=True), kept=torch.arange(N) % 4 > 0),
        whole_plan(4, weight=torch.rand(N, generator=draw)),
        whole_plan(5, target=(pictures.given + 2) % CLASSES),
    ]
    models, losses = {}, {}
    for kind in ENGINES:
        engine = make_engine(kind, network().double(), pictures.x, pictures.given, augment=CropFlip(2))
        losses[kind] = [engine.train(plan, plain(engine)) for plan in plans]
        models[kind] = engine.model.state_dict()
    torch.testing.assert_close(models["resident"], models["eager"], rtol=1e-4, atol=1e-6)
    assert losses["resident"] == pytest.approx(losses["eager"], rel=1e-5)


def test_a_batch_that_weighs_nothing_is_no_disaster(pictures):
    engine = make_engine("resident", network(), pictures.x, pictures.given)
    assert engine.train(whole_plan(weight=torch.zeros(N)), plain(engine)) == 0.0
    assert all(torch.isfinite(value).all() for value in engine.model.state_dict().values())


def two_groups(parameters: Any, **options: Any) -> Optimizer:
    first, *rest = parameters
    return SGD([{"params": [first], "lr": 0.01}, {"params": rest}], lr=0.1, momentum=0.5, **options)


@pytest.mark.parametrize("optimizer", [partial(AdamW, lr=0.01), partial(SGD, lr=0.1), two_groups])
def test_peoples_own_optimizers_train_as_with_the_eager_engine(optimizer, pictures):
    runs = [
        fit(network().double(), pictures.x, pictures.given, "step-e", engine, epochs=3, optimizer=optimizer)
        for engine in ENGINES
    ]
    torch.testing.assert_close(runs[0].model.state_dict(), runs[1].model.state_dict(), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("scheduler", "interval"),
    [
        (partial(ExponentialLR, gamma=0.5), "epoch"),
        (partial(StepLR, step_size=2, gamma=0.1), "epoch"),
        (partial(StepLR, step_size=7, gamma=0.5), "step"),
        (partial(OneCycleLR, max_lr=0.1, total_steps=5 * EPOCHS, cycle_momentum=False), "step"),
    ],
)
def test_a_torch_scheduler_keeps_its_pace(scheduler: Callable[[Optimizer], LRScheduler], interval, pictures):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        runs = [
            fit(
                network().double(),
                pictures.x,
                pictures.given,
                "step-e",
                engine,
                scheduler=scheduler,
                scheduler_interval=interval,
            )
            for engine in ENGINES
        ]
    rates = [[row["learning_rate"] for row in run.history] for run in runs]
    assert rates[0] == rates[1]
    assert len(set(rates[1])) > 2
    torch.testing.assert_close(runs[0].model.state_dict(), runs[1].model.state_dict(), rtol=1e-4, atol=1e-6)


# What it remembers


def linear() -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Sequential(nn.Flatten(), nn.Linear(192, CLASSES))


@pytest.mark.parametrize("augment", [CropFlip(2), Strong(CropFlip(2), share=0.5)])
def test_losses_in_training_are_written_by_sample_index(augment, pictures):
    """At rate 0 and without BatchNorm, a sample's loss does not depend on when it came."""
    engine = make_engine("resident", linear(), pictures.x, pictures.given, learning_rate=0.0, augment=augment)
    assert engine.train_losses.isnan().all()
    plan = whole_plan(4, kept=torch.arange(N) % 3 > 0)
    engine.train(plan, plain(engine))
    seen = augment(pictures.x, torch.arange(N), Stream.named(3, "augment", 4))
    expected = unreduced(scaled(linear(), seen), pictures.given).detach()
    torch.testing.assert_close(engine.train_losses[plan.kept], expected[plan.kept])
    assert engine.train_losses[~plan.kept].isnan().all()


def test_losses_in_training_are_those_of_the_given_labels(pictures):
    engine = make_engine("resident", linear(), pictures.x, pictures.given, learning_rate=0.0)
    engine.train(whole_plan(target=(pictures.given + 1) % CLASSES), plain(engine))
    expected = unreduced(scaled(linear(), pictures.x), pictures.given).detach()
    torch.testing.assert_close(engine.train_losses, expected)


def test_convolutions_are_kept_in_channels_last_memory(pictures):
    model = fit(network(), pictures.x, pictures.given, epochs=2).model
    assert model[4].weight.is_contiguous(memory_format=torch.channels_last)


def test_inputs_need_not_be_pictures(blobs, make_model):
    results = [
        stepe.fit(
            make_model().double(), blobs.x.double(), blobs.given, rho_max=0.3, epochs=3, device="cpu", engine=name
        )
        for name in ENGINES
    ]
    torch.testing.assert_close(results[0].model.state_dict(), results[1].model.state_dict(), rtol=1e-4, atol=1e-6)


# Bit-equality


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_same_seed_gives_the_same_bits_whatever_was_drawn_before(variant, pictures, bits):
    runs = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        before = torch.get_rng_state()
        runs.append(fit(network(), pictures.x, pictures.given, variant, epochs=3))
        assert torch.equal(torch.get_rng_state(), before)
    assert bits(runs[0].model) == bits(runs[1].model)
    assert same_ledger(*runs)
    assert rows(runs[0]) == rows(runs[1])


def test_step_e_at_rho_zero_is_plain_training(pictures, bits):
    options: dict[str, Any] = {"epochs": 4, "batch_size": 16, "device": "cpu", "engine": "resident"}
    options |= {"augment": CropFlip(2), "forward": scaled}
    stepwise = stepe.fit(network(), pictures.x, pictures.given, rho_max=0.0, **options)
    untouched = stepe.fit(network(), pictures.x, pictures.given, method="plain", **options)
    assert sum(row["probed"] for row in stepwise.history) == 3
    assert bits(stepwise.model) == bits(untouched.model)


class Interrupt(Silent):
    def epoch_ended(self, training: Training, row: Row) -> None:
        if training.epoch == 3:
            raise KeyboardInterrupt


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_resumed_run_ends_as_if_never_interrupted(variant, pictures, bits, tmp_path):
    whole = fit(network(), pictures.x, pictures.given, variant)
    with pytest.raises(KeyboardInterrupt):
        fit(network(), pictures.x, pictures.given, variant, run=tmp_path / "run", observers=(Interrupt(),))
    resumed = fit(network(seed=9), pictures.x, pictures.given, variant, run=tmp_path / "run", resume=True)
    assert bits(resumed.model) == bits(whole.model)
    assert same_ledger(resumed, whole)
    assert rows(resumed) == rows(whole)


@pytest.mark.parametrize("interval", ["epoch", "step"])
def test_a_scheduler_resumes_where_it_was(interval, pictures, bits, tmp_path):
    scheduler = partial(StepLR, step_size=2 if interval == "epoch" else 7, gamma=0.5)
    train = partial(fit, x=pictures.x, y=pictures.given, scheduler=scheduler, scheduler_interval=interval)
    whole = train(network())
    with pytest.raises(KeyboardInterrupt):
        train(network(), run=tmp_path / "run", observers=(Interrupt(),))
    resumed = train(network(seed=9), run=tmp_path / "run", resume=True)
    assert bits(resumed.model) == bits(whole.model)
    assert rows(resumed) == rows(whole)


def test_a_state_of_the_eager_engine_is_taken_up_in_this_ones_memory_layout(pictures):
    """Fused updates walk parameters and momenta in memory order, whatever their strides."""
    by_layout = [network().double(), network().double().to(memory_format=torch.channels_last)]
    eager, resident = (
        make_engine(kind, model, pictures.x, pictures.given, augment=CropFlip(2))
        for kind, model in zip(ENGINES, by_layout, strict=True)
    )
    eager.train(whole_plan(0), plain(eager))
    resident.model.load_state_dict(eager.model.state_dict())
    resident.load_state_dict(eager.state_dict())
    for engine in (eager, resident):
        engine.train(whole_plan(1), plain(engine))
    torch.testing.assert_close(resident.model.state_dict(), eager.model.state_dict(), rtol=1e-5, atol=1e-7)


class Counting(nn.Module):
    """Keeps something of its own that no state dict holds."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(()), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return x


@pytest.mark.parametrize("optimizer", [partial(SGD, momentum=0.9), AdamW])
@pytest.mark.parametrize("trained", [False, True])
@pytest.mark.parametrize("name", ["plain", "elr", "margins"])
def test_steps_before_a_capture_can_be_taken_back(name, trained, optimizer, pictures):
    """What a GPU does around every capture; at the start of a run and in the middle of it."""
    model = nn.Sequential(Counting(), network())
    engine = make_engine("resident", model, pictures.x, pictures.given, augment=CropFlip(2))
    engine.optimizer = optimizer(model.parameters(), lr=0.05)
    engine.rate.optimizer = engine.optimizer
    assert isinstance(engine, ResidentEngine)
    method = make_method(name)
    method.start(engine.task, Ledger(N))
    if trained:
        engine.train(whole_plan(0), method)

    def everything() -> list[Tensor]:
        state = [value for each in engine.optimizer.state.values() for value in each.values()]
        tensors = [*model.state_dict().values(), model[0].calls, engine.train_losses, *method.written_columns(), *state]
        return [tensor.detach().clone() for tensor in tensors]

    before = everything()
    epoch = engine._load(whole_plan(), torch.arange(N), torch.full((5, 1), 0.05))
    kept = engine._snapshot(epoch, method)
    for _ in range(3):
        engine._step(epoch, method, 16)
    assert int(epoch.cursor) == 48
    assert not torch.equal(model[1][0].weight, before[0])
    engine._put_back(kept, epoch, method)
    after = everything()
    torch.testing.assert_close(after[: len(before)], before, rtol=0, atol=0, equal_nan=True)
    assert (len(after) == len(before)) == trained
    assert not any(tensor.any() for tensor in after[len(before) :])  # momenta that were not there are zero
    assert (int(epoch.cursor), int(epoch.step), float(epoch.total)) == (0, 0, 0.0)


# Refusals


def test_a_data_set_is_refused(pictures):
    pairs = list(zip(pictures.x, pictures.given.tolist(), strict=True))
    with pytest.raises(InputError, match="resident engine keeps all inputs on the device: give a tensor"):
        fit(network(), pairs, None, augment=None)


def test_an_augmentation_that_cannot_draw_beforehand_is_refused(pictures):
    def noisy(x: Tensor, index: Tensor, stream: Stream) -> Tensor:
        return x

    with pytest.raises(InputError, match=r"needs an augmentation with draw\(\) and gather\(\), such as .*CropFlip"):
        fit(network(), pictures.x, pictures.given, augment=noisy)


def test_half_precision_with_a_loss_scale_is_refused(pictures):
    with pytest.raises(InputError, match=r"amp='fp16' needs a loss scale .*use 'bf16'"):
        fit(network(), pictures.x, pictures.given, amp="fp16")


def test_bf16_trains_and_keeps_its_weights_in_full_precision(pictures):
    result = fit(network(), pictures.x, pictures.given, amp="bf16")
    assert result.history[-1]["train_loss"] < result.history[0]["train_loss"]
    assert {parameter.dtype for parameter in result.model.parameters()} == {torch.float32}


def test_a_scheduler_that_cycles_the_momentum_is_refused(pictures):
    scheduler = partial(OneCycleLR, max_lr=0.1, total_steps=5 * EPOCHS)
    with pytest.raises(InputError, match=r"changes more than the learning rate.* cycle_momentum=False"):
        fit(network(), pictures.x, pictures.given, scheduler=scheduler, scheduler_interval="step")


def test_an_unknown_engine_is_refused_with_the_known_ones(pictures):
    with pytest.raises(InputError, match="unknown engine 'warp'; choose one of eager, resident"):
        fit(network(), pictures.x, pictures.given, engine="warp")


def test_a_criterion_without_one_loss_per_sample_is_refused(pictures):
    with pytest.raises(InputError, match='reduction="none"'):
        fit(network(), pictures.x, pictures.given, "plain", criterion=F.cross_entropy)
