"""Named randomness on arrays: every draw is a function of (seed, purpose, epoch, sample), never of earlier draws.

Workers, ranks, resumed runs and engines then agree by construction, and a probe cannot disturb training.

The generator is SplitMix64 in its counter form: a stream is a 64-bit key, a sample's state is
``mix(key + G * (sample + 1))``, and its j-th draw is ``mix(state + G * (j + 1))``.
:class:`stepe.loop.randomness.Stream`
draws the same bits as tensors, on any device.
"""

import hashlib
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]


def signed(value: int) -> int:
    """Return the int64 with the same 64 bits as ``value``."""
    value &= (1 << 64) - 1
    return value - (1 << 64) if value >> 63 else value


GOLDEN = signed(0x9E3779B97F4A7C15)
MULTIPLIERS = signed(0xBF58476D1CE4E5B9), signed(0x94D049BB133111EB)


def _shift_right(bits: Integers, by: int) -> Integers:
    """Logical right shift: ``>>`` on int64 copies the sign bit."""
    return (bits >> by) & ((1 << (64 - by)) - 1)


def _mix(bits: Integers) -> Integers:
    first, second = MULTIPLIERS
    bits = (bits ^ _shift_right(bits, 30)) * first
    bits = (bits ^ _shift_right(bits, 27)) * second
    return bits ^ _shift_right(bits, 31)


@dataclass(frozen=True)
class Draws:
    """The draws of one purpose, for example the folds of a split under seed 42."""

    key: int

    @classmethod
    def named(cls, seed: int, purpose: str, epoch: int = 0, step: int = 0) -> Self:
        """Return the draws of a purpose. Distinct names give unrelated draws."""
        name = f"{seed}/{purpose}/{epoch}/{step}".encode()
        return cls(signed(int.from_bytes(hashlib.blake2b(name, digest_size=8).digest(), "little")))

    @property
    def seed(self) -> int:
        """The key as a non-negative number, for libraries that want to be seeded."""
        return self.key & ((1 << 63) - 1)

    def bits(self, sample: npt.ArrayLike, draw: int = 0) -> Integers:
        """64 random bits for each sample index, as int64."""
        index = np.atleast_1d(np.asarray(sample, dtype=np.int64))
        state = _mix(index * GOLDEN + signed(self.key + GOLDEN))
        return _mix(state + signed(GOLDEN * (draw + 1))).reshape(np.shape(sample))

    def uniform(self, sample: npt.ArrayLike, draw: int = 0) -> npt.NDArray[np.float32]:
        """Draw a float32 in [0, 1) for each sample index: 24 bits, so every value is exact."""
        return _shift_right(self.bits(sample, draw), 40).astype(np.float32) * np.float32(1.0 / (1 << 24))

    def integers(self, sample: npt.ArrayLike, high: "int | Integers", draw: int = 0) -> Integers:
        """Draw an integer in [0, high) for each sample index; ``high`` is at most 2**31."""
        return (_shift_right(self.bits(sample, draw), 32) * high) >> 32

    def normal(self, sample: npt.ArrayLike, draw: int = 0) -> npt.NDArray[np.float32]:
        """Draw a standard normal float32 for each sample index (Box-Muller; uses two draws)."""
        radius = np.sqrt(np.float32(-2.0) * np.log1p(-self.uniform(sample, 2 * draw)))
        found: npt.NDArray[np.float32] = radius * np.cos(np.float32(2 * np.pi) * self.uniform(sample, 2 * draw + 1))
        return found

    def shuffle(self, sample: npt.ArrayLike) -> Integers:
        """Put the given indices in random order.

        The order sorts one draw per sample, so a subset comes in the order its members have in the whole.
        """
        index = np.asarray(sample, dtype=np.int64)
        return index[np.argsort(self.bits(index), kind="stable")]

    def member(self, sample: int) -> Self:
        """Return the draws of one sample, for what needs more than a few."""
        return type(self)(int(self.bits([sample])[0]))
