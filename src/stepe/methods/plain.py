"""Plain training on all given labels: the paper's *Baseline*."""

from dataclasses import dataclass
from typing import ClassVar

from stepe.methods.base import Method


@dataclass
class Plain(Method):
    """Train on every sample in every epoch, by the criterion."""

    name: ClassVar[str] = "plain"
    summary: ClassVar[str] = "all samples, no cleaning (the paper's baseline)"

    def wants_probe(self, epoch: int) -> bool:
        """Ask for none."""
        return False
