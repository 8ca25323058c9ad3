"""What the resident engine and the fleet promise, on a GPU. Needs torch, numpy and pytest alone."""

import copy
import io
import os
from collections.abc import Iterator
from functools import partial
from statistics import fmean, stdev
from typing import Any

# Has to be there before the first matrix product: cuBLAS reads it once.
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import SGD, AdamW
from torch.optim.lr_scheduler import StepLR

import stepe
from stepe.engine.compiled import CompiledEngine
from stepe.engine.eager import EagerEngine
from stepe.engine.learning_rate import ProgressRate, constant
from stepe.engine.resident import ResidentEngine
from stepe.loop.ledger import Ledger, Observation
from stepe.loop.plan import Plan
from stepe.loop.randomness import Stream
from stepe.methods import METHODS, Method, Task, make_method
from stepe.models.pair import Pair
from stepe.models.resnet import resnet18
from stepe.samples.augmentation import CropFlip, ResidentAugment
from stepe.samples.samples import TensorSamples
from stepe.samples.strong import Strong
from stepe.training.building import Result, Silent, Training, determinism, find_device
from stepe.training.fit import Job, begin
from stepe.training.fleet import run_together
from stepe.training.session import Row

DEVICE = "cuda"

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU"),
    # Deterministic mode warns of operations that may not be; whether they are is what is tested.
    pytest.mark.filterwarnings("ignore:.*deterministic"),
]

N, CLASSES = 300, 3
ENGINES: dict[str, type[EagerEngine]] = {"eager": EagerEngine, "resident": ResidentEngine}
KINDS = ENGINES | {"compiled": CompiledEngine}
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    name: (name, {"rho_max": 0.3} if "rho_max" in kind.options() else {}) for name, kind in METHODS.items()
} | {
    "step-e soft": ("step-e", {"rho_max": 0.3, "softness": 0.3}),
    "step-e sticky": ("step-e", {"rho_max": 0.3, "sticky": True, "memory": 0.5}),
    "truncation first-epoch": ("truncation", {"rho_max": 0.3, "threshold": "first-epoch"}),
}
VARIED = ["step-e", "step-e soft", "step-e-plus", "truncation", "mixup", "elr", "margins", "co-teaching"]
"""each with another step"""


@pytest.fixture(autouse=True)
def _full_precision() -> Iterator[None]:
    """Without TF32, float32 means float32."""
    before = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    yield
    torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before


class Pictures:
    """Bright upper, left or middle parts; a quarter carry the label of another kind."""

    def __init__(self, side: int = 8) -> None:
        draw = torch.Generator().manual_seed(0)
        half, quarter = side // 2, side // 4
        self.clean = torch.arange(N) % CLASSES
        x = torch.randint(0, 120, (N, 3, side, side), generator=draw)
        x[self.clean == 0, :, :half] += 100
        x[self.clean == 1, :, :, :half] += 100
        x[self.clean == 2, :, quarter:-quarter, quarter:-quarter] += 100
        wrong = torch.rand(N, generator=draw) < 0.25
        self.x = x.to(torch.uint8)
        self.given = torch.where(wrong, (self.clean + 1) % CLASSES, self.clean)


@pytest.fixture(scope="module")
def pictures() -> Pictures:
    return Pictures()


def network(seed: int = 0, *, dropout: float = 0.2) -> nn.Module:
    """Made on the CPU, under a seed of its own."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        return nn.Sequential(
            nn.Conv2d(3, 16, 3, padding=1, bias=False),
            nn.BatchNorm2d(16),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, 2, 1),
            nn.Conv2d(16, 16, 3, padding=1),
            nn.BatchNorm2d(16),
            nn.ReLU(inplace=True),
            nn.Flatten(),
            nn.Dropout(dropout),
            nn.Linear(256, CLASSES),
        )


def residual(seed: int = 0) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        return resnet18(CLASSES)


def scaled(model: nn.Module, x: Tensor) -> Tensor:
    """Bytes in [-1, 1], in the model's own precision."""
    outputs: Tensor = model(x.to(next(model.parameters()).dtype) / 127.5 - 1)
    return outputs


def unreduced(outputs: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(outputs, targets, reduction="none")


def prepare(model: nn.Module, data: Pictures, variant: str = "step-e", engine: str = "resident", **options: Any) -> Job:
    method, method_options = VARIANTS[variant]
    defaults = {"epochs": 4, "batch_size": 32, "learning_rate": 0.05, "augment": CropFlip(1), "forward": scaled}
    if "optimizer" in options:
        del defaults["learning_rate"]
    return begin(
        model,
        data.x,
        data.given,
        method=make_method(method, **method_options),
        engine=engine,
        device=DEVICE,
        **(defaults | options),
    )


def fit(model: nn.Module, data: Pictures, variant: str = "step-e", engine: str = "resident", **options: Any) -> Result:
    return prepare(model, data, variant, engine, **options).finish()


def make_engine(
    kind: str,
    model: nn.Module,
    data: Pictures,
    *,
    learning_rate: float = 0.05,
    augment: ResidentAugment = CropFlip(1),  # noqa: B008 (nobody writes it)
    amp: str | None = None,
    averaging: float = 0.0,
) -> EagerEngine:
    """Both engines in one memory format."""
    device = find_device(DEVICE)
    model.to(device, memory_format=torch.channels_last)
    optimizer = SGD(
        model.parameters(), lr=learning_rate, momentum=0.9, weight_decay=5e-4, nesterov=True, fused=kind != "eager"
    )
    return KINDS[kind](
        model,
        TensorSamples(data.x.to(device), augment),
        Task(data.given, classes=CLASSES, epochs=6, seed=0, criterion=unreduced, device=device),
        optimizer=optimizer,
        rate=ProgressRate(optimizer, constant),
        device=device,
        batch_size=32,
        probe_batch_size=128,
        forward=scaled,
        amp=amp,
        averaging=averaging,
    )


def plain(engine: EagerEngine) -> Method:
    method = make_method("plain")
    method.task = engine.task
    return method


def whole_plan(epoch: int = 1, **options: Any) -> Plan:
    return Plan(**{"epoch": epoch, "epochs": 6, "kept": torch.ones(N, dtype=torch.bool), "seed": 0, **options})


def on_cpu(model: nn.Module) -> dict[str, Tensor]:
    return {name: value.detach().cpu() for name, value in model.state_dict().items()}


def parameters_of(state: dict[str, Tensor], model: nn.Module) -> Tensor:
    return torch.cat([state[name].double().flatten() for name, _ in model.named_parameters()])


def same_ledger(one: Result, other: Result) -> bool:
    columns, others = one.ledger.state_dict(), other.ledger.state_dict()
    return all(
        torch.equal(torch.nan_to_num(columns[name].double(), nan=-7), torch.nan_to_num(others[name].double(), nan=-7))
        for name in columns
    )


def graphs(result: Result) -> int:
    """How many graphs a run captured: without any, these tests would test nothing."""
    engine = result.training.engine
    assert isinstance(engine, ResidentEngine)
    return len(engine._graphs)


# Against the eager engine


class States(Silent):
    """Everything a run holds, at three points of it."""

    def __init__(self) -> None:
        self.found: dict[int, list[dict[str, Any]]] = {}

    def epoch_ended(self, training: Training, row: Row) -> None:
        if training.epoch in (1, 3, 5):
            parts = (training.model, training.engine, training.method, training.ledger)
            self.found[training.epoch] = [copy.deepcopy(part.state_dict()) for part in parts]


def one_step(
    kind: str, model: nn.Module, data: Pictures, variant: str, epoch: int, states: list[dict[str, Any]], amp: str | None
) -> dict[str, Tensor]:
    """The model, and its average where there is one, after the first step of an epoch, from a given state."""
    name, options = VARIANTS[variant]
    method, ledger = make_method(name, **options), Ledger(N)
    engine = make_engine(kind, model, data, amp=amp, averaging=method.averaging)
    method.start(engine.task, ledger)
    for part, state in zip((model, engine, method, ledger), states, strict=True):
        part.load_state_dict(copy.deepcopy(state))
    # Planned from a made-up probe: a real one would add its rounding to that of the step.
    draw = torch.Generator().manual_seed(epoch)
    loss, probability = torch.rand(N, generator=draw), torch.rand(N, CLASSES, generator=draw).softmax(1)
    method.observe(epoch, Observation(loss, probability=probability), ledger)
    method.prepare(epoch)
    with determinism(True):
        next(engine.train_steps(method.plan(epoch, ledger), method))
    if isinstance(engine, ResidentEngine):
        assert engine._graphs
    average = {} if engine.average is None else on_cpu(engine.average.model)
    return on_cpu(model) | {f"average of {name}": value for name, value in average.items()}


@pytest.mark.parametrize("amp", [None, "bf16"])
@pytest.mark.parametrize("variant", [*VARIED, "resnet18"])
def test_a_step_from_equal_state_is_the_eager_engines_at_three_points_of_a_run(variant, amp, pictures):
    if variant == "co-teaching" and amp:
        pytest.skip("which of two nearly equal losses is chosen is a matter of rounding")
    make, data = (residual, Pictures(32)) if variant == "resnet18" else (network, pictures)
    variant = "step-e" if variant == "resnet18" else variant
    observer = States()
    fit(make(), data, variant, "eager", epochs=6, observers=(observer,))
    assert sorted(observer.found) == [1, 3, 5]
    for epoch, states in observer.found.items():
        before = {name: value.cpu() for name, value in states[0].items()}
        # Loaded with the states, so the second network of two may be a copy.
        pairs = METHODS[VARIANTS[variant][0]].networks == 2
        models = [Pair(make(seed=9), make(seed=9)) if pairs else make(seed=9) for _ in ENGINES]
        after = {
            kind: one_step(kind, model, data, variant, epoch, states, amp)
            for kind, model in zip(ENGINES, models, strict=True)
        }
        eager, resident = (parameters_of(after[kind], models[0]) for kind in ("eager", "resident"))
        moved = eager - parameters_of(before, models[0])
        assert moved.norm() > 0
        if amp is None:
            torch.testing.assert_close(after["resident"], after["eager"], rtol=1e-4, atol=1e-6)
            assert (resident - eager).norm() < 1e-3 * moved.norm()
        else:
            torch.testing.assert_close(after["resident"], after["eager"], rtol=2e-2, atol=5e-3)
            assert (resident - eager).norm() < 5e-2 * moved.norm()


def test_a_compiled_step_from_equal_state_is_the_eager_engines(pictures):
    """Without dropout, whose draws a compiler may order anew."""
    observer = States()
    fit(network(dropout=0.0), pictures, "step-e", "eager", epochs=6, observers=(observer,))
    states = observer.found[5]
    after = {
        kind: one_step(kind, network(9, dropout=0.0), pictures, "step-e", 5, states, None)
        for kind in ("eager", "compiled")
    }
    torch.testing.assert_close(after["compiled"], after["eager"], rtol=1e-3, atol=1e-5)


def test_a_compiled_probe_is_the_eager_engines(pictures):
    seen = {}
    for kind in ("eager", "compiled"):
        engine = make_engine(kind, network(), pictures)
        seen[kind] = engine.probe(0, "augmented", probabilities=True)
    torch.testing.assert_close(seen["compiled"].loss, seen["eager"].loss, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(seen["compiled"].probability, seen["eager"].probability, rtol=1e-4, atol=1e-5)


def test_a_compiled_fleet_learns(pictures):
    options: dict[str, Any] = {"epochs": 12, "amp": "bf16", "test": (pictures.x, pictures.clean)}
    jobs = [prepare(network(seed), pictures, engine="compiled", seed=seed, **options) for seed in range(3)]
    assert all(result.summary.test_accuracy > 0.7 for result in run_together(jobs))


def test_an_epoch_at_rate_zero_leaves_equal_batchnorm_buffers(pictures):
    after = {}
    for kind in ENGINES:
        engine = make_engine(kind, network(), pictures, learning_rate=0.0)
        with determinism(True):
            engine.train(whole_plan(), plain(engine))
        after[kind] = on_cpu(engine.model)
    torch.testing.assert_close(after["resident"], after["eager"], rtol=1e-4, atol=1e-6)
    assert int(after["resident"]["1.num_batches_tracked"]) == 10  # 9 of 32 and a tail of 12
    assert not torch.equal(after["resident"]["1.running_mean"], network().state_dict()["1.running_mean"])
    for name, value in network().named_parameters():
        assert torch.equal(after["resident"][name], value.detach())


@pytest.mark.parametrize("variant", ["step-e", "step-e soft", "step-e sticky", "one-shot", "self-paced"])
def test_the_same_losses_give_the_same_kept_sets(variant, pictures, monkeypatch):
    def scripted(engine: EagerEngine, epoch: int, view: str, **asked: bool) -> Observation:
        losses = torch.rand(N, generator=torch.Generator().manual_seed(epoch))
        return Observation(losses.to(engine.device))

    class Dropped(Silent):
        def __init__(self) -> None:
            self.found: list[Tensor] = []

        def epoch_ended(self, training: Training, row: Row) -> None:
            self.found.append(training.ledger["dropped"].clone())

    monkeypatch.setattr(EagerEngine, "probe", scripted)
    observers = {engine: Dropped() for engine in ENGINES}
    for engine, observer in observers.items():
        fit(network(), pictures, variant, engine, amp="bf16", observers=(observer,))
    dropped = torch.stack(observers["resident"].found)
    assert torch.equal(dropped, torch.stack(observers["eager"].found))
    assert dropped.any()


def assert_same_in_double(data: Pictures, variant: str = "step-e", **options: Any) -> list[Result]:
    """Rounding is then too small to grow into anything; without dropout, so that nothing else can either."""
    runs = [
        fit(network(dropout=0.0).double(), data, variant, engine, deterministic=True, **options) for engine in ENGINES
    ]
    torch.testing.assert_close(on_cpu(runs[1].model), on_cpu(runs[0].model), rtol=1e-4, atol=1e-6)
    assert torch.equal(runs[1].ledger["drop_count"], runs[0].ledger["drop_count"])
    assert graphs(runs[1]) > 0
    return runs


@pytest.mark.parametrize("variant", VARIANTS)
def test_in_double_precision_whole_runs_are_the_eager_engines(variant, pictures):
    runs = assert_same_in_double(pictures, variant, epochs=3)
    losses = [[row["train_loss"] for row in run.history] for run in runs]
    assert losses[1] == pytest.approx(losses[0], rel=1e-4)


@pytest.mark.parametrize("batch_size", [7, 32, 37, 128])  # tails of 6, 12, 4 (spread) and 44
def test_any_batch_size_trains_every_sample_once_as_the_eager_engine_does(batch_size, pictures):
    runs = assert_same_in_double(pictures, "step-e", epochs=2, batch_size=batch_size)
    engine = runs[1].training.engine
    assert isinstance(engine, ResidentEngine)
    assert engine.train_losses.isfinite().all()


def test_a_batch_larger_than_the_data_is_the_data(pictures):
    assert_same_in_double(pictures, "plain", epochs=2, batch_size=1000)


def test_a_torch_scheduler_keeps_its_pace(pictures):
    scheduler = partial(StepLR, step_size=7, gamma=0.7)
    runs = assert_same_in_double(pictures, scheduler=scheduler, scheduler_interval="step")
    rates = [[row["learning_rate"] for row in run.history] for run in runs]
    assert rates[0] == rates[1]
    assert len(set(rates[1])) > 2


def test_adam_trains_as_with_the_eager_engine(pictures):
    assert_same_in_double(pictures, optimizer=partial(AdamW, lr=0.01, fused=True, capturable=True))


@pytest.mark.parametrize("optimizer", [partial(SGD, lr=0.1), partial(AdamW, lr=0.01, fused=True)])
def test_an_optimizer_that_no_graph_can_hold_is_refused(optimizer, pictures):
    with pytest.raises(stepe.InputError, match=r"fused=True, and with capturable=True where it has that"):
        fit(network(), pictures, optimizer=optimizer)


@pytest.mark.parametrize("augment", [CropFlip(1), Strong(CropFlip(1), share=0.5)])
def test_losses_in_training_are_written_by_sample_index(augment, pictures):
    """At rate 0 and without BatchNorm, a sample's loss does not depend on when it came."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(192, CLASSES))
    expected = copy.deepcopy(model)
    engine = make_engine("resident", model, pictures, learning_rate=0.0, augment=augment)
    assert isinstance(engine, ResidentEngine)
    plan = whole_plan(4, kept=torch.arange(N) % 3 > 0)
    engine.train(plan, plain(engine))
    seen = augment(pictures.x, torch.arange(N), Stream.named(0, "augment", 4))
    losses = unreduced(scaled(expected, seen), pictures.given).detach()
    found = engine.train_losses.cpu()
    torch.testing.assert_close(found[plan.kept], losses[plan.kept], rtol=1e-4, atol=1e-5)
    assert found[~plan.kept].isnan().all()


# In fast mode


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_method_learns(variant, pictures):
    data = pictures
    result = fit(network(), data, variant, epochs=12, amp="bf16", test=(data.x, data.clean))
    assert torch.isfinite(result.ledger["loss"]).all()
    # Weights come in when the warm-up is over, and with them another graph.
    assert graphs(result) == (2 if variant in ("step-e soft", "step-e-plus") else 1)
    if "truncation" not in variant:  # which has thrown away what it needs, as in the paper
        assert result.summary.test_accuracy > 0.7


def test_results_are_the_eager_engines_within_seed_noise(pictures):
    found: dict[str, list[float]] = {}
    for engine in ENGINES:
        runs = [fit(network(seed), pictures, engine=engine, epochs=8, amp="bf16", seed=seed) for seed in range(4)]
        found[engine] = [run.history[-1]["train_loss"] for run in runs]
    noise = max(stdev(losses) for losses in found.values())
    assert abs(fmean(found["resident"]) - fmean(found["eager"])) < 0.1 + 3 * noise


def test_a_fast_fleet_ends_where_the_runs_alone_do_within_seed_noise(pictures):
    options: list[dict[str, Any]] = [{"seed": seed, "epochs": 8, "amp": "bf16"} for seed in range(4)]
    together = run_together([prepare(network(o["seed"]), pictures, **o) for o in options])
    alone = [fit(network(o["seed"]), pictures, **o) for o in options]
    losses = [[run.history[-1]["train_loss"] for run in runs] for runs in (together, alone)]
    assert abs(fmean(losses[0]) - fmean(losses[1])) < 0.1 + 3 * max(stdev(each) for each in losses)


@pytest.mark.parametrize("variant", ["plain", "step-e soft"])
def test_memory_does_not_grow_over_epochs(variant, pictures):
    class Memory(Silent):
        def __init__(self) -> None:
            self.peaks: list[int] = []
            self.held: list[int] = []

        def epoch_ended(self, training: Training, row: Row) -> None:
            torch.cuda.synchronize()
            self.peaks.append(torch.cuda.max_memory_allocated())
            self.held.append(torch.cuda.memory_allocated())
            torch.cuda.reset_peak_memory_stats()

    memory = Memory()
    result = fit(network(), pictures, variant, epochs=12, amp="bf16", observers=(memory,))
    soft = "soft" in variant
    assert graphs(result) == 1 + soft
    # The second graph comes with the first weights, in the third epoch; one epoch more, and everything is in place.
    # The tails of a set that changes differ in size, and what they need with it.
    assert max(memory.peaks[4:]) <= memory.peaks[3] + (4 * 2**20 if soft else 2**16)
    assert max(memory.held[4:]) <= memory.held[3] + 2**16


# Bit for bit, in deterministic mode


@pytest.mark.parametrize("amp", [None, "bf16"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_the_same_seed_gives_the_same_bits(variant, amp, pictures, bits):
    runs = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        before = torch.get_rng_state(), torch.cuda.get_rng_state()
        runs.append(fit(network(), pictures, variant, amp=amp, epochs=3, deterministic=True))
        assert torch.equal(torch.get_rng_state(), before[0])
        assert torch.equal(torch.cuda.get_rng_state(), before[1])
    assert bits(runs[0].model) == bits(runs[1].model)
    assert same_ledger(*runs)
    assert graphs(runs[0]) > 0


def test_another_seed_gives_another_run(pictures, bits):
    one, other = (fit(network(), pictures, epochs=2, deterministic=True, seed=seed) for seed in (0, 1))
    assert bits(one.model) != bits(other.model)


def test_the_papers_network_gives_the_same_bits(bits):
    runs = [fit(residual(), Pictures(32), amp="bf16", epochs=3, deterministic=True) for _ in range(2)]
    assert bits(runs[0].model) == bits(runs[1].model)
    assert same_ledger(*runs)


@pytest.mark.parametrize("dropout", [0.0, 0.2])
@pytest.mark.parametrize("amp", [None, "bf16"])
def test_a_run_in_a_fleet_is_the_run_alone(amp, dropout, pictures, bits):
    """Different methods, seeds and lengths; with dropout, the runs' generators must not mix either."""
    settings: list[dict[str, Any]] = [
        {"variant": "step-e", "seed": 1, "epochs": 4},
        {"variant": "step-e soft", "seed": 2, "epochs": 5},
        {"variant": "truncation", "seed": 3, "epochs": 3, "batch_size": 64},
        {"variant": "step-e-plus", "seed": 5, "epochs": 4},
        {"variant": "step-e", "seed": 4, "epochs": 4},
    ]
    for setting in settings:
        setting.update(amp=amp, deterministic=True, test=(pictures.x, pictures.clean))
    together = run_together([prepare(network(dropout=dropout), pictures, **setting) for setting in settings])
    for setting, found in zip(settings, together, strict=True):
        alone = fit(network(dropout=dropout), pictures, **setting)
        assert graphs(found) == graphs(alone) > 0
        assert bits(found.model) == bits(alone.model), setting["variant"]
        assert same_ledger(found, alone), setting["variant"]
        accuracies = [[row["test_accuracy"] for row in run.history] for run in (found, alone)]
        assert accuracies[0] == accuracies[1]


def test_the_papers_network_in_a_fleet_is_the_run_alone(bits):
    data = Pictures(32)
    options: list[dict[str, Any]] = [{"seed": s, "amp": "bf16", "epochs": 3, "deterministic": True} for s in range(3)]
    together = run_together([prepare(residual(), data, **each) for each in options])
    for each, found in zip(options, together, strict=True):
        assert bits(found.model) == bits(fit(residual(), data, **each).model)


def test_the_users_generators_and_settings_are_as_before_a_fleet(pictures):
    torch.manual_seed(5)
    before = torch.get_rng_state(), torch.cuda.get_rng_state()
    benchmark = torch.backends.cudnn.benchmark
    run_together([prepare(network(), pictures, seed=seed, epochs=2, deterministic=seed > 0) for seed in range(2)])
    assert torch.equal(torch.get_rng_state(), before[0])
    assert torch.equal(torch.cuda.get_rng_state(), before[1])
    assert not torch.are_deterministic_algorithms_enabled()
    assert torch.backends.cudnn.benchmark == benchmark


@pytest.mark.parametrize("amp", [None, "bf16"])
def test_step_e_at_rho_zero_is_plain_training(amp, pictures, bits):
    options: dict[str, Any] = {"epochs": 4, "batch_size": 32, "device": DEVICE, "engine": "resident", "amp": amp}
    options |= {"augment": CropFlip(1), "forward": scaled, "deterministic": True}
    stepwise = stepe.fit(network(), pictures.x, pictures.given, rho_max=0.0, **options)
    untouched = stepe.fit(network(), pictures.x, pictures.given, method="plain", **options)
    assert sum(row["probed"] for row in stepwise.history) == 3
    assert bits(stepwise.model) == bits(untouched.model)


class Ungraphed:
    """In a graph's place: the same step, launched anew each time."""

    def __init__(self, engine: ResidentEngine, epoch: Any, method: Method):
        self.engine, self.epoch, self.method = engine, epoch, method

    def replay(self) -> None:
        self.engine._step(self.epoch, self.method, self.engine.batch_size)


@pytest.mark.parametrize("variant", ["plain", *VARIED[1:]])
def test_capturing_leaves_no_trace(variant, pictures, monkeypatch):
    """Neither at the first step, before there are momenta, nor later, when weights ask for another graph."""
    options: dict[str, Any] = {"epochs": 4, "deterministic": True}
    captured = fit(network(), pictures, variant, **options)
    assert graphs(captured) == (2 if variant in ("step-e soft", "step-e-plus") else 1)
    monkeypatch.setattr(ResidentEngine, "_capture", lambda engine, epoch, method: Ungraphed(engine, epoch, method))
    launched = fit(network(), pictures, variant, **options)
    torch.testing.assert_close(on_cpu(captured.model), on_cpu(launched.model), rtol=0, atol=0)
    engines = [run.training.engine for run in (captured, launched)]
    losses = [engine.train_losses.cpu() for engine in engines if isinstance(engine, ResidentEngine)]
    torch.testing.assert_close(losses[0], losses[1], rtol=0, atol=0, equal_nan=True)
    totals = [[row["train_loss"] for row in run.history] for run in (captured, launched)]
    assert totals[0] == totals[1]


def test_a_capture_puts_model_optimizer_and_counters_back(pictures):
    engine = make_engine("resident", network(), pictures)
    assert isinstance(engine, ResidentEngine)
    before = on_cpu(engine.model)
    order = torch.arange(N)
    engine.model.train()
    epoch = engine._load(whole_plan(), order, torch.full((10, 1), 0.05))
    engine._capture(epoch, plain(engine))
    torch.testing.assert_close(on_cpu(engine.model), before, rtol=0, atol=0)
    for parameter in engine.model.parameters():
        assert not engine.optimizer.state[parameter]["momentum_buffer"].any()
    assert int(epoch.cursor) == int(epoch.step) == 0
    assert float(epoch.total) == 0
    assert engine.train_losses.isnan().all()


class Interrupt(Silent):
    def epoch_ended(self, training: Training, row: Row) -> None:
        if training.epoch == 2:
            raise KeyboardInterrupt


@pytest.mark.parametrize("amp", [None, "bf16"])
@pytest.mark.parametrize("variant", VARIED)
def test_a_restored_state_goes_on_as_if_never_interrupted(variant, amp, pictures, bits):
    """The resumed run captures its graphs where the other one replays them; dropout must not notice."""
    saved = io.BytesIO()

    def parts(training: Training) -> tuple[Any, ...]:
        return training.model, training.engine, training.method, training.ledger

    class Save(Silent):
        def epoch_ended(self, training: Training, row: Row) -> None:
            if training.epoch == 2:
                torch.save(([part.state_dict() for part in parts(training)], training.history), saved)

    class Restore(Silent):
        def run_started(self, training: Training) -> None:
            saved.seek(0)
            states, training.session.history = torch.load(saved, weights_only=True, map_location="cpu")
            for part, state in zip(parts(training), states, strict=True):
                part.load_state_dict(state)

    options: dict[str, Any] = {"amp": amp, "deterministic": True, "epochs": 5}
    whole = fit(network(), pictures, variant, observers=(Save(),), **options)
    resumed = fit(network(seed=9), pictures, variant, observers=(Restore(),), **options)
    assert bits(whole.model) == bits(resumed.model)
    assert same_ledger(whole, resumed)


def test_a_resumed_run_folder_goes_on_as_if_never_interrupted(pictures, bits, tmp_path):
    for package in ("safetensors", "pandas", "pyarrow"):
        pytest.importorskip(package)
    options: dict[str, Any] = {"amp": "bf16", "deterministic": True, "epochs": 5}
    whole = fit(network(), pictures, **options)
    with pytest.raises(KeyboardInterrupt):
        fit(network(), pictures, run=tmp_path / "run", observers=(Interrupt(),), **options)
    resumed = fit(network(seed=9), pictures, run=tmp_path / "run", resume=True, **options)
    assert bits(whole.model) == bits(resumed.model)
    assert same_ledger(whole, resumed)
