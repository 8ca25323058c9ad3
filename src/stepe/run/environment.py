"""What a number was measured with: versions, commit, command line and what the caller says of the machine."""

import os
import platform
import shlex
import subprocess
import sys
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import stepe

PACKAGES = ("torch", "numpy", "scikit-learn", "pandas", "safetensors")


def environment(*, seed: int | None, device: str, device_name: str, threads: int) -> dict[str, Any]:
    """Collect everything needed to tell two measurements apart, as JSON values."""
    return {
        "stepe": stepe.__version__,
        "commit": commit(),
        "python": platform.python_version(),
        **{name.replace("-", "_"): _version(name) for name in PACKAGES},
        "platform": platform.platform(),
        "device": device,
        "device_name": device_name,
        "cpus": os.cpu_count(),
        "threads": threads,
        "seed": seed,
        "command": command_line(),
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def command_line() -> str:
    """Return the command as it was typed, without the folders of one machine: of absolute paths, the last part."""
    program = Path(sys.argv[0]).name if sys.argv and sys.argv[0] else "python"
    program = "stepe" if program in ("stepe", "__main__.py") else program
    return shlex.join([program, *(Path(word).name if Path(word).is_absolute() else word for word in sys.argv[1:])])


def commit() -> str | None:
    """Return the commit of the source tree, dirty where anything but results is changed; ``STEPE_COMMIT`` where there
    is no repository; ``None`` for an installed package.
    """
    if given := os.environ.get("STEPE_COMMIT"):
        return given
    root = Path(stepe.__file__).resolve().parents[2]
    if not (root / ".git").exists():
        return None
    try:
        head = _git(root, "rev-parse", "--short=12", "HEAD")
        # Measuring writes results.
        changed = _git(root, "status", "--porcelain", "--untracked-files=no", "--", ".", ":(exclude)results")
    except (OSError, subprocess.SubprocessError):
        return None
    return f"{head}-dirty" if changed else head


def _git(root: Path, *words: str) -> str:
    asked = subprocess.run(["git", "-C", str(root), *words], capture_output=True, text=True, timeout=10, check=True)
    return asked.stdout.strip()


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
