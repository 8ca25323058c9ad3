"""Work that proceeds in steps, so that several runs can take turns on one device."""

from collections.abc import Generator
from typing import Protocol, TypeVar

T = TypeVar("T")


class Awaitable(Protocol):
    """Something on the device that will have happened, such as a ``torch.cuda.Event``."""

    def query(self) -> bool:
        """Say whether it has happened."""
        ...


Steps = Generator[Awaitable | None, None, T]
"""yields ``None`` after each piece of work it launched, or what it has to wait for before it can go on"""


def exhaust(steps: Steps[T]) -> T:
    """Carry all steps out, one after the other."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            result: T = done.value
            return result
