"""Strong augmentation: a share of the pictures is also turned, sheared, zoomed, moved, recoloured and cut into.

What is drawn are fixed-point numbers, and pixels are moved and recoloured by whole-number arithmetic: every device and
engine makes the same bytes.
"""

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor

from stepe.errors import InputError
from stepe.loop.randomness import Stream
from stepe.samples.augmentation import CropFlip, ResidentAugment

# The furthest each transformation goes, either way. All of them happen at once, so each stays below what RandAugment
# (Cubuk et al., 2020), which draws two of many, does at its strongest.
ANGLE = math.radians(20)
SHEAR = 0.2
ZOOM = 0.2
SHIFT = 0.1
"""share of height and width"""
CONTRAST = 0.5
SATURATION = 0.7
BRIGHTNESS = 50
"""steps of 255"""
CUT = 0.5
"""side of the largest square that is cut out, of the shorter side"""

BITS = 16
ONE = 1 << BITS
"""1 as a fixed-point number"""
GREY = 128
"""where nothing is to be seen; contrast grows away from it"""
COLUMNS = 13
"""numbers drawn for a picture, besides the base's"""


@dataclass(frozen=True)
class Strong:
    """Transforms a ``share`` of the pictures strongly, after another augmentation; the others pass untouched.

    For bytes of shape (n, channels, height, width); the result is in channels-last memory.
    """

    base: ResidentAugment = field(default_factory=CropFlip)
    share: float = 0.3

    def __post_init__(self) -> None:
        if not 0 <= self.share <= 1:
            raise InputError(f"the share of strongly augmented pictures is {self.share!r}; it must be in [0, 1]")

    def draw(self, index: Tensor, stream: Stream) -> Tensor:
        """Draw for each picture the row of the base, whether it is among the share, and what happens to it then."""
        own = Stream.named(stream.seed, "strong")  # a stream apart, whatever the base draws from its own

        def swing(draw: int, most: float) -> Tensor:
            return (2 * own.uniform(index, draw) - 1) * most

        # By the tangent of half the angle: cosine and sine take no more than a division, which every device does alike.
        half = swing(1, math.tan(ANGLE / 2))
        cosine, sine = (1 - half * half) / (1 + half * half), 2 * half / (1 + half * half)
        shear, zoom = swing(2, SHEAR), 1 + swing(3, ZOOM)
        contrast, saturation = 1 + swing(6, CONTRAST), 1 + swing(7, SATURATION)
        colour = _fixed(contrast * saturation)
        columns = [
            (own.uniform(index, 0) < self.share).to(torch.int64),
            # Source row and column for a step down, and for a step to the right.
            _fixed(zoom * (cosine - sine * shear)),
            _fixed(zoom * (sine + cosine * shear)),
            _fixed(zoom * -sine),
            _fixed(zoom * cosine),
            _fixed(swing(4, SHIFT)),
            _fixed(swing(5, SHIFT)),
            # What a channel, the mean of all channels and 1 contribute to a new channel.
            colour,
            _fixed(contrast) - colour,
            _fixed((1 - contrast) * GREY + swing(8, BRIGHTNESS)),
            # The square that is cut out: side and centre.
            _fixed(own.uniform(index, 9) * CUT),
            _fixed(own.uniform(index, 10)),
            _fixed(own.uniform(index, 11)),
        ]
        return torch.cat([self.base.draw(index, stream), torch.stack(columns, 1)], 1)

    def gather(self, images: Tensor, index: Tensor, drawn: Tensor) -> Tensor:
        """Return the pictures that the base gives; those among the share are transformed."""
        if images.dtype != torch.uint8:
            raise InputError(f"a strong augmentation works on bytes (torch.uint8), and the images are {images.dtype}")
        pictures = self.base.gather(images, index, drawn[:, :-COLUMNS]).permute(0, 2, 3, 1)
        # Whole numbers, also beside a base that draws fractions.
        chosen, *numbers = drawn[:, -COLUMNS:].to(torch.int64).view(len(drawn), 1, 1, COLUMNS).unbind(3)
        pixels, inside = _move(pictures, *numbers[:6])
        seen = inside & ~_hole(pictures, *numbers[9:])
        # No where() of a number: a graph cannot copy it to the device.
        strong = _recolour(pixels, *numbers[6:9]).masked_fill(~seen[..., None], GREY).to(torch.uint8)
        return torch.where(chosen[..., None] == 1, strong, pictures).permute(0, 3, 1, 2)

    def __call__(self, x: Tensor, index: Tensor, stream: Stream) -> Tensor:
        """Augment a batch of gathered images."""
        return self.gather(x, torch.arange(len(x), device=x.device), self.draw(index, stream))


def _fixed(values: Tensor) -> Tensor:
    return torch.round(values * ONE).to(torch.int64)


def _grid(pictures: Tensor) -> tuple[Tensor, Tensor]:
    """Return the row and column of every pixel, to be broadcast against (pictures, height, width)."""
    height, width = pictures.shape[1:3]
    rows, columns = (torch.arange(size, device=pictures.device) for size in (height, width))
    return rows[:, None], columns[None, :]


def _move(
    pictures: Tensor,
    row_down: Tensor,
    column_down: Tensor,
    row_right: Tensor,
    column_right: Tensor,
    down: Tensor,
    right: Tensor,
) -> tuple[Tensor, Tensor]:
    """Take every pixel from the one nearest to where an affine map about the centre leads, and say where one is."""
    height, width = pictures.shape[1:3]
    row, column = _grid(pictures)
    # Twice the distance from the centre, which may lie between two pixels.
    below, beside = 2 * row - (height - 1), 2 * column - (width - 1)
    twice_row = row_down * below + row_right * beside + 2 * down * height + (height - 1) * ONE
    twice_column = column_down * below + column_right * beside + 2 * right * width + (width - 1) * ONE
    source_row, source_column = (twice_row + ONE) >> BITS + 1, (twice_column + ONE) >> BITS + 1
    inside = (source_row >= 0) & (source_row < height) & (source_column >= 0) & (source_column < width)
    each = torch.arange(len(pictures), device=pictures.device)[:, None, None]
    return pictures[each, source_row.clamp(0, height - 1), source_column.clamp(0, width - 1)], inside


def _recolour(pixels: Tensor, own: Tensor, grey: Tensor, constant: Tensor) -> Tensor:
    """Change brightness, contrast and saturation in one step: an affine map of a channel and the mean of all."""
    own, grey, constant = (number[..., None].to(torch.int32) for number in (own, grey, constant))
    values = pixels.to(torch.int32)
    mean = values.sum(3, keepdim=True, dtype=torch.int32) // values.shape[3]
    return ((own * values + grey * mean + constant + ONE // 2) >> BITS).clamp(0, 255)


def _hole(pictures: Tensor, side: Tensor, centre_row: Tensor, centre_column: Tensor) -> Tensor:
    """Say where a square is cut out; its centre is within the picture, all of it need not be."""
    height, width = pictures.shape[1:3]
    row, column = _grid(pictures)
    side = side * min(height, width) >> BITS
    top, left = (centre_row * height >> BITS) - side // 2, (centre_column * width >> BITS) - side // 2
    return (row >= top) & (row < top + side) & (column >= left) & (column < left + side)
