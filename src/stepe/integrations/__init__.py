"""Adapters: the same method, ledger and plan inside other people's training."""

from stepe.errors import InputError


def missing(extra: str) -> InputError:
    """The error for a library that is not installed."""
    return InputError(f'{extra} is not installed; install it with: pip install "stepe[{extra}]"')
