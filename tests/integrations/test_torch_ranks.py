"""``StepE`` in a DDP loop of one's own: real processes, gloo, the same training as in one."""

from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from shrinking import BATCH, EPOCHS, KEPT, SHRINKS, N, Recorded, assert_trained, clouds, network, probed_apart
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from stepe import InputError, StepE

SMALL = {"epochs": 3, "rho_max": 0.8, "warmup": 1, "ramp_end": 2}


def recorded(n: int = N) -> Recorded:
    x, y = clouds(n)
    return Recorded(x.double(), y)


def weights(model: nn.Module) -> Tensor:
    return nn.utils.parameters_to_vector(model.parameters()).detach().clone()


def trained(
    n: int = N,
    batch: int = BATCH,
    state: dict[str, Any] | None = None,
    stop: tuple[int, int] | None = None,
    **options: Any,
) -> dict[str, Any]:
    """A loop as people write it for DDP."""
    data, probed, model = recorded(n), recorded(n), network().double()
    options = probed_apart(data, probed) | options
    parallel = DistributedDataParallel(model) if dist.is_initialized() else model
    optimizer = torch.optim.SGD(parallel.parameters(), lr=0.1, momentum=0.9)
    cleaner = StepE(data, **options)
    if state is not None:
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        cleaner.load_state_dict(state["cleaner"])
    loader = cleaner.loader(batch)
    data.take()
    kept, counts, steps = [], [], []
    for epoch in cleaner.epochs(parallel, probe_batch_size=10):
        steps.append(0)
        for x, _ in loader:
            optimizer.zero_grad()
            cleaner.loss(parallel, x).backward()
            optimizer.step()
            steps[-1] += 1
            if stop == (epoch, steps[-1]):
                parts = {"model": model, "optimizer": optimizer, "cleaner": cleaner}
                return {name: part.state_dict() for name, part in parts.items()}
        kept.append(cleaner.plan.kept.clone())
        counts.append(data.take())
    return {"kept": kept, "counts": counts, "steps": steps, "weights": weights(model), "probed": probed.take()}


def _trained(arguments: dict[str, Any]) -> dict[str, Any]:
    return trained(**arguments)


@pytest.mark.parametrize("world", [1, 2, 3, 4])
@pytest.mark.parametrize(
    "arguments",
    [{}, {"length": "full"}, {"n": 67, "rho_max": 0.02}, {"n": 7, "batch": 7, **SMALL}],
    ids=["kept", "full", "short tail", "fewer than ranks"],
)
def test_a_ddp_loop_trains_as_one_process_does(processes, world, arguments):
    alone = trained(**arguments)
    ranks = processes.run(world, _trained, arguments)
    for rank in ranks:
        assert all(torch.equal(here, there) for here, there in zip(rank["kept"], alone["kept"], strict=True))
        assert rank["steps"] == alone["steps"]
        torch.testing.assert_close(rank["weights"], alone["weights"], rtol=0, atol=1e-6)
    for epoch, kept in enumerate(alone["kept"]):
        counts = torch.stack([rank["counts"][epoch] for rank in ranks]).sum(0)
        if int(kept.sum()) >= world:
            assert_trained(counts, kept, arguments.get("length", "kept"))
        else:
            assert torch.equal(counts > 0, kept)
    # Each sample is probed by one rank; ranks without a batch of their own judge the first one.
    probed = torch.stack([rank["probed"] for rank in ranks]).sum(0)
    assert bool((probed[10:] == len(alone["kept"])).all())


def test_the_kept_set_shrinks():
    assert int(trained()["kept"][-1].sum()) == KEPT


@pytest.mark.parametrize(("before", "after"), [(2, 3), (3, 1)])
def test_a_ddp_loop_goes_on_mid_epoch_at_another_number_of_processes(processes, before, after):
    alone = trained()
    state = processes.run(before, _trained, {"stop": (3, 2)})[0]
    ranks = processes.run(after, _trained, {"state": state})
    for rank in ranks:
        assert len(rank["kept"]) == EPOCHS - 3
        torch.testing.assert_close(rank["weights"], alone["weights"], rtol=0, atol=1e-6)
    # What was left of the epoch, and no more.
    counts = torch.stack([rank["counts"][0] for rank in ranks]).sum(0)
    assert int(counts.sum()) == int(alone["kept"][3].sum()) - 2 * BATCH


def _streamed() -> dict[str, Any]:
    """Every rank reads its own part of a stream, of uneven sizes."""
    x, y = clouds()
    x, model = x.double(), network().double()
    rank, world = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
    parallel = DistributedDataParallel(model) if dist.is_initialized() else model
    optimizer = torch.optim.SGD(parallel.parameters(), lr=0.1)
    cleaner, kept = StepE(N, labels=y, **SHRINKS), []
    for _ in cleaner.epochs():
        for batch in torch.split(torch.arange(N), BATCH + 1):
            index = batch[rank::world]
            logits = parallel(x[index])
            optimizer.zero_grad()
            cleaner.reduce(F.cross_entropy(logits, y[index], reduction="none"), index, logits=logits).backward()
            optimizer.step()
        kept.append(cleaner.plan.kept.clone())
    return {"kept": kept, "weights": weights(model), "loss": cleaner.ledger["loss"].clone()}


@pytest.mark.parametrize("world", [1, 2, 3])
def test_a_stream_over_several_processes_trains_as_one(processes, world):
    alone = _streamed()
    for rank in processes.run(world, _streamed):
        assert all(torch.equal(here, there) for here, there in zip(rank["kept"], alone["kept"], strict=True))
        torch.testing.assert_close(rank["weights"], alone["weights"], rtol=0, atol=1e-6)
        torch.testing.assert_close(rank["loss"], alone["loss"])


class Normed(nn.Module):
    """Statistics that differ from rank to rank until they are brought together."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.inner = nn.BatchNorm1d(6), network()
        self.to(torch.float64)

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(self.norm(x))


def _normed() -> tuple[Tensor, Tensor]:
    model = DistributedDataParallel(Normed())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    cleaner = StepE(recorded(), **SHRINKS)
    loader = cleaner.loader(BATCH)
    for _ in cleaner.epochs(model):
        for x, y in loader:
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
    return cleaner.ledger["loss"].clone(), model.module.norm.running_mean.clone()


def test_all_ranks_probe_the_same_model_whatever_its_statistics(processes):
    first, second = processes.run(2, _normed)
    assert torch.equal(first[0], second[0])
    assert torch.equal(first[1], second[1])


def _small_batch() -> str:
    cleaner = StepE(recorded(), **SHRINKS)
    loader = cleaner.loader(1)
    try:
        for _ in cleaner.epochs(network().double()):
            list(loader)
    except InputError as error:
        return str(error)
    return ""


def test_a_batch_smaller_than_the_number_of_processes_is_refused(processes):
    assert all("a batch has 1 samples for 2 processes" in told for told in processes.run(2, _small_batch))


def _remembering(method: str) -> str:
    with pytest.raises(InputError) as refused:
        StepE(recorded(), epochs=2, method=method)
    return str(refused.value)


@pytest.mark.parametrize("method", ["elr", "margins"])
def test_what_is_remembered_in_training_steps_is_for_one_process(processes, method):
    for message in processes.run(2, _remembering, method):
        assert message.startswith(f"method '{method}' remembers samples in training steps")
        assert "stepe.fit" in message


def _judged() -> tuple[int, Tensor]:
    """How often this rank was asked, and whom it dropped; answers differ by rank, were they to count."""
    asked = []

    def judge(weights: Any, targets: Any) -> Any:
        asked.append(weights)
        said = torch.rand(N, 3, generator=torch.Generator().manual_seed(dist.get_rank()), dtype=torch.float64)
        return (said / said.sum(1, keepdim=True)).numpy()

    cleaner = StepE(recorded(), judge=judge, **SHRINKS)
    loader = cleaner.loader(BATCH)
    for _ in cleaner.epochs():
        list(loader)
    return len(asked), cleaner.ledger["dropped"]


def test_the_first_process_asks_the_judge_and_tells_the_others(processes):
    (asked, dropped), (other, same) = processes.run(2, _judged)
    assert (asked, other) == (EPOCHS, 0)
    assert torch.equal(dropped, same)
    assert dropped.any()
