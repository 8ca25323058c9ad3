"""The command line: a file a command. It reads words, calls ``app``, and prints what comes back.

No torch of its own. May import every room; nobody imports it.
"""

from stepe.cli.app import main

__all__ = ["main"]
