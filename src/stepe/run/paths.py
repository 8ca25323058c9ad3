"""Paths that a run folder names: its config.json says where the input lies, and somebody else may have written that.

Such a path is followed where this user made the run on this machine, which a note outside the folder says, where it
lies below the folder that the command runs in, and where the user agrees. A path that was typed needs none of these.
"""

import hashlib
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from stepe.errors import RunError
from stepe.files import exists, inside

Trust = bool | Callable[[str], bool]
"""whether a run folder's paths are followed, or a question that is asked about them"""


def remember(folder: Path) -> None:
    """Note that this user made a run, so that nothing is asked about its paths."""
    with suppress(OSError, RuntimeError):  # where no note can be kept, people are asked
        note = _note(folder)
        note.parent.mkdir(parents=True, exist_ok=True)
        note.touch()


def check_paths(folder: Path, named: Mapping[str, Iterable[Path]], trust: Trust) -> None:
    """Refuse to follow the paths of a run that was made elsewhere, by what they are, unless the user agrees."""
    if trust is True or _made_here(folder):
        return
    outside = [f"{what} {str(out)!r}" for what, paths in named.items() for path in paths for out in _outside(path)]
    if not outside:
        return
    said = f"{folder} was not made here, and names what lies outside of {Path.cwd()}: {', '.join(outside)}"
    if not (trust and trust(said)):
        raise RunError(f"{said}; if that is to be used, add --trust-paths (in Python, trust_paths=True)")


def local_paths(text: str) -> list[Path]:
    """Find what a recorded name leads to on this machine; ``:`` and ``,`` may stand beside a path (``hf:NAME``)."""
    found = [Path(part) for part in dict.fromkeys((text, *re.split("[:,]", text))) if part]
    return [path for path in found if exists(path)]


def _outside(path: Path) -> Iterator[Path]:
    """Give a path that leads out of the working folder; of a folder in it, the links that do."""
    if _leads_out(path):
        yield path
        return
    for parent, folders, files in os.walk(path):
        links = (link for name in (*folders, *files) if (link := Path(parent, name)).is_symlink())
        yield from filter(_leads_out, links)


def _leads_out(path: Path) -> bool:
    """Say whether a path leads out of the working folder; from a home folder or above it, everything does."""
    try:
        here, home = Path.cwd(), Path("~").expanduser().resolve()
        return home.is_relative_to(here) or not path.resolve().is_relative_to(here)
    except (OSError, RuntimeError, ValueError):  # no home, a link to itself, a name that no file can have
        return True


def _made_here(folder: Path) -> bool:
    try:
        return _note(folder).exists()
    except (OSError, RuntimeError):
        return False


def _note(folder: Path) -> Path:
    state = Path(os.environ.get("XDG_STATE_HOME") or "~/.local/state").expanduser()
    return state / "stepe" / "runs" / hashlib.sha256(inside(folder, "config.json").read_bytes()).hexdigest()
