"""A multilayer perceptron that learns slowly: no BatchNorm, dropout.

A model that learns wrong labels by heart within the warm-up agrees with them, and its probes then say nothing.
"""

from collections import OrderedDict
from collections.abc import Sequence

from torch import nn


class MLP(nn.Sequential):
    """Fully connected layers over flattened inputs; a sequence, so that several can train as one stack."""

    def __init__(self, inputs: int, classes: int, hidden: Sequence[int] = (256, 256), dropout: float = 0.0):
        layers: list[nn.Module] = []
        for width in hidden:
            layers += [nn.Linear(inputs, width), nn.ReLU(), nn.Dropout(dropout)]
            inputs = width
        parts = {"flat": nn.Flatten(), "body": nn.Sequential(*layers), "head": nn.Linear(inputs, classes)}
        super().__init__(OrderedDict(parts))
