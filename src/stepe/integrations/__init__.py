"""Adapters: the same method, ledger and plan inside other people's training, and other people's tools.

Each is a few dozen lines, never a second implementation, and needs an extra of its own. May import all but
``reproduction`` and ``cli``.
"""

from stepe.errors import InputError


def missing(extra: str) -> InputError:
    """Make the error for a library that is not installed."""
    return InputError(f'{extra} is not installed; install it with: pip install "stepe[{extra}]"')
