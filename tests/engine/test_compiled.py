"""Only full batches are compiled, of training and of probes, and the run is the resident engine's."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import stepe
from stepe.loop.plan import batch_sizes
from stepe.samples.augmentation import CropFlip

N, BATCH, PROBE_BATCH = 70, 16, 32


@pytest.fixture
def compiled(monkeypatch) -> dict[str, list[int]]:
    """Batch sizes that went through each compiled function; compiling itself is torch's business."""
    sizes: dict[str, list[int]] = {}

    def compile(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
        assert options["dynamic"] is False

        def call(*inputs: Any) -> Any:
            sizes.setdefault(function.__name__, []).append(len(inputs[-1]))
            return function(*inputs)

        return call

    monkeypatch.setattr(torch, "compile", compile)
    return sizes


def train(engine: str, **options: Any) -> stepe.Result:
    draw = torch.Generator().manual_seed(0)
    images = torch.rand(N, 3, 8, 8, generator=draw)
    torch.manual_seed(1)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(144, 3))
    options |= {"epochs": 3, "batch_size": BATCH, "probe_batch_size": PROBE_BATCH, "rho_max": 0.3, "warmup": 1}
    return stepe.fit(model, images, torch.arange(N) % 3, engine=engine, augment=CropFlip(1), device="cpu", **options)


def test_only_full_batches_are_compiled(compiled):
    result = train("compiled")
    full = sum(batch_sizes(row["kept"], BATCH).count(BATCH) for row in result.history)
    assert full > 0
    assert compiled.pop("_gather") == compiled.pop("forward") == [BATCH] * full
    probed = len(compiled["judged"]) // (N // PROBE_BATCH)
    assert probed > 0
    assert compiled == {"judged": [PROBE_BATCH] * (N // PROBE_BATCH) * probed}


@pytest.mark.usefixtures("compiled")
def test_the_run_is_the_resident_engines(bits):
    one, other = train("compiled"), train("resident")
    assert bits(one.model) == bits(other.model)
    assert torch.equal(one.ledger["drop_count"], other.ledger["drop_count"])
