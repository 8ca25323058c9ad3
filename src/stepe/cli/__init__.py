"""The command line."""

from stepe.cli.app import main

__all__ = ["main"]
