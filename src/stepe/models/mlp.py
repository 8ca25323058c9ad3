"""A multilayer perceptron that learns slowly: no BatchNorm, dropout.

A model that learns wrong labels by heart within the warm-up agrees with them, and its probes then say nothing.
"""

from collections.abc import Sequence

from torch import Tensor, nn


class MLP(nn.Module):
    """Fully connected layers over flattened inputs."""

    def __init__(self, inputs: int, classes: int, hidden: Sequence[int] = (256, 256), dropout: float = 0.0):
        super().__init__()
        layers: list[nn.Module] = []
        for width in hidden:
            layers += [nn.Linear(inputs, width), nn.ReLU(), nn.Dropout(dropout)]
            inputs = width
        self.body = nn.Sequential(*layers)
        self.head = nn.Linear(inputs, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        logits: Tensor = self.head(self.body(x.flatten(1)))
        return logits
