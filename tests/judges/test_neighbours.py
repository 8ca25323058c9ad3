import pytest
import torch
from torch import Tensor

from stepe import InputError
from stepe.judges.neighbours import GRID, nearest, vote


def points(n: int = 61, width: int = 7, seed: int = 0) -> Tensor:
    return torch.randn(n, width, generator=torch.Generator().manual_seed(seed))


def guesses(n: int = 61, classes: int = 4) -> Tensor:
    return torch.rand(n, classes, generator=torch.Generator().manual_seed(1)).softmax(1)


def reference(features: Tensor, k: int) -> list[list[int]]:
    """One sample at a time, in whole numbers: sort all others by similarity, then by index."""
    rows = []
    for row in features.double():
        length = float(row.norm())
        rows.append([round(value / length * GRID) if length else 0 for value in row.tolist()])
    found = []
    for i, one in enumerate(rows):
        similar = {j: sum(a * b for a, b in zip(one, other, strict=True)) for j, other in enumerate(rows) if j != i}
        found.append(sorted(similar, key=lambda j: (-similar[j], j))[:k])
    return found


@pytest.mark.parametrize("k", [1, 5, 60])
@pytest.mark.parametrize("chunk", [1, 2, 7, 60, 61, 1000, None])
def test_neighbours_are_those_of_the_slow_reference_whatever_the_chunk(k, chunk):
    features, guess = points(), guesses()
    expected = reference(features, k)
    assert nearest(features, k, chunk).tolist() == expected
    means = torch.stack([torch.stack([guess[j] for j in row]).double().mean(0) for row in expected])
    torch.testing.assert_close(vote(features, guess, k, chunk).double(), means, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("chunk", [1, 3, 16])
def test_the_vote_is_the_same_to_the_bit_whatever_the_chunk(chunk):
    features, guess = points(300, 96), guesses(300)
    assert torch.equal(vote(features, guess, 20, chunk), vote(features, guess, 20))


def test_nearest_means_the_smallest_angle():
    """Beside the rounding, of which nobody should notice anything."""
    features = points(200, 32)
    angle = torch.nn.functional.cosine_similarity(features[:, None].double(), features[None].double(), dim=2)
    found = angle.gather(1, nearest(features, 10))
    best = angle.fill_diagonal_(-2).topk(10).values
    torch.testing.assert_close(found, best, rtol=0, atol=2e-3)


def test_lengths_do_not_matter():
    features = points()
    scale = 2.0 ** torch.arange(-30, 31)[:, None]
    assert torch.equal(nearest(features * scale, 5), nearest(features, 5))


def test_of_equally_near_ones_the_lower_index_counts():
    features = points(5)[torch.arange(50) % 5]
    for i, row in enumerate(nearest(features, 9).tolist()):
        assert row == [j for j in range(i % 5, 50, 5) if j != i]
    for i, row in enumerate(nearest(features, 4).tolist()):
        assert row == [j for j in range(i % 5, 50, 5) if j != i][:4]


def test_nobody_votes_for_itself():
    features = torch.ones(6, 3)
    assert vote(features, torch.eye(6), k=5).diagonal().tolist() == [0.0] * 6


def test_more_neighbours_than_there_are_is_all_others():
    features, guess = points(), guesses()
    others = (guess.sum(0) - guess) / 60
    torch.testing.assert_close(vote(features, guess, k=500), others)


@pytest.mark.parametrize("value", [0.0, float("nan"), float("inf")])
def test_a_representation_without_direction_is_nobodys_near_neighbour(value):
    features = points().abs()
    features[7] = value
    found = nearest(features, 10)
    assert not (found == 7).any()
    assert found[7].tolist() == [0, 1, 2, 3, 4, 5, 6, 8, 9, 10]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_representations_and_guesses_may_be_of_any_precision(dtype):
    features = points().to(dtype)
    assert nearest(features, 5).tolist() == reference(features, 5)
    found = vote(features, guesses().to(dtype), 5)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, vote(features, guesses(), 5), rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: vote(points(), guesses(60)), "60 guesses for 61"),
        (lambda: nearest(points(1), 1), r"shape \(1, 7\)"),
        (lambda: nearest(torch.zeros(4, 2, 2), 1), r"shape \(4, 2, 2\)"),
        (lambda: nearest(points(), 0), "k is 0"),
        (lambda: nearest(points(), 3, 0), "chunk 0"),
    ],
)
def test_what_makes_no_sense_is_refused(call, told):
    with pytest.raises(InputError, match=told):
        call()
