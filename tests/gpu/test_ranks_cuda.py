"""A process group of one on a GPU: its collectives run, also inside of a captured step, and change no bit."""

import os

# Has to be there before the first matrix product: cuBLAS reads it once.
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

import stepe
from stepe.loop.processes import Ranks

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        not (torch.cuda.is_available() and dist.is_available() and dist.is_nccl_available()),
        reason="needs a CUDA GPU and NCCL",
    ),
]


@pytest.fixture
def group(tmp_path):
    def start() -> None:
        dist.init_process_group("nccl", init_method=f"file://{tmp_path / 'meeting'}", rank=0, world_size=1)

    yield start
    if dist.is_initialized():
        dist.destroy_process_group()


def fitted(blobs, engine: str, **options: object) -> list[Tensor]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 3))
    result = stepe.fit(
        model, blobs.x, blobs.given, epochs=4, batch_size=16, rho_max=0.3, device="cuda", engine=engine,
        deterministic=True, **options,
    )  # fmt: skip
    return [*(value.cpu().clone() for value in result.model.state_dict().values()), result.ledger["loss"].cpu()]


@pytest.mark.parametrize("engine", ["eager", "resident"])
@pytest.mark.parametrize("softness", [0.0, 0.3])
def test_a_group_of_one_trains_as_no_group(blobs, group, engine, softness):
    alone = fitted(blobs, engine, softness=softness)
    group()
    assert Ranks.current().grouped
    for here, there in zip(fitted(blobs, engine, softness=softness), alone, strict=True):
        assert torch.equal(here, there)
