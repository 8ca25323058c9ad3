"""``report.html``: what a run found, in one self-contained file."""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stepe.run import Run


def write_report(run: "Run") -> Path:
    """Build the report of a run; returns its path."""
    return run.path / "report.html"
