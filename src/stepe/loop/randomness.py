"""Named randomness: every draw is a function of (seed, purpose, epoch, sample), never of earlier draws.

Workers, ranks, resumed runs and engines then agree by construction, and a probe cannot disturb training.

The generator is SplitMix64 in its counter form: a stream is a 64-bit key, a sample's state is
``mix(key + G * (sample + 1))``, and its j-th draw is ``mix(state + G * (j + 1))``. It runs as plain int64 tensor
arithmetic, so CPU and GPU give the same bits and a CUDA graph can hold it.
"""

import contextlib
import hashlib
import random
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor


def _signed(value: int) -> int:
    """The int64 with the same 64 bits as ``value``: torch has no full unsigned arithmetic."""
    value &= (1 << 64) - 1
    return value - (1 << 64) if value >> 63 else value


_GOLDEN = _signed(0x9E3779B97F4A7C15)
_MULTIPLIER_1 = _signed(0xBF58476D1CE4E5B9)
_MULTIPLIER_2 = _signed(0x94D049BB133111EB)


def _shift_right(bits: Tensor, by: int) -> Tensor:
    """Logical right shift: torch's ``>>`` on int64 copies the sign bit."""
    return (bits >> by) & ((1 << (64 - by)) - 1)


def _mix(bits: Tensor) -> Tensor:
    bits = (bits ^ _shift_right(bits, 30)) * _MULTIPLIER_1
    bits = (bits ^ _shift_right(bits, 27)) * _MULTIPLIER_2
    return bits ^ _shift_right(bits, 31)


@dataclass(frozen=True)
class Stream:
    """The draws of one purpose, for example the order of epoch 7 under seed 42."""

    key: int

    @classmethod
    def named(cls, seed: int, purpose: str, epoch: int = 0, step: int = 0) -> "Stream":
        """The stream of a purpose. Distinct names give unrelated streams."""
        name = f"{seed}/{purpose}/{epoch}/{step}".encode()
        return cls(_signed(int.from_bytes(hashlib.blake2b(name, digest_size=8).digest(), "little")))

    @property
    def seed(self) -> int:
        """The key as a non-negative number, for libraries that want to be seeded."""
        return self.key & ((1 << 63) - 1)

    def bits(self, sample: Tensor, draw: int = 0) -> Tensor:
        """64 random bits for each sample index, as int64."""
        state = _mix(sample.to(torch.int64) * _GOLDEN + _signed(self.key + _GOLDEN))
        return _mix(state + _signed(_GOLDEN * (draw + 1)))

    def uniform(self, sample: Tensor, draw: int = 0) -> Tensor:
        """A float32 in [0, 1) for each sample index: 24 bits, so every value is exact on every device."""
        return _shift_right(self.bits(sample, draw), 40).to(torch.float32) * (1.0 / (1 << 24))

    def integers(self, sample: Tensor, high: int | Tensor, draw: int = 0) -> Tensor:
        """An integer in [0, high) for each sample index; ``high`` is at most 2**31."""
        return (_shift_right(self.bits(sample, draw), 32) * high) >> 32

    def normal(self, sample: Tensor, draw: int = 0) -> Tensor:
        """A standard normal float32 for each sample index (Box-Muller; uses two draws)."""
        radius = torch.sqrt(-2.0 * torch.log1p(-self.uniform(sample, 2 * draw)))
        return radius * torch.cos(2.0 * torch.pi * self.uniform(sample, 2 * draw + 1))

    def shuffle(self, sample: Tensor) -> Tensor:
        """The given indices in random order.

        The order sorts one draw per sample, so a subset comes in the order its members have in the whole.
        """
        return sample[torch.argsort(self.bits(sample), stable=True)]

    def member(self, sample: int) -> "Stream":
        """The stream of one sample, for what needs more than a few draws."""
        return Stream(int(self.bits(torch.tensor(sample)).item()))


def seed_globals(stream: Stream, device: torch.device | None = None) -> None:
    """Seed the global generators that people's models and transforms draw from.

    A GPU's generator is seeded only when its device is named, so that fetching data never touches it.
    """
    torch.default_generator.manual_seed(stream.seed)
    random.seed(stream.seed)
    # numpy's legacy generator is what other people's transforms read; it takes 32 bits.
    np.random.seed(stream.seed & 0xFFFFFFFF)  # noqa: NPY002
    if device is not None and device.type == "cuda":
        torch.cuda.default_generators[device.index or 0].manual_seed(stream.seed)
    elif device is not None and device.type == "mps":
        torch.mps.manual_seed(stream.seed)


@contextlib.contextmanager
def preserved(device: torch.device | None = None) -> Iterator[None]:
    """Run a block and put every global generator back as it was."""
    python_state, numpy_state = random.getstate(), np.random.get_state()  # noqa: NPY002
    mps_state = torch.mps.get_rng_state() if device is not None and device.type == "mps" else None
    with torch.random.fork_rng(devices=[device] if device is not None and device.type == "cuda" else []):
        try:
            yield
        finally:
            random.setstate(python_state)
            np.random.set_state(numpy_state)  # noqa: NPY002
            if mps_state is not None:
                torch.mps.set_rng_state(mps_state)


@contextlib.contextmanager
def seeded(stream: Stream, device: torch.device | None = None) -> Iterator[None]:
    """Run a block under the stream's seed and put every global generator back as it was."""
    with preserved(device):
        seed_globals(stream, device)
        yield
