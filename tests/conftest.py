"""Tiny data and models that the tests share."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
import torch
from hypothesis import HealthCheck, settings
from torch import Tensor, nn

from processes import Processes
from stepe import Truth

collect_ignore_glob = ["*conftest.py"]
"""they hold no examples to run, and pytest would take several of one name for each other"""


# How long an example takes says more about the machine than about what it tests.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")


@dataclass(frozen=True)
class Blobs:
    """Three clouds of points; some carry the label of another cloud."""

    x: Tensor
    given: Tensor
    clean: Tensor

    @property
    def truth(self) -> Truth:
        return Truth.from_labels(self.given, self.clean)


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> None:
    """Bit-equality on a CPU holds at a fixed number of threads."""
    torch.set_num_threads(1)


@pytest.fixture(autouse=True, scope="session")
def _state(tmp_path_factory) -> Iterator[None]:
    """Which runs were made here is noted beside no user's settings."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield


@pytest.fixture
def blobs() -> Blobs:
    """97 samples: a batch size of 16 leaves one over."""
    draw = torch.Generator().manual_seed(0)
    clean = torch.arange(97) % 3
    centres = 2 * torch.randn(3, 6, generator=draw)
    x = centres[clean] + torch.randn(97, 6, generator=draw)
    wrong = torch.rand(97, generator=draw) < 0.25
    shift = torch.randint(1, 3, (97,), generator=draw)
    return Blobs(x, torch.where(wrong, (clean + shift) % 3, clean), clean)


@pytest.fixture
def make_model() -> Callable[..., nn.Module]:
    """A network with all that makes bit-equality hard: BatchNorm, dropout, ragged batches."""

    def make(seed: int = 0) -> nn.Module:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 3))

    return make


@pytest.fixture
def bits() -> Callable[[nn.Module], bytes]:
    """Every parameter and buffer of a model, bit by bit."""

    def read(model: nn.Module) -> bytes:
        return b"".join(value.cpu().numpy().tobytes() for value in model.state_dict().values())

    return read


@pytest.fixture(scope="session")
def processes() -> Iterator[Processes]:
    """Real processes that can form a group; they start when they are first used."""
    started = Processes()
    yield started
    started.close()
