"""What an interrupt leaves behind: a run that goes on."""

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def resumable(out: Path) -> Iterator[None]:
    """Let an interrupt say how the run goes on, if there is something to go on with."""
    try:
        yield
    except KeyboardInterrupt as interrupt:
        if (out / "config.json").exists() and not getattr(interrupt, "__notes__", ()):
            interrupt.add_note(f"Continue with: stepe clean --resume {shlex.quote(str(out))}")
        raise
