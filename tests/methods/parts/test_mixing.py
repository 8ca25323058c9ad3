"""Blends of two samples."""

import pytest
import torch
from torch import Tensor

from stepe import InputError
from stepe.loop.task import Batch
from stepe.methods import Task
from stepe.methods.parts.mixing import Blends, blend, blend_and_cut
from stepe.training.building import cross_entropy


def test_bytes_are_blended_as_numbers():
    pixels = torch.tensor([[[0, 255]], [[200, 255]]], dtype=torch.uint8)
    assert blend(pixels, torch.tensor([0.5, 0.25])).tolist() == [[[100.0, 255.0]], [[50.0, 255.0]]]


@pytest.mark.parametrize(
    ("x", "found"),
    [(torch.zeros(2, 3, dtype=torch.int64), "int64s"), ((torch.zeros(2), torch.zeros(2)), "a tuple"), ({}, "a dict")],
)
def test_what_cannot_be_blended_is_refused(x, found):
    with pytest.raises(InputError, match=f"tensor of numbers or of pixels, and these are {found}: .*mixup=0"):
        blend(x, torch.ones(2))


def test_a_sample_has_the_larger_share_of_its_blend_where_that_is_asked_for():
    task = Task(torch.zeros(1000, dtype=torch.int64), 2, epochs=3, seed=4, criterion=cross_entropy(2))
    shares: list[Tensor] = []
    for at_least_half in (False, True):
        blends = Blends(task, 0.5, at_least_half=at_least_half)
        blends.draw(1)
        shares.append(blends.share)
    assert shares[0].min() < 0.1
    torch.testing.assert_close(shares[1], torch.maximum(shares[0], 1 - shares[0]))


def test_a_window_shows_the_picture_before():
    pictures = torch.arange(3.0).reshape(3, 1, 1, 1).expand(3, 2, 4, 4)
    window = torch.tensor([[0.5, 0.5, 0.5], [0.5, 0.0, 1.0], [0.0, 0.5, 0.5]])
    shown, share = blend_and_cut(pictures, torch.tensor([0.75, 0.75, 0.9]), window)
    assert shown[0, 1].tolist() == [[0, 0, 0, 0], [0, 2, 2, 0], [0, 2, 2, 0], [0, 0, 0, 0]]
    assert shown[1, 0].tolist() == [[1, 1, 1, 0], [1, 1, 1, 1], [1, 1, 1, 1], [1, 1, 1, 1]]  # partly outside
    torch.testing.assert_close(shown[2], torch.full((2, 4, 4), 1.9))
    torch.testing.assert_close(share, torch.tensor([0.75, 15 / 16, 0.9]))


def test_what_is_no_picture_has_no_window():
    with pytest.raises(InputError, match="cutmix=0"):
        blend_and_cut(torch.zeros(2, 3), torch.ones(2), torch.zeros(2, 3))


def test_so_many_pictures_get_a_window_as_are_asked_for():
    task = Task(torch.zeros(1000, dtype=torch.int64), 2, epochs=3, seed=4, criterion=cross_entropy(2))
    blends = Blends(task, 0.5, cut=0.25, at_least_half=True)
    blends.draw(1)
    assert blends.window is not None
    side = blends.window[:, 0]
    cut = side > 0
    assert 0.2 < cut.float().mean() < 0.3
    torch.testing.assert_close(side[cut] ** 2, 1 - blends.share[cut])
    again = Blends(task, 0.5, cut=0.25, at_least_half=True)
    again.load_state_dict(blends.state_dict())
    assert torch.equal(again.window, blends.window)


@pytest.mark.parametrize("parts", [1, 2, 3])
def test_batches_that_lie_one_after_the_other_are_blended_each_within_itself(parts):
    x = torch.randn(parts * 4, 5)
    batch = Batch(x, x, x, torch.arange(len(x)), None, 1.0, parts=parts)
    assert torch.equal(batch.before(x), torch.cat([part.roll(1, 0) for part in x.split(4)]))
    share = torch.rand(len(x))
    expected = torch.cat([blend(*part) for part in zip(x.split(4), share.split(4), strict=True)])
    assert torch.equal(blend(x, share, batch.before), expected)
