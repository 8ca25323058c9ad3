import numpy as np
import pytest
import torch
from scipy.sparse import csr_array, random_array

from stepe.loop.randomness import Stream
from stepe.models.sparse import SparseMLP
from stepe.samples.sparse import SparseSamples, SparseScale, entries


@pytest.fixture
def matrix():
    found = random_array((20, 7), density=0.3, rng=0).toarray()
    found[4] = 0  # a row without entries
    return csr_array(found)


def test_a_batch_holds_the_entries_of_its_rows(matrix):
    parts = [torch.tensor([3, 4, 19]), torch.tensor([0])]
    for part, (columns, values, starts) in zip(
        parts, SparseSamples(matrix).fetch(parts, Stream(0), "augmented"), strict=True
    ):
        again = csr_array((values.numpy(), columns.numpy(), [*starts.tolist(), len(values)]), shape=(len(part), 7))
        np.testing.assert_allclose(again.toarray(), matrix.toarray()[part.numpy()], rtol=1e-6)


def test_the_first_layer_is_a_linear_one(matrix):
    model = SparseMLP(7, 2).double().eval()
    dense = torch.from_numpy(matrix.toarray()) @ model.embedding.weight
    torch.testing.assert_close(model(entries(matrix, torch.float64)), model.mlp(dense))


def test_scaled_columns_are_at_most_alike_and_rows_of_length_1_on_average(matrix):
    scaled = SparseScale.fit(matrix * 1000).encode(matrix * 1000)
    assert (scaled.indices == matrix.indices).all()
    largest = scaled.max(axis=0).toarray()
    np.testing.assert_allclose(largest, largest.flat[0])
    assert scaled.power(2).sum() / 20 == pytest.approx(1)


def test_empty_columns_and_matrices_stay_zero():
    nothing = csr_array((3, 2))
    assert SparseScale.fit(nothing).encode(nothing).nnz == 0
