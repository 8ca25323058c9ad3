import math
from fractions import Fraction

import pytest
import torch
from torch import Tensor

from stepe import InputError
from stepe.loop.randomness import Stream
from stepe.samples.augmentation import CropFlip, ResidentAugment
from stepe.samples.strong import (
    ANGLE,
    BRIGHTNESS,
    COLUMNS,
    CONTRAST,
    CUT,
    GREY,
    ONE,
    SATURATION,
    SHEAR,
    SHIFT,
    ZOOM,
    Strong,
)

STREAM = Stream.named(3, "augment", 7)
SHAPES = [(3, 8, 8), (1, 7, 5), (4, 1, 3), (3, 6, 11)]


def pictures(n: int = 60, shape: tuple[int, int, int] = (3, 8, 8)) -> Tensor:
    return torch.randint(0, 256, (n, *shape), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)


def drawn_numbers(n: int = 20_000) -> list[Tensor]:
    """What is drawn besides the base's, as the fractions they stand for."""
    drawn = Strong(share=0.3).draw(torch.arange(n), STREAM)[:, -COLUMNS:]
    chosen, *numbers = drawn.unbind(1)
    return [chosen, *(number.double() / ONE for number in numbers)]


def nearest(value: Fraction) -> int:
    return math.floor(value + Fraction(1, 2))


def reference(picture: Tensor, row: list[int]) -> Tensor:
    """One picture, pixel by pixel, in exact fractions: move, recolour, cut."""
    chosen, *drawn = row
    if not chosen:
        return picture
    numbers = [Fraction(number, ONE) for number in drawn]
    row_down, column_down, row_right, column_right, down, right, own, grey, constant, side, middle_y, middle_x = numbers
    channels, height, width = picture.shape
    centre_y, centre_x = Fraction(height - 1, 2), Fraction(width - 1, 2)
    square = math.floor(side * min(height, width))
    top = math.floor(middle_y * height) - square // 2
    left = math.floor(middle_x * width) - square // 2
    result = torch.full_like(picture, GREY)
    for y in range(height):
        for x in range(width):
            if top <= y < top + square and left <= x < left + square:
                continue
            dy, dx = y - centre_y, x - centre_x
            source_y = nearest(centre_y + row_down * dy + row_right * dx + down * height)
            source_x = nearest(centre_x + column_down * dy + column_right * dx + right * width)
            if not (0 <= source_y < height and 0 <= source_x < width):
                continue
            pixel = picture[:, source_y, source_x].tolist()
            mean = sum(pixel) // channels
            for channel, value in enumerate(pixel):
                result[channel, y, x] = min(max(nearest(own * value + grey * mean + constant), 0), 255)
    return result


@pytest.mark.parametrize("share", [0.3, 1.0])
@pytest.mark.parametrize("shape", SHAPES)
def test_every_picture_is_moved_recoloured_and_cut_as_drawn(shape, share):
    augment, images, index = Strong(CropFlip(2), share), pictures(shape=shape), torch.arange(60)
    based = CropFlip(2)(images, index, STREAM)
    rows = augment.draw(index, STREAM)[:, -COLUMNS:].tolist()
    found = augment(images, index, STREAM)
    assert found.dtype == torch.uint8
    assert torch.equal(found, torch.stack([reference(*pair) for pair in zip(based, rows, strict=True)]))


def test_what_moves_nothing_leaves_a_picture_as_it_is():
    images, still = pictures(), [1, ONE, 0, 0, ONE, 0, 0, ONE, 0, 0, 0, 0, 0]
    drawn = torch.tensor([[0, 0, 0, *still]]).expand(60, -1)
    assert torch.equal(Strong().gather(images, torch.arange(60), drawn), images)


def test_a_quarter_turn_turns_a_picture_by_a_quarter():
    images, turn = pictures(), [1, 0, ONE, -ONE, 0, 0, 0, ONE, 0, 0, 0, 0, 0]
    drawn = torch.tensor([[0, 0, 0, *turn]]).expand(60, -1)
    assert torch.equal(Strong().gather(images, torch.arange(60), drawn), torch.rot90(images, -1, (2, 3)))


def test_only_the_share_is_transformed_and_the_rest_is_the_bases():
    images, index = pictures(2000), torch.arange(2000)
    augment, based = Strong(CropFlip(1), share=0.3), CropFlip(1)(images, index, STREAM)
    chosen = augment.draw(index, STREAM)[:, -COLUMNS] == 1
    changed = (augment(images, index, STREAM) != based).flatten(1).any(1)
    assert torch.equal(changed, chosen)
    assert float(chosen.double().mean()) == pytest.approx(0.3, abs=0.04)


def test_no_share_is_the_base():
    images, index = pictures(), torch.arange(60)
    assert torch.equal(Strong(CropFlip(3), share=0)(images, index, STREAM), CropFlip(3)(images, index, STREAM))


def test_a_larger_share_takes_in_the_smaller_one():
    index = torch.arange(500)
    small, large = (Strong(share=share).draw(index, STREAM) for share in (0.2, 0.7))
    assert (small[:, -COLUMNS] <= large[:, -COLUMNS]).all()
    assert torch.equal(small[:, 1 - COLUMNS :], large[:, 1 - COLUMNS :])


def test_pictures_are_turned_sheared_zoomed_and_moved_as_far_as_stated():
    _, row_down, column_down, row_right, column_right, down, right, *_ = drawn_numbers()
    angle = torch.atan2(-row_right, column_right)
    zoom = torch.hypot(row_right, column_right)
    shear = (row_down * row_right + column_down * column_right) / zoom**2
    for found, furthest in ((angle, ANGLE), (zoom - 1, ZOOM), (shear, SHEAR), (down, SHIFT), (right, SHIFT)):
        assert 0.95 * furthest < float(found.max()) <= furthest + 1e-3
        assert 0.95 * furthest < -float(found.min()) <= furthest + 1e-3
        assert float(found.mean()) == pytest.approx(0, abs=0.03 * furthest)
    torch.testing.assert_close(row_down * column_right - row_right * column_down, zoom**2, rtol=0, atol=1e-3)
    assert torch.corrcoef(torch.stack([angle, zoom, shear, down, right])).triu(1).abs().max() < 0.05


def test_colours_and_cuts_go_as_far_as_stated():
    *_, own, grey, constant, side, middle_y, middle_x = drawn_numbers()
    contrast, saturation = own + grey, own / (own + grey)
    brightness = constant - (1 - contrast) * GREY
    for found, furthest in ((contrast - 1, CONTRAST), (saturation - 1, SATURATION), (brightness, BRIGHTNESS)):
        assert 0.95 * furthest < float(found.abs().max()) <= furthest * 1.01
        assert float(found.mean()) == pytest.approx(0, abs=0.03 * furthest)
    for found, largest in ((side, CUT), (middle_y, 1), (middle_x, 1)):
        assert 0 <= float(found.min()) < 0.01
        assert 0.99 * largest < float(found.max()) <= largest


def test_a_picture_without_colours_has_no_saturation():
    """Its one channel is the mean of all: contrast and brightness remain."""
    augment, images, index = Strong(share=1.0), pictures(shape=(1, 8, 8)), torch.arange(60)
    drawn = augment.draw(index, STREAM)
    flat = drawn.clone()
    flat[:, -6] += flat[:, -5]
    flat[:, -5] = 0
    assert torch.equal(augment.gather(images, index, drawn), augment.gather(images, index, flat))


def test_a_samples_draws_do_not_depend_on_its_batch():
    augment, images = Strong(share=0.5), pictures()
    part = torch.tensor([31, 2, 2, 17])
    assert torch.equal(augment(images[part], part, STREAM), augment(images, torch.arange(60), STREAM)[part])


def test_draws_differ_by_seed_epoch_and_sample_and_are_not_the_bases():
    augment, index = Strong(share=0.5), torch.arange(60)
    names = [(3, "augment", 7), (4, "augment", 7), (3, "augment", 8), (3, "probe", 7)]
    drawn = [augment.draw(index, Stream.named(*name)) for name in names]
    assert torch.equal(drawn[0], augment.draw(index, STREAM))
    assert torch.equal(drawn[0][:, :-COLUMNS], CropFlip().draw(index, STREAM))
    assert len({tuple(draw.flatten().tolist()) for draw in drawn}) == len(names)
    assert len(drawn[0][:, 1 - COLUMNS :].unique(dim=0)) == 60
    many = augment.draw(torch.arange(10_000), STREAM).double()
    between = torch.corrcoef(many.T)[:-COLUMNS, -COLUMNS:]
    assert between.abs().max() < 0.05


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_gathering_from_all_images_is_the_call_on_gathered_ones(layout):
    augment, images = Strong(share=0.5), pictures().contiguous(memory_format=layout)
    index = torch.tensor([5, 39, 0, 5, 12])
    found = augment.gather(images, index, augment.draw(index, STREAM))
    assert torch.equal(found, augment(images[index], index, STREAM))
    assert found.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(images, pictures())


def test_it_can_be_resident_and_stand_on_itself():
    images, index = pictures(), torch.arange(60)
    assert isinstance(Strong(), ResidentAugment)
    twice = Strong(Strong(share=0.5), share=0)
    assert torch.equal(twice(images, index, STREAM), Strong(share=0.5)(images, index, STREAM))


def test_a_base_may_draw_fractions():
    class Shaded:
        """Darkens pictures by a fraction."""

        def draw(self, index: Tensor, stream: Stream) -> Tensor:
            return stream.uniform(index)[:, None]

        def gather(self, images: Tensor, index: Tensor, drawn: Tensor) -> Tensor:
            return (images[index] * drawn[..., None, None]).to(torch.uint8)

        def __call__(self, x: Tensor, index: Tensor, stream: Stream) -> Tensor:
            return self.gather(x, torch.arange(len(x)), self.draw(index, stream))

    images, index = pictures(), torch.arange(60)
    rows = Strong(share=0.5).draw(index, STREAM)[:, -COLUMNS:].tolist()
    shaded = Shaded()(images, index, STREAM)
    expected = torch.stack([reference(*pair) for pair in zip(shaded, rows, strict=True)])
    assert torch.equal(Strong(Shaded(), share=0.5)(images, index, STREAM), expected)


@pytest.mark.parametrize("share", [-0.1, 1.5, float("nan")])
def test_a_share_that_is_none_is_refused(share):
    with pytest.raises(InputError, match=r"must be in \[0, 1\]"):
        Strong(share=share)


def test_images_that_are_no_bytes_are_refused():
    with pytest.raises(InputError, match=r"bytes \(torch.uint8\), and the images are torch.float32"):
        Strong()(pictures().float(), torch.arange(60), STREAM)
