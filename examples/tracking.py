"""The history of a run in TensorBoard, and a tracker of one's own.

Look at the first with ``tensorboard --logdir logs``.

    python examples/tracking.py logs
"""

import sys
from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

import stepe
from stepe.training.building import Training
from stepe.training.trackers import TensorBoard, Tracker


class Printed(Tracker):
    """The shortest tracker there is: nothing remains of it, so nothing is there when a run resumes."""

    def open(self, training: Training) -> Iterable[int]:
        print(f"{training.task.epochs} epochs of {training.method.name}")
        return []

    def log(self, epoch: int, numbers: dict[str, float]) -> None:
        print(f"epoch {epoch}: loss {numbers['train_loss']:.3f}, {numbers['kept']} kept")

    def close(self, summary: dict[str, Any]) -> None:
        print(f"{summary['flagged']} labels look wrong")


def main(folder: str = "logs") -> None:
    generator = torch.Generator().manual_seed(0)
    clean = torch.arange(600) % 3
    x = 2 * torch.eye(3, 10)[clean] + torch.randn(600, 10, generator=generator)
    given = torch.where(torch.rand(600, generator=generator) < 0.2, (clean + 1) % 3, clean)

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 3))
    stepe.fit(model, x, given, noise_rate=0.2, epochs=10, device="cpu", observers=(TensorBoard(folder), Printed()))


if __name__ == "__main__":
    main(*sys.argv[1:])
