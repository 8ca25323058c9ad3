"""Blocks, and how common classes are outside of them."""

import numpy as np
import pytest

from stepe.judges.blocks import Blocks, Frequencies


@pytest.mark.parametrize("cells", [1, 50, 1 << 20])
@pytest.mark.parametrize(
    "number", [np.arange(40), np.arange(40) // 3, np.arange(40) % 7], ids=["rows", "threes", "far"]
)
def test_frequencies_are_those_counted_without_the_block(number, cells, monkeypatch):
    monkeypatch.setattr("stepe.beliefs.parts.CELLS", cells)
    random = np.random.default_rng(0)
    weights, targets = random.uniform(0, 2, 40), random.dirichlet(np.ones(4), 40)
    found = Frequencies(Blocks(number), weights, targets).around([3, 0, 39])
    for row, frequency in zip((3, 0, 39), found, strict=True):
        outside = number != number[row]
        counted = weights[outside] @ targets[outside] + 1
        np.testing.assert_allclose(frequency, counted / counted.sum())
