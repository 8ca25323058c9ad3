"""Named randomness on tensors, and the global generators that people's models and transforms draw from.

Plain int64 tensor arithmetic: CPU and GPU give the bits of :mod:`stepe.loop.draws`, and a CUDA graph can hold it.
"""

import contextlib
import random
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from stepe.loop.draws import GOLDEN, MULTIPLIERS, Draws, signed


def _shift_right(bits: Tensor, by: int) -> Tensor:
    """Logical right shift: torch's ``>>`` on int64 copies the sign bit."""
    return (bits >> by) & ((1 << (64 - by)) - 1)


def _mix(bits: Tensor) -> Tensor:
    first, second = MULTIPLIERS
    bits = (bits ^ _shift_right(bits, 30)) * first
    bits = (bits ^ _shift_right(bits, 27)) * second
    return bits ^ _shift_right(bits, 31)


class Stream(Draws):
    """The same draws as tensors, where the sample indices are."""

    def bits(self, sample: Tensor, draw: int = 0) -> Tensor:  # type: ignore[override]
        """64 random bits for each sample index, as int64."""
        state = _mix(sample.to(torch.int64) * GOLDEN + signed(self.key + GOLDEN))
        return _mix(state + signed(GOLDEN * (draw + 1)))

    def uniform(self, sample: Tensor, draw: int = 0) -> Tensor:  # type: ignore[override]
        """Draw a float32 in [0, 1) for each sample index: 24 bits, so every value is exact on every device."""
        return _shift_right(self.bits(sample, draw), 40).to(torch.float32) * (1.0 / (1 << 24))

    def integers(self, sample: Tensor, high: int | Tensor, draw: int = 0) -> Tensor:  # type: ignore[override]
        """Draw an integer in [0, high) for each sample index; ``high`` is at most 2**31."""
        return (_shift_right(self.bits(sample, draw), 32) * high) >> 32

    def normal(self, sample: Tensor, draw: int = 0) -> Tensor:  # type: ignore[override]
        """Draw a standard normal float32 for each sample index (Box-Muller; uses two draws)."""
        radius = torch.sqrt(-2.0 * torch.log1p(-self.uniform(sample, 2 * draw)))
        return radius * torch.cos(2.0 * torch.pi * self.uniform(sample, 2 * draw + 1))

    def shuffle(self, sample: Tensor) -> Tensor:  # type: ignore[override]
        """Put the given indices in random order, that of :meth:`stepe.loop.draws.Draws.shuffle`."""
        return sample[torch.argsort(self.bits(sample), stable=True)]

    def member(self, sample: int) -> "Stream":
        """Return the stream of one sample, for what needs more than a few draws."""
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
