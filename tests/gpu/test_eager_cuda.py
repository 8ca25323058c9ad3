"""What the eager engine promises, on a GPU. Needs torch, numpy and pytest alone."""

import io
import os
from typing import Any

# Has to be there before the first matrix product: cuBLAS reads it once.
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

import stepe
from stepe.loop.randomness import Stream
from stepe.loop.selection import select, soften
from stepe.methods import METHODS, make_method
from stepe.training.building import Result, Silent, Training, find_device
from stepe.training.session import Row

DEVICE = "cuda"

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU"),
]


def convolutional(*, dropout: float = 0.2) -> nn.Module:
    """Six features as a picture of 2 x 3; made on the CPU, under a seed of its own."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        return nn.Sequential(
            nn.Unflatten(1, (1, 2, 3)),
            nn.Conv2d(1, 8, 3, padding=1),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.Conv2d(8, 8, 3, padding=1),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.Flatten(),
            nn.Dropout(dropout),
            nn.Linear(48, 3),
        )


def fit(model: nn.Module, data: Any, labels: Any = None, *, method: str = "step-e", **options: Any) -> Result:
    options = {"epochs": 4, "batch_size": 16, "device": DEVICE} | options
    if "rho_max" in METHODS[method].options():
        options.setdefault("rho_max", 0.3)
    return stepe.fit(model, data, labels, method=method, **options)


def jitter(x: Tensor, index: Tensor, stream: Stream) -> Tensor:
    return x + 0.1 * stream.normal(index)[:, None]


class Jittered(Dataset[tuple[Tensor, int]]):
    def __init__(self, x: Tensor, y: Tensor):
        self.x, self.y = x, y

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return self.x[index] + 0.1 * torch.randn(self.x.shape[1]), int(self.y[index])


@pytest.mark.parametrize("method", METHODS)
def test_every_method_runs(method, blobs):
    result = fit(convolutional(), blobs.x, blobs.given, method=method, epochs=8, test=(blobs.x, blobs.clean))
    assert {parameter.device.type for parameter in result.model.parameters()} == {DEVICE}
    assert result.ledger["loss"].device.type == "cpu"
    assert torch.isfinite(result.ledger["loss"]).all()
    if method != "truncation":  # which collapses, as in the paper
        assert result.summary.test_accuracy > 0.8


@pytest.mark.parametrize("options", [{"sticky": True, "memory": 0.5}, {"softness": 0.3}, {"min_keep": 0.8}])
def test_step_e_runs_with_its_options(options, blobs):
    result = fit(convolutional(), blobs.x, blobs.given, augment=jitter, groups=blobs.clean.to(DEVICE), **options)
    assert result.history[-1]["dropped"] > 0


@pytest.mark.parametrize("where", ["cpu", DEVICE])
def test_inputs_and_labels_may_lie_on_either_side(where, blobs):
    result = fit(convolutional(), blobs.x.to(where), blobs.given.to(where), epochs=2)
    assert torch.isfinite(result.ledger["loss"]).all()


def test_devices_are_found_and_refused_by_name():
    here = torch.device(DEVICE, torch.cuda.current_device())
    assert find_device("auto") == find_device(DEVICE) == here
    with pytest.raises(stepe.InputError, match="device 'cuda:99' is not there"):
        find_device("cuda:99")


# One selection and one randomness, everywhere the same


def awkward_scores(n: int, dtype: torch.dtype) -> dict[str, Tensor]:
    draw = torch.Generator().manual_seed(n)
    smooth = torch.rand(n, generator=draw, dtype=dtype)
    tied = torch.randint(0, 4, (n,), generator=draw).to(dtype)
    broken = smooth.clone()
    broken[torch.rand(n, generator=draw) < 0.2] = float("nan")
    broken[torch.rand(n, generator=draw) < 0.1] = float("inf")
    broken[torch.rand(n, generator=draw) < 0.05] = float("-inf")
    both = torch.where(torch.isfinite(broken), tied, broken)
    return {"smooth": smooth, "tied": tied, "equal": torch.ones(n, dtype=dtype), "broken": broken, "both": both}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("n", [1, 2, 33, 5000])
def test_selection_is_the_same_as_on_the_cpu(n, dtype):
    groups = torch.arange(n) % 5
    for name, scores in awkward_scores(n, dtype).items():
        for drop_fraction in (0.0, 0.1, 1 / 3, 0.5, 0.9, 0.999):
            for min_keep in (0.0, 0.3, 1.0):
                here = select(scores, drop_fraction, groups=groups, min_keep=min_keep)
                there = select(scores.to(DEVICE), drop_fraction, groups=groups.to(DEVICE), min_keep=min_keep)
                case = f"{name}, rho {drop_fraction}, min_keep {min_keep}"
                assert torch.equal(there.kept.cpu(), here.kept), case
                assert (there.cut, there.nonfinite, there.shortfall) == (here.cut, here.nonfinite, here.shortfall), case


def test_soft_weights_agree_with_the_cpu():
    for scores in awkward_scores(500, torch.float32).values():
        here = soften(scores, select(scores, 0.3), 0.2)
        there = soften(scores.to(DEVICE), select(scores.to(DEVICE), 0.3), 0.2)
        torch.testing.assert_close(there.cpu(), here)
        assert torch.equal(there.cpu() > 0, here > 0)


def test_draws_are_the_same_bits_as_on_the_cpu():
    sample = torch.cat([torch.arange(4000), torch.tensor([2**31, 2**40 + 7, 2**62])])
    there = sample.to(DEVICE)
    high = 1 + sample % 1000
    for name in ((0, "order", 0), (7, "augment", 59), (2**60, "probe", 3)):
        stream = Stream.named(*name)
        for draw in (0, 1, 5):
            assert torch.equal(stream.bits(there, draw).cpu(), stream.bits(sample, draw))
            assert torch.equal(stream.uniform(there, draw).cpu(), stream.uniform(sample, draw))
            assert torch.equal(stream.integers(there, 10, draw).cpu(), stream.integers(sample, 10, draw))
            assert torch.equal(stream.integers(there, high.to(DEVICE), draw).cpu(), stream.integers(sample, high, draw))
            torch.testing.assert_close(stream.normal(there, draw).cpu(), stream.normal(sample, draw))
        assert torch.equal(stream.shuffle(there).cpu(), stream.shuffle(sample))


# Bit-equality in deterministic mode


@pytest.mark.parametrize("method", METHODS)
def test_the_same_seed_gives_the_same_bits(method, blobs, bits):
    runs = [
        fit(convolutional(), blobs.x, blobs.given, method=method, augment=jitter, deterministic=True) for _ in range(2)
    ]
    assert bits(runs[0].model) == bits(runs[1].model)
    for name, column in runs[0].ledger.state_dict().items():
        torch.testing.assert_close(column, runs[1].ledger[name], rtol=0, atol=0, equal_nan=True)
    other = fit(convolutional(), blobs.x, blobs.given, method=method, augment=jitter, deterministic=True, seed=1)
    assert bits(other.model) != bits(runs[0].model)


@pytest.mark.parametrize("amp", [None, "bf16", "fp16"])
@pytest.mark.parametrize("view", ["augmented", "plain"])
def test_step_e_at_rho_zero_is_plain_training(amp, view, blobs, bits):
    options = {"augment": jitter, "deterministic": True, "amp": amp}
    plain = fit(convolutional(), blobs.x, blobs.given, method="plain", **options)
    stepwise = fit(convolutional(), blobs.x, blobs.given, rho_max=0.0, view=view, **options)
    assert sum(row["probed"] for row in stepwise.history) >= 3
    assert bits(plain.model) == bits(stepwise.model)


def test_workers_and_pinned_memory_change_nothing(blobs, bits):
    data = Jittered(blobs.x, blobs.given)
    runs = [
        fit(convolutional(), data, epochs=3, deterministic=True, loader_options=options)
        for options in ({}, {"num_workers": 2, "pin_memory": True})
    ]
    assert bits(runs[0].model) == bits(runs[1].model)


def test_the_users_generators_neither_move_nor_matter(blobs, bits):
    results = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        before = torch.get_rng_state(), torch.cuda.get_rng_state()
        results.append(fit(convolutional(), blobs.x, blobs.given, deterministic=True))
        assert torch.equal(torch.get_rng_state(), before[0])
        assert torch.equal(torch.cuda.get_rng_state(), before[1])
    assert bits(results[0].model) == bits(results[1].model)


@pytest.mark.parametrize("method", ["step-e", "truncation"])
def test_a_restored_state_goes_on_as_if_never_interrupted(method, blobs, bits):
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

    options = {"method": method, "deterministic": True}
    whole = fit(convolutional(), blobs.x, blobs.given, observers=(Save(),), **options)
    resumed = fit(convolutional(), blobs.x, blobs.given, observers=(Restore(),), **options)
    assert bits(whole.model) == bits(resumed.model)


# Precision


@pytest.mark.parametrize("amp", ["bf16", "fp16"])
def test_reduced_precision_trains(amp, blobs):
    result = fit(convolutional(), blobs.x, blobs.given, amp=amp, epochs=8, test=(blobs.x, blobs.clean))
    assert result.training.engine.scaler.is_enabled() == (amp == "fp16")
    assert {parameter.dtype for parameter in result.model.parameters()} == {torch.float32}
    assert result.summary.test_accuracy > 0.8


def test_in_double_precision_the_run_is_the_cpus(blobs):
    """No dropout, whose draws differ between devices: what is left differs by rounding alone."""
    results = [
        stepe.fit(
            convolutional(dropout=0.0).double(),
            blobs.x.double(),
            blobs.given,
            method=make_method("step-e", rho_max=0.3),
            epochs=4,
            batch_size=16,
            learning_rate=0.02,
            deterministic=True,
            device=device,
        )
        for device in ("cpu", DEVICE)
    ]
    here, there = ({name: value.cpu() for name, value in result.model.state_dict().items()} for result in results)
    torch.testing.assert_close(there, here, rtol=1e-6, atol=1e-8)
    assert torch.equal(results[0].ledger["dropped"], results[1].ledger["dropped"])
