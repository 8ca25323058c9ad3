import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from stepe.loop.randomness import Stream
from stepe.samples.augmentation import CropFlip, ResidentAugment
from stepe.samples.samples import TensorSamples

STREAM = Stream.named(3, "augment", 7)


def pictures(n: int = 40, shape: tuple[int, int, int] = (3, 8, 8), dtype: torch.dtype = torch.uint8) -> Tensor:
    """Pixels from 1 to 255: a zero can only be padding."""
    values = torch.randint(1, 256, (n, *shape), generator=torch.Generator().manual_seed(0))
    return values.to(dtype) / 255 if dtype.is_floating_point else values.to(dtype)


def reference(picture: Tensor, down: int, right: int, flip: bool, padding: int) -> Tensor:
    """Pad, crop, flip: one picture, as anybody would write it."""
    height, width = picture.shape[1:]
    padded = F.pad(picture, (padding, padding, padding, padding))
    top, left = padding + down, padding + right
    cropped = padded[:, top : top + height, left : left + width]
    return cropped.flip(2) if flip else cropped


@pytest.mark.parametrize("padding", [0, 1, 4, 9])
@pytest.mark.parametrize("shape", [(3, 8, 8), (1, 5, 7), (4, 1, 3)])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32, torch.float64])
def test_every_picture_is_padded_cropped_and_flipped_as_drawn(padding, shape, dtype):
    augment, images = CropFlip(padding), pictures(shape=shape, dtype=dtype)
    index = torch.arange(len(images))
    drawn = augment.draw(index, STREAM)
    expected = [reference(image, *row.tolist(), padding) for image, row in zip(images, drawn, strict=True)]
    found = augment(images, index, STREAM)
    assert found.dtype == dtype
    assert torch.equal(found, torch.stack(expected))


def test_all_shifts_within_the_padding_and_both_flips_are_equally_likely():
    drawn = CropFlip(2).draw(torch.arange(10_000), STREAM)
    for column, values in enumerate((range(-2, 3), range(-2, 3), range(2))):
        found, counts = drawn[:, column].unique(return_counts=True)
        assert found.tolist() == list(values)
        expected = 10_000 / len(values)
        assert (counts - expected).abs().max() < 5 * expected**0.5
    assert torch.corrcoef(drawn.T.double()).triu(1).abs().max() < 0.05


def test_a_samples_draws_do_not_depend_on_its_batch():
    augment, images = CropFlip(), pictures()
    whole = augment(images, torch.arange(40), STREAM)
    part = torch.tensor([31, 2, 2, 17])
    assert torch.equal(augment(images[part], part, STREAM), whole[part])


def test_draws_differ_by_seed_epoch_and_sample():
    augment, index = CropFlip(), torch.arange(40)
    names = [(3, "augment", 7), (4, "augment", 7), (3, "augment", 8), (3, "probe", 7)]
    drawn = [augment.draw(index, Stream.named(*name)) for name in names]
    assert torch.equal(drawn[0], augment.draw(index, STREAM))
    assert len({tuple(draw.flatten().tolist()) for draw in drawn}) == len(names)
    assert len(drawn[0].unique(dim=0)) > 20
    assert not torch.equal(augment.draw(index + 40, STREAM), drawn[0])


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_gathering_from_all_images_is_the_call_on_gathered_ones(layout):
    augment, images = CropFlip(), pictures().contiguous(memory_format=layout)
    index = torch.tensor([5, 39, 0, 5, 12])
    gathered = augment.gather(images, index, augment.draw(index, STREAM))
    assert torch.equal(gathered, augment(images[index], index, STREAM))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
def test_the_result_is_in_channels_last_memory(dtype):
    found = CropFlip()(pictures(dtype=dtype), torch.arange(40), STREAM)
    assert found.shape == (40, 3, 8, 8)
    assert found.is_contiguous(memory_format=torch.channels_last)


def test_the_images_stay_as_they_were():
    images = pictures()
    CropFlip()(images, torch.arange(40), STREAM)
    assert torch.equal(images, pictures())


def test_the_plain_view_sees_no_augmentation():
    samples, part = TensorSamples(pictures(), CropFlip()), torch.tensor([7, 1, 30])
    (plain,) = samples.fetch([part], STREAM, "plain")
    (augmented,) = samples.fetch([part], STREAM, "augmented")
    assert torch.equal(plain, pictures()[part])
    assert torch.equal(augmented, CropFlip()(pictures()[part], part, STREAM))
    assert not torch.equal(augmented, plain)


def test_only_an_augmentation_that_draws_beforehand_can_be_resident():
    assert isinstance(CropFlip(), ResidentAugment)
    assert not isinstance(lambda x, index, stream: x, ResidentAugment)
