"""A data set with random transforms."""

import random

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset


class Jittered(Dataset[tuple[Tensor, int]]):
    """Random transforms as people write them: from whichever global generator is at hand."""

    def __init__(self, x: Tensor, y: Tensor):
        self.x, self.y = x, y

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        noise = 0.1 * torch.randn(self.x.shape[1]) + float(np.random.normal(0, 0.1)) + random.gauss(0, 0.1)  # noqa: NPY002
        return self.x[index] + noise, int(self.y[index])
