"""How the processes of a run share out work and put it together again."""

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

from stepe import InputError
from stepe.loop.ledger import Observation
from stepe.loop.processes import Ranks, unwrapped

WORLDS = [1, 2, 3, 4]


def test_alone_there_is_one_rank_and_everything_is_its_own():
    ranks = Ranks.current()
    assert ranks == Ranks(rank=0, world=1, grouped=False)
    assert ranks.is_first
    values = torch.arange(3.0)
    assert ranks.deal([1, 2, 3]) == [1, 2, 3]
    assert ranks.gather(values, [3]) is values
    assert ranks.mean(values) is values


def test_processes_that_do_not_know_of_each_other_are_refused(monkeypatch):
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
    monkeypatch.setenv("WORLD_SIZE", "1")
    assert Ranks.current() == Ranks()
    monkeypatch.setenv("WORLD_SIZE", "4")
    with pytest.raises(InputError, match=r"started 4 processes .*init_process_group\(\) first"):
        Ranks.current()


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("count", [1, 3, 4, 9])
def test_parts_are_dealt_whole_and_every_rank_gets_equally_many(world, count):
    dealt = [Ranks(rank, world).deal(range(count)) for rank in range(world)]
    assert len({len(parts) for parts in dealt}) == 1
    assert set().union(*dealt) == set(range(count))
    fillers = sum(map(len, dealt)) - count
    assert 0 <= fillers < world
    assert sum(part == 0 for parts in dealt for part in parts) == 1 + fillers


def _observe(n: int, batch: int) -> Observation:
    ranks = Ranks.current()
    parts = torch.split(torch.arange(n), batch)
    mine = torch.cat(ranks.deal(parts))
    pairs = torch.stack([mine, -mine], 1)
    seen = Observation(mine + 0.5, prediction=mine * 2, probability=pairs.float())
    return ranks.assemble(seen, parts)


@pytest.mark.parametrize("world", WORLDS)
def test_what_ranks_saw_of_their_parts_comes_together_by_position(processes, world):
    for n, batch in ((13, 3), (5, 8), (1, 1), (12, 3)):
        every = torch.arange(n)
        for seen in processes.run(world, _observe, n, batch):
            assert torch.equal(seen.loss, every + 0.5)
            assert torch.equal(seen.prediction, every * 2)
            assert torch.equal(seen.probability, torch.stack([every, -every], 1).float())
            assert seen.margin is None


def _own_lengths() -> tuple[Tensor, ...]:
    rank = dist.get_rank()
    return Ranks.current().gather_any(torch.full((rank,), rank), torch.full((rank, 2), float(rank)))


def test_lengths_that_only_their_rank_knows_are_gathered_too(processes):
    for first, second in processes.run(3, _own_lengths):
        assert first.tolist() == [1, 2, 2]
        assert second.tolist() == [[1, 1], [2, 2], [2, 2]]


def _gradients() -> list[Tensor | None]:
    rank = dist.get_rank()
    model = nn.ModuleList([nn.Linear(2, 1, bias=False) for _ in range(3)] + [nn.Linear(1, 1, bias=False).double()])
    model[2].weight.requires_grad_(False)
    model[0].weight.grad = torch.full((1, 2), float(rank))
    if rank == 1:  # not used by the others
        model[3].weight.grad = torch.full((1, 1), 3.0).double()
    Ranks.current().average_gradients(model)
    return [parameter.grad for parameter in model.parameters()]


def test_gradients_are_averaged_and_unused_parameters_stay_without(processes):
    for used, unused, frozen, elsewhere in processes.run(3, _gradients):
        assert used.tolist() == [[1.0, 1.0]]
        assert unused is None
        assert frozen is None
        assert elsewhere.tolist() == [[1.0]]
        assert elsewhere.dtype == torch.float64


def _from_the_first() -> tuple[dict, list[Tensor]]:
    rank, ranks = dist.get_rank(), Ranks.current()
    tensors = [torch.tensor([rank]), torch.tensor(rank == 0), torch.tensor(1.0 + rank)]
    ranks.broadcast(tensors)
    return ranks.share({"rank": rank, "nested": [{"kept": torch.tensor([rank == 0])}, None, "text"]}), tensors


def test_the_first_ranks_state_is_everybodys(processes):
    for shared, tensors in processes.run(2, _from_the_first):
        assert shared["rank"] == 0
        assert shared["nested"][0]["kept"].tolist() == [True]
        assert shared["nested"][1:] == [None, "text"]
        assert [tensor.tolist() for tensor in tensors] == [[0], True, 1.0]


def _wrapped() -> bool:
    model = nn.Linear(2, 2)
    return unwrapped(nn.parallel.DistributedDataParallel(model)) is model and unwrapped(model) is model


def test_a_wrapped_model_is_unwrapped(processes):
    assert processes.run(1, _wrapped) == [True]


def _exchange(n: int) -> Tensor:
    rank, world = dist.get_rank(), dist.get_world_size()
    mine = torch.arange(n)[rank::world]
    column = torch.full((n + 1, 2), -1.0)
    column[mine] = torch.stack([mine, mine * 10], 1).float()
    Ranks.current().exchange([column], torch.split(mine, 2))
    return column


@pytest.mark.parametrize("world", WORLDS)
def test_rows_that_ranks_wrote_for_their_own_samples_are_everybodys(processes, world):
    for column in processes.run(world, _exchange, 7):
        assert column.tolist() == [[index, index * 10] for index in range(7)] + [[-1, -1]]
