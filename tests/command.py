"""Commands in tests."""

from typing import NamedTuple


class Ended(NamedTuple):
    """A command that is over."""

    code: int
    out: str
    err: str
