"""What happens to images on their way into a network: augmentation and normalisation.

The draws of an augmentation are functions of (seed, epoch, sample), the same in every engine.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from stepe.loop.randomness import Stream


@runtime_checkable
class ResidentAugment(Protocol):
    """An augmentation that can run inside a CUDA graph: its draws are made beforehand, for all samples at once."""

    def draw(self, index: Tensor, stream: Stream) -> Tensor:
        """Draw one row per sample."""
        ...

    def gather(self, images: Tensor, index: Tensor, drawn: Tensor) -> Tensor:
        """Return the augmented images of a batch, from all images and the draws of the batch; no host reads."""
        ...

    def __call__(self, x: Tensor, index: Tensor, stream: Stream) -> Tensor:
        """Augment the images of a batch that is already gathered."""
        ...


@dataclass(frozen=True)
class CropFlip:
    """Crops at random after padding with zeros, and flips at random from left to right: the paper's augmentation.

    Pure index arithmetic on images of shape (n, channels, height, width); the result is in channels-last memory.
    """

    padding: int = 4

    def draw(self, index: Tensor, stream: Stream) -> Tensor:
        """Draw for each sample how far it shifts down and right, within the padding, and whether it is flipped."""
        span = 2 * self.padding + 1
        return torch.stack(
            [
                stream.integers(index, span, draw=0) - self.padding,
                stream.integers(index, span, draw=1) - self.padding,
                stream.integers(index, 2, draw=2),
            ],
            dim=1,
        )

    def gather(self, images: Tensor, index: Tensor, drawn: Tensor) -> Tensor:
        """Read every output pixel from the place that it comes from."""
        height, width = images.shape[-2:]
        down, right, flip = drawn.unbind(1)
        row = torch.arange(height, device=images.device) + down[:, None]
        column = torch.arange(width, device=images.device)
        column = torch.where(flip[:, None] == 1, width - 1 - column, column) + right[:, None]
        inside = ((row >= 0) & (row < height))[:, :, None] & ((column >= 0) & (column < width))[:, None, :]
        # Indices on both sides of a slice put the slice last: (batch, height, width, channels).
        pixels = images[
            index[:, None, None], :, row.clamp(0, height - 1)[:, :, None], column.clamp(0, width - 1)[:, None, :]
        ]
        return torch.where(
            inside[..., None], pixels, torch.zeros((), dtype=images.dtype, device=images.device)
        ).permute(0, 3, 1, 2)

    def __call__(self, x: Tensor, index: Tensor, stream: Stream) -> Tensor:
        """Augment a batch of gathered images."""
        return self.gather(x, torch.arange(len(x), device=x.device), self.draw(index, stream))


@dataclass(frozen=True)
class Normalised:
    """Calls a model on bytes, which it scales to [0, 1] and then by means and deviations; a ``forward`` for ``fit``."""

    mean: Tensor
    std: Tensor

    @classmethod
    def by(cls, mean: Sequence[float], std: Sequence[float], device: torch.device) -> "Normalised":
        """Put one mean and one deviation per channel where the images are, because a CUDA graph cannot copy them."""
        return cls(*(torch.tensor(values, device=device).view(-1, 1, 1) for values in (mean, std)))

    def __call__(self, model: nn.Module, x: Tensor) -> Tensor:
        """Return the outputs of the model."""
        outputs: Tensor = model((x.to(torch.float32) / 255 - self.mean) / self.std)
        return outputs
