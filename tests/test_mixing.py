"""Blends of two samples."""

import pytest
import torch
from torch import Tensor

from stepe import InputError
from stepe.methods import Task
from stepe.mixing import Blends, blend
from stepe.training import cross_entropy


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
