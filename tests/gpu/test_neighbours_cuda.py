"""Neighbours found on a GPU are those found on a CPU."""

import pytest
import torch

from stepe.judges.neighbours import nearest, vote

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU"),
]


@pytest.mark.parametrize("tf32", [False, True])
@pytest.mark.parametrize("chunk", [97, None])
def test_a_gpu_finds_the_same_neighbours(chunk, tf32, monkeypatch):
    monkeypatch.setattr(torch.backends.cuda.matmul, "allow_tf32", tf32)
    draw = torch.Generator().manual_seed(0)
    # On the grid already, so that both sides round alike; some twice, so that there are ties.
    features = torch.zeros(500, 64)
    features[:, :16] = torch.randint(0, 2, (500, 16), generator=draw) * 2.0 - 1
    features[1::4] = features[::4]
    guess = torch.rand(500, 10, generator=draw)
    assert torch.equal(nearest(features.cuda(), 20, chunk).cpu(), nearest(features, 20))
    torch.testing.assert_close(vote(features.cuda(), guess.cuda(), 20, chunk).cpu(), vote(features, guess, 20))


def test_many_samples_take_little_memory():
    features = torch.randn(50_000, 512, device="cuda", dtype=torch.float16)
    guess = torch.rand(50_000, 100, device="cuda", dtype=torch.float16)
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    vote(features, guess)
    assert torch.cuda.max_memory_allocated() - before < 2**31
