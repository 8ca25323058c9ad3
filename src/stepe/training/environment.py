"""What a number was measured with, the device and the threads that torch computes with included."""

import platform
from typing import Any

import torch

from stepe.run.environment import environment


def describe_environment(seed: int | None = None, device: str = "cpu") -> dict[str, Any]:
    """Describe everything needed to tell two measurements apart, as JSON values."""
    return environment(seed=seed, device=device, device_name=device_name(device), threads=torch.get_num_threads())


def device_name(device: str) -> str:
    """Name the model of a GPU, or the kind of processor."""
    if device.startswith("cuda"):
        return torch.cuda.get_device_name(torch.device(device))
    return platform.processor() or platform.machine()
