import numpy as np
import numpy.typing as npt
import pytest

from stepe import InputError
from stepe.judges.base import one_hot
from stepe.judges.blocks import Blocks
from stepe.judges.neighbours import GRID, Neighbours, can_search, nearest, nearly_nearest

Rows = npt.NDArray[np.floating]


def points(n: int = 61, width: int = 7, seed: int = 0) -> Rows:
    return np.random.default_rng(seed).standard_normal((n, width)).astype(np.float32)


def reference(features: Rows, k: int) -> list[list[int]]:
    """One row at a time, in whole numbers: sort all others by similarity, then by index."""
    rows = []
    for row in features.astype(np.float64):
        length = float(np.linalg.norm(row))
        rows.append([round(value / length * GRID) if length else 0 for value in row.tolist()])
    found = []
    for i, one in enumerate(rows):
        similar = {j: sum(a * b for a, b in zip(one, other, strict=True)) for j, other in enumerate(rows) if j != i}
        found.append(sorted(similar, key=lambda j: (-similar[j], j))[:k])
    return found


@pytest.mark.parametrize("k", [1, 5, 60, 500])
@pytest.mark.parametrize("chunk", [1, 2, 7, 60, 61, 1000, None])
def test_neighbours_are_those_of_the_slow_reference_whatever_the_chunk(k, chunk):
    features = points()
    assert nearest(features, k, chunk).tolist() == reference(features, k)


def test_nearest_means_the_smallest_angle():
    """Beside the rounding, of which nobody should notice anything."""
    features = points(200, 32).astype(np.float64)
    unit = features / np.linalg.norm(features, axis=1, keepdims=True)
    angle = unit @ unit.T
    found = np.take_along_axis(angle, nearest(features, 10), 1)
    np.fill_diagonal(angle, -2)
    np.testing.assert_allclose(found, -np.sort(-angle, axis=1)[:, :10], rtol=0, atol=2e-3)


def test_lengths_do_not_matter():
    features = points()
    scale = np.exp2(np.arange(-30, 31, dtype=np.float32))[:, None]
    assert np.array_equal(nearest(features * scale, 5), nearest(features, 5))


def test_of_equally_near_ones_the_lower_index_counts():
    features = points(5)[np.arange(50) % 5]
    for k in (9, 4):
        for i, row in enumerate(nearest(features, k).tolist()):
            assert row == [j for j in range(i % 5, 50, 5) if j != i][:k]


@pytest.mark.parametrize("value", [0.0, float("nan"), float("inf")])
def test_a_row_without_direction_is_nobodys_near_neighbour(value):
    features = np.abs(points())
    features[7] = value
    found = nearest(features, 10)
    assert not (found == 7).any()
    assert found[7].tolist() == [0, 1, 2, 3, 4, 5, 6, 8, 9, 10]


@pytest.mark.parametrize("dtype", [np.float16, np.float64])
def test_rows_may_be_of_any_precision(dtype):
    features = points().astype(dtype)
    assert nearest(features, 5).tolist() == reference(features, 5)


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: nearest(points(1), 1), r"shape \(1, 7\)"),
        (lambda: nearest(np.zeros((4, 2, 2)), 1), r"shape \(4, 2, 2\)"),
        (lambda: nearest(points(), 0), "k is 0"),
        (lambda: nearest(points(), 3, 0), "chunk 0"),
    ],
)
def test_what_makes_no_sense_is_refused(call, told):
    with pytest.raises(InputError, match=told):
        call()


@pytest.mark.slow  # compiles for half a minute
@pytest.mark.skipif(not can_search(), reason="pynndescent is not installed")
def test_searched_neighbours_are_mostly_the_nearest_and_never_the_row_itself():
    features = points(1_500, 16)
    features[5], features[200:260] = 0, features[199]
    found = nearly_nearest(features, 20)
    assert np.array_equal(nearly_nearest(features, 20), found)
    assert found.shape == (1_500, 20)
    assert (found != np.arange(1_500)[:, None]).mean() > 0.99
    exact = nearest(features, 20)
    alike = [len(set(one) & set(other)) for one, other in zip(found.tolist(), exact.tolist(), strict=True)]
    assert np.mean(np.delete(alike, np.r_[5, 199:260])) > 18


def test_a_row_in_its_own_place_votes_for_nobody():
    found = nearest(points(), 5)
    itself = np.column_stack([found, np.arange(61)])
    asked = [
        Neighbours(index, Blocks.of_one_row(61)).look(np.ones(61), one_hot(np.arange(61) % 2, 2))
        for index in (found, itself)
    ]
    assert np.array_equal(asked[0].probability, asked[1].probability)
