"""Errors a person can act on. The command line prints them without a traceback and exits with code 2."""


class StepeError(Exception):
    """Base of every error stepe raises on purpose."""


class InputError(StepeError, ValueError):
    """Something handed to stepe cannot be used; the message names the value and the fix."""


class RunError(StepeError, RuntimeError):
    """A run could not be written, read, or continued; the message says what to do next."""
