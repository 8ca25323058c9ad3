"""Named randomness on arrays: the same bits as on tensors."""

import numpy as np
import pytest
import torch

from stepe.loop.draws import Draws
from stepe.loop.randomness import Stream

SAMPLES = np.array([0, 1, 2, 7, 1_000_003, 2**40])


@pytest.mark.parametrize("draw", [0, 1, 5])
@pytest.mark.parametrize(("seed", "purpose", "epoch"), [(0, "order", 0), (42, "noise", 7), (-3, "folds", 1)])
def test_arrays_and_tensors_get_the_same_draws(seed, purpose, epoch, draw):
    draws, stream = Draws.named(seed, purpose, epoch), Stream.named(seed, purpose, epoch)
    index = torch.from_numpy(SAMPLES)
    assert draws.key == stream.key
    assert draws.seed == stream.seed
    assert np.array_equal(draws.bits(SAMPLES, draw), stream.bits(index, draw).numpy())
    assert np.array_equal(draws.uniform(SAMPLES, draw), stream.uniform(index, draw).numpy())
    assert np.array_equal(draws.integers(SAMPLES, 1000, draw), stream.integers(index, 1000, draw).numpy())
    np.testing.assert_allclose(draws.normal(SAMPLES, draw), stream.normal(index, draw).numpy(), rtol=1e-5)


def test_shuffles_and_members_are_the_same():
    draws, stream = Draws.named(3, "order"), Stream.named(3, "order")
    assert np.array_equal(draws.shuffle(np.arange(1000)), stream.shuffle(torch.arange(1000)).numpy())
    assert draws.member(17).key == stream.member(17).key


def test_a_table_of_samples_keeps_its_shape():
    draws = Draws.named(0, "table")
    table = np.arange(6).reshape(2, 3)
    assert np.array_equal(draws.bits(table), draws.bits(np.arange(6)).reshape(2, 3))
    assert draws.uniform(4).shape == ()
