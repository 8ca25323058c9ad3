"""The processes of a run (torchrun, DDP): who takes which part, and how the parts come together again.

Every rank holds the whole ledger and so makes the same plan by itself; only losses and gradients travel. Where no
process group is initialised there is one rank, and nothing here costs anything.
"""

import io
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from stepe.errors import InputError
from stepe.loop.ledger import Observation

T = TypeVar("T")


@dataclass(frozen=True)
class Ranks:
    """This process among all that train together."""

    rank: int = 0
    world: int = 1
    grouped: bool = False
    """whether there is a process group; one of a single process talks to itself, which tests make use of"""

    @classmethod
    def current(cls) -> "Ranks":
        """Ask torch.distributed. Processes that were started together but do not know of each other are refused:
        each would train on everything, and all would write the same files.
        """
        if not dist.is_available():
            return cls()
        if dist.is_initialized():
            return cls(dist.get_rank(), dist.get_world_size(), grouped=True)
        started = int(os.environ.get("WORLD_SIZE", "1"))
        if dist.is_torchelastic_launched() and started > 1:
            raise InputError(
                f"torchrun started {started} processes that do not know of each other yet; call "
                "torch.distributed.init_process_group() first, and destroy_process_group() at the end"
            )
        return cls()

    @property
    def is_first(self) -> bool:
        """Whether this is the one that writes and reports."""
        return self.rank == 0

    def deal(self, parts: Sequence[T]) -> list[T]:
        """Deal out this rank's parts: whole ones, in turn, on which it computes what one process would.

        All ranks get equally many, because what they run may wait for the others. The first part fills up.
        """
        mine = list(parts[self.rank :: self.world])
        return mine if len(mine) == -(-len(parts) // self.world) else [*mine, parts[0]]

    def assemble(self, seen: Observation, parts: Sequence[Tensor]) -> Observation:
        """Put together what all ranks saw of their parts (tensors of positions), by position, alike on every rank."""
        if not self.grouped:
            return seen
        by_rank = [parts[rank :: self.world] for rank in range(self.world)]
        sizes = [sum(map(len, dealt)) for dealt in by_rank]
        place = torch.cat([part for dealt in by_rank for part in dealt])

        def whole(mine: Tensor) -> Tensor:
            gathered = self.gather(mine[: sizes[self.rank]], sizes)
            values = torch.empty_like(gathered)
            values[place.to(gathered.device)] = gathered
            return values

        columns = {column.name: getattr(seen, column.name) for column in fields(seen)}
        assembled: dict[str, Any] = {name: whole(value) for name, value in columns.items() if isinstance(value, Tensor)}
        return replace(seen, **assembled)

    def gather(self, values: Tensor, sizes: Sequence[int]) -> Tensor:
        """Gather the values of all ranks, one after the other; ``sizes`` says how many rows each of them has."""
        if not self.grouped:
            return values
        mine = _on_the_wire(values)
        # Collectives want equal sizes: the shorter ones are filled up, and cut off again.
        padded = mine.new_zeros((max(sizes), *mine.shape[1:]))
        padded[: len(mine)] = mine
        everyone = padded.new_empty((self.world, *padded.shape))
        dist.all_gather(list(everyone.unbind(0)), padded)
        return torch.cat([rows[:size] for rows, size in zip(everyone, sizes, strict=True)]).to(values.device)

    def gather_any(self, values: Tensor, *more: Tensor) -> tuple[Tensor, ...]:
        """Gather tensors of a common length that only their own rank knows."""
        if not self.grouped:
            return values, *more
        sizes = self.gather(torch.tensor([len(values)]), [1] * self.world).tolist()
        return tuple(self.gather(each, sizes) for each in (values, *more))

    def exchange(self, columns: Sequence[Tensor], parts: Sequence[Tensor]) -> None:
        """Complete per-sample columns: each rank has written the rows of its own ``parts`` (of indices)."""
        if not self.grouped or not columns:
            return
        index = torch.cat(list(parts))
        for column in columns:
            everyone, rows = self.gather_any(index, column[index.to(column.device)])
            column[everyone.to(column.device)] = rows

    def mean(self, value: Tensor) -> Tensor:
        """Take the mean over all ranks."""
        if not self.grouped:
            return value
        total = _on_the_wire(value).clone()
        dist.all_reduce(total)
        return (total / self.world).to(value.device)

    def average_gradients(self, model: nn.Module) -> None:
        """Give every rank the mean of all gradients, in one message for each type of number."""
        if not self.grouped:
            return
        kinds: dict[tuple[torch.dtype, torch.device], list[nn.Parameter]] = {}
        for parameter in model.parameters():
            if parameter.requires_grad:
                kinds.setdefault((parameter.dtype, parameter.device), []).append(parameter)
        for parameters in kinds.values():
            self._average(parameters)

    def _average(self, parameters: list[nn.Parameter]) -> None:
        # Behind the gradients stands which ranks have one: a parameter that none used stays without, as in one process.
        used = parameters[0].new_ones(len(parameters))
        for place, parameter in enumerate(parameters):
            if parameter.grad is None:
                used[place] = 0
        gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
        flat = torch.cat([*(gradient.reshape(-1) for gradient in gradients), used])
        mean = self.mean(flat)
        pieces = torch.split(mean, [*(p.numel() for p in parameters), len(parameters)])
        anyone = pieces[-1].tolist() if any(p.grad is None for p in parameters) else None
        for place, (parameter, gradient) in enumerate(zip(parameters, gradients, strict=True)):
            if anyone is None or anyone[place] > 0:
                gradient.copy_(pieces[place].view(gradient.shape))
                parameter.grad = gradient

    def broadcast(self, tensors: Iterable[Tensor]) -> None:
        """Overwrite tensors with those of the first rank."""
        if not self.grouped:
            return
        for tensor in tensors:
            sent = _on_the_wire(tensor.detach()).contiguous()
            dist.broadcast(sent, src=0)
            with torch.no_grad():
                tensor.copy_(sent)

    def share(self, state: dict[str, Any]) -> dict[str, Any]:
        """Give every rank the first one's state: numbers, text, tensors, and lists and dicts of these."""
        if not self.grouped:
            return state
        content = io.BytesIO()
        if self.is_first:
            torch.save(state, content)
        size = torch.tensor([content.getbuffer().nbytes])
        self.broadcast([size])
        sent = torch.zeros(int(size), dtype=torch.uint8)
        if self.is_first:
            sent.copy_(torch.frombuffer(content.getbuffer(), dtype=torch.uint8))
        self.broadcast([sent])
        loaded: dict[str, Any] = torch.load(io.BytesIO(sent.numpy().tobytes()), weights_only=True, map_location="cpu")
        return loaded


def unwrapped(model: nn.Module) -> nn.Module:
    """Take the model out of DistributedDataParallel, whose every forward pass waits for all ranks."""
    return model.module if isinstance(model, nn.parallel.DistributedDataParallel) else model


def _on_the_wire(values: Tensor) -> Tensor:
    """Move values to where the process group can send them from: where they are, if it can."""
    backends = dict(pair.split(":") for pair in dist.get_backend_config().split(","))
    here = values.device.type
    if here == "cpu" and "cpu" in backends:
        return values.contiguous()
    if backends.get(here) not in (None, "gloo"):  # gloo knows only a few collectives on a GPU
        return values.contiguous()
    return values.to("cpu" if "cpu" in backends else torch.device("cuda", torch.cuda.current_device())).contiguous()
