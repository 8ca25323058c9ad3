"""Six epochs in which the kept set shrinks to 40%, on data that records what is fetched from it."""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import Dataset

N, EPOCHS, BATCH = 97, 6, 16
SHRINKS: dict[str, Any] = {"epochs": EPOCHS, "rho_max": 0.6, "warmup": 1, "ramp_end": 4}
KEPT = N - int(0.6 * N)


class Recorded(Dataset[tuple[Tensor, int]]):
    """Counts, in memory that processes share, how often each sample is fetched."""

    def __init__(self, x: Tensor, y: Tensor):
        self.x, self.y = x, y
        self.fetched = torch.zeros(len(x), dtype=torch.int64).share_memory_()

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        self.fetched[index] += 1
        return self.x[index], int(self.y[index])

    def take(self) -> Tensor:
        """How often each sample was fetched since this was last asked."""
        counts = self.fetched.clone()
        self.fetched.zero_()
        return counts


def clouds(n: int = N) -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(0)
    clean = torch.arange(n) % 3
    x = (2 * torch.randn(3, 6, generator=draw))[clean] + torch.randn(n, 6, generator=draw)
    wrong = torch.rand(n, generator=draw) < 0.3
    return x, torch.where(wrong, (clean + 1) % 3, clean)


def network() -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3))


def sources() -> tuple[Recorded, Recorded]:
    """One for training and one for the probe, so that the two cannot be confused."""
    return Recorded(*clouds()), Recorded(*clouds())


def probed_apart(training: Recorded, probed: Recorded) -> dict[str, Any]:
    return SHRINKS | {"view": "plain", "plain_view": probed, "labels": training.y}


def assert_trained(counts: Tensor, kept: Tensor, length: str) -> None:
    """Each kept sample once, or equally often up to one; dropped ones never."""
    assert bool((counts[~kept] == 0).all())
    share = len(kept) / int(kept.sum()) if length == "full" else 1
    assert set(counts[kept].tolist()) <= {math.floor(share), math.ceil(share)}
    assert int(counts.sum()) == (len(kept) if length == "full" else int(kept.sum()))


def losses(model: nn.Module, batch: Any) -> Tensor:
    x, y = batch
    return F.cross_entropy(model(x), y, reduction="none")


def untimed(history: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows of a history without what their epochs took."""
    return [{name: value for name, value in row.items() if not name.endswith("seconds")} for row in history]
