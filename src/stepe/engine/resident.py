"""The resident engine: images stay on the GPU, and a whole training step is one CUDA graph.

Gather, augmentation, forward, backward, update and the per-sample losses replay without a single host input: the
epoch's order, learning rates and random draws lie in device buffers, and the step's position in them is a device
counter. The ragged last batch runs the same code outside the graph. On a CPU everything does.
"""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from stepe.engine.eager import EagerEngine
from stepe.engine.steps import Steps
from stepe.errors import InputError
from stepe.loop.ledger import write_rows
from stepe.loop.plan import Plan
from stepe.loop.randomness import Stream, seed_globals
from stepe.loop.task import Batch, Task
from stepe.methods.base import Method
from stepe.samples.augmentation import ResidentAugment
from stepe.samples.samples import Samples, TensorSamples

WARM_UP_STEPS = 3
"""steps before a capture, in which libraries choose their kernels and allocate their workspaces"""


@dataclass
class _Epoch:
    """An epoch as its steps read it: in buffers whose addresses a graph may hold."""

    order: Tensor
    rates: Tensor
    drawn: Tensor | None
    weight: Tensor | None
    target: Tensor | None
    cursor: Tensor
    step: Tensor
    total: Tensor


_Kind = tuple[torch.Size, torch.dtype] | None


def _kind(values: Tensor | None) -> _Kind:
    """Describe what a graph that reads the values depends on, other than the values."""
    return None if values is None else (values.shape, values.dtype)


class ResidentEngine(EagerEngine):
    """Runs probes and epochs of one model whose data fits on the device."""

    def __init__(self, model: nn.Module, samples: Samples, task: Task, **options: Any):
        if not isinstance(samples, TensorSamples):
            raise InputError("the resident engine keeps all inputs on the device: give a tensor, not a data set")
        if samples.augment is not None and not isinstance(samples.augment, ResidentAugment):
            raise InputError(
                "the resident engine needs an augmentation with draw() and gather(), such as "
                "stepe.samples.augmentation.CropFlip; a plain function works with the eager engine"
            )
        if options.get("amp") == "fp16":
            raise InputError("amp='fp16' needs a loss scale that changes with the run; use 'bf16' here")
        if any(tensor.ndim == 4 for tensor in model.parameters()):
            model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        super().__init__(model, samples, task, **options)
        if self.device.type == "cuda" and not all(
            group.get("fused") and group.get("capturable", True) for group in self.optimizer.param_groups
        ):
            raise InputError(
                "the resident engine needs an optimizer made with fused=True, and with capturable=True where it has "
                "that, so that a graph can hold it"
            )
        self._images, self._augment = samples.x, samples.augment
        self._labels = task.labels.to(self.device)
        self._generator = torch.Generator(self.device) if self.device.type == "cuda" else None
        # What full batches go through, and they alone: a subclass may prepare it for their shape.
        self._full_gather, self._full_forward = self._gather, self.forward
        self._lr = [torch.zeros((), device=self.device) for _ in self.optimizer.param_groups]
        self.train_losses = torch.full((task.n,), float("nan"), device=self.device)
        """per-sample losses as the last epoch's steps saw them"""
        self._graphs: dict[tuple[_Kind, _Kind], torch.cuda.CUDAGraph] = {}
        self._epoch: _Epoch | None = None
        self._buffers: dict[tuple[str, _Kind], Tensor] = {}
        self._align_state()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take up a saved state; what was captured before holds another one."""
        super().load_state_dict(state)
        self._align_state()
        self._graphs.clear()

    def _align_state(self) -> None:
        """Lay the optimizer's state out as its parameters are: fused updates walk both in memory order, unchecked."""
        for parameter, values in self.optimizer.state.items():
            for name, value in values.items():
                if isinstance(value, Tensor) and value.shape == parameter.shape:
                    values[name] = torch.empty_like(parameter.detach(), dtype=value.dtype).copy_(value)

    def train_steps(self, plan: Plan, method: Method) -> Steps[float]:
        """Train one epoch as planned; yields after each launched step, and an event before it needs its results."""
        shares = self.shares(plan)
        rates = self._rates([share.progress for share in shares], plan)
        next_rates = [group["lr"] for group in self.optimizer.param_groups]
        epoch = self._load(plan, torch.cat([share.index for share in shares]), rates)
        key = _kind(plan.weight), _kind(plan.target)
        for share in shares:
            in_graph = self.device.type == "cuda" and share.size == self.batch_size
            if in_graph and key not in self._graphs:
                self._graphs[key] = self._capture(epoch, method)
            with self._own_draws(self.draws(plan.epoch, share.step)):
                if in_graph:
                    self._graphs[key].replay()
                else:
                    self._step(epoch, method, share.size)
            yield None
        # A step leaves its own rate behind; a scheduler goes on from the one it set last.
        for group, rate in zip(self.optimizer.param_groups, next_rates, strict=True):
            group["lr"] = rate
        self.end_epoch(plan, method, shares)
        yield self.mark()
        return float(self.ranks.mean(epoch.total)) / sum(share.size for share in shares)

    @contextmanager
    def _own_draws(self, stream: Stream) -> Iterator[None]:
        """Have dropout and its like draw under the step's name, whatever was drawn before.

        On a GPU from a generator of the engine's own: a graph reads the seed from its generator's memory, where
        another run of the fleet would overwrite it.
        """
        if self._generator is None:
            seed_globals(stream, self.device)
            yield
            return
        default = torch.cuda.default_generators[self.device.index or 0]
        before = default.graphsafe_get_state()
        default.graphsafe_set_state(self._generator)
        self._generator.manual_seed(stream.seed)
        try:
            yield
        finally:
            default.graphsafe_set_state(before)

    def _rates(self, progress: list[float], plan: Plan) -> Tensor:
        """Compute the learning rate of every step and parameter group."""
        table, constants = [], self._constants()
        with warnings.catch_warnings():
            # A scheduler that runs ahead of the steps is what is wanted here.
            warnings.filterwarnings("ignore", "Detected call of `lr_scheduler.step")
            for step, at in enumerate(progress):
                self.rate.before_step(at)
                table.append([float(group["lr"]) for group in self.optimizer.param_groups])
                self.rate.after_step((plan.epoch + (step + 1) / len(progress)) / plan.epochs)
        if self._constants() != constants:
            raise InputError(
                "the scheduler changes more than the learning rate, which is all that may change between steps here; "
                "OneCycleLR and CyclicLR take cycle_momentum=False; the eager engine takes every scheduler"
            )
        self.learning_rate = table[-1][0]
        return torch.tensor(table)

    def _constants(self) -> list[dict[str, Any]]:
        """Return the optimizer's settings that a graph holds as they were when it was captured."""
        groups = self.optimizer.param_groups
        return [{name: group[name] for name in group if name not in ("params", "lr")} for group in groups]

    def _load(self, plan: Plan, order: Tensor, rates: Tensor) -> _Epoch:
        """Write the epoch into the buffers."""
        n, device = self.task.n, self.device
        if self._epoch is None:
            drawn = None if self._augment is None else self._draw(plan)
            self._epoch = _Epoch(
                order=torch.zeros(n, dtype=torch.int64, device=device),
                rates=torch.zeros(n, len(self._lr), device=device),
                drawn=drawn,
                weight=None,
                target=None,
                cursor=torch.zeros(1, dtype=torch.int64, device=device),
                step=torch.zeros(1, dtype=torch.int64, device=device),
                total=torch.zeros((), device=device),
            )
        epoch = self._epoch
        epoch.order[: len(order)].copy_(order)
        epoch.rates[: len(rates)].copy_(rates)
        if epoch.drawn is not None:
            epoch.drawn.copy_(self._draw(plan))
        epoch.weight = self._keep("weight", plan.weight)
        epoch.target = self._keep("target", plan.target)
        for counter in (epoch.cursor, epoch.step, epoch.total):
            counter.zero_()
        return epoch

    def _keep(self, name: str, values: Tensor | None) -> Tensor | None:
        """Keep values in a buffer that has the same address from epoch to epoch, also over epochs that have none."""
        if values is None:
            return None
        key = name, _kind(values)
        if key not in self._buffers:
            self._buffers[key] = torch.empty_like(values, device=self.device)
        return self._buffers[key].copy_(values)

    def _draw(self, plan: Plan) -> Tensor:
        assert isinstance(self._augment, ResidentAugment)
        index = torch.arange(self.task.n, device=self.device)
        return self._augment.draw(index, Stream.named(self.task.seed, "augment", plan.epoch))

    def _step(self, epoch: _Epoch, method: Method, size: int) -> None:
        """Make one step of ``size`` samples over all ranks, reading and advancing the device's own counters: the body
        of the graph.
        """
        full = size == self.batch_size
        gather, run = (self._full_gather, self._full_forward) if full else (self._gather, self.forward)
        mine = len(range(self.ranks.rank, size, self.ranks.world))
        index = epoch.order[epoch.cursor + torch.arange(max(mine, 1), device=self.device)]
        y = self._labels[index]
        weight = None if epoch.weight is None else epoch.weight[index]
        if mine == 0:  # a filler, so that nobody waits for this rank
            weight = torch.zeros(1, device=self.device)
        total: float | Tensor = size / self.ranks.world
        if epoch.weight is not None and weight is not None:
            total = self.ranks.mean(weight.sum())
        batch = Batch(
            x=gather(epoch.drawn, index),
            y=y,
            target=y if epoch.target is None else epoch.target[index],
            index=index,
            weight=weight,
            # A batch that weighs nothing has a loss of 0, not 0 / 0.
            total_weight=torch.where(total == 0, 1.0, total) if isinstance(total, Tensor) else total,
        )
        for lr, rate in zip(self._lr, epoch.rates[epoch.step].unbind(1), strict=True):
            lr.copy_(rate.squeeze(0))
        for group, lr in zip(self.optimizer.param_groups, self._lr, strict=True):
            group["lr"] = lr
        outputs: list[Tensor] = []

        def forward(x: Any) -> Tensor:
            outputs.append(run(x))
            return outputs[-1]

        self.optimizer.zero_grad(set_to_none=True)
        loss = method.loss(forward, batch)
        loss.backward()  # type: ignore[no-untyped-call]
        self.ranks.average_gradients(self.model)
        self.optimizer.step()
        if self.average is not None:
            self.average.update()
        with torch.no_grad():
            # Of several networks, the first one's outputs come first.
            write_rows(self.train_losses, index, self.task.criterion(outputs[0].detach()[: len(y)], y))
            epoch.total += loss.detach() * size
            epoch.cursor += len(index)
            epoch.step += 1

    def _gather(self, drawn: Tensor | None, index: Tensor) -> Tensor:
        if drawn is None:
            return self._images[index]
        assert isinstance(self._augment, ResidentAugment)
        return self._augment.gather(self._images, index, drawn[index])

    def _capture(self, epoch: _Epoch, method: Method) -> torch.cuda.CUDAGraph:
        """Record the step once; afterwards model, optimizer and counters are as they were."""
        kept = self._snapshot(epoch, method)
        graph = torch.cuda.CUDAGraph()
        with _benchmarking(), self._own_draws(Stream.named(self.task.seed, "capture")):
            self._record(graph, epoch, method)
        self._put_back(kept, epoch, method)
        return graph

    def _record(self, graph: torch.cuda.CUDAGraph, epoch: _Epoch, method: Method) -> None:
        # On the run's own stream: a graph holds the workspace that cuBLAS keeps for its stream, and runs of a fleet
        # that were captured on one stream would overwrite each other's. The default stream cannot be captured.
        current = torch.cuda.current_stream(self.device)
        alone = current == torch.cuda.default_stream(self.device)
        stream = torch.cuda.Stream(self.device) if alone else current  # type: ignore[no-untyped-call]
        stream.wait_stream(current)
        with torch.cuda.stream(stream):
            for _ in range(WARM_UP_STEPS):
                self._step(epoch, method, self.batch_size)
                epoch.cursor.zero_()
                epoch.step.zero_()
        self.optimizer.zero_grad(set_to_none=True)
        # Other runs of a fleet are at work on their streams: only this thread's calls matter to the capture.
        with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
            self._step(epoch, method, self.batch_size)
        current.wait_stream(stream)

    def _snapshot(self, epoch: _Epoch, method: Method) -> list[Tensor]:
        # Detached: a live autograd node would tie the capture to the stream it was made on.
        return [tensor.detach().clone() for tensor in self._touched(epoch, method)]

    def _put_back(self, kept: list[Tensor], epoch: _Epoch, method: Method) -> None:
        now = self._touched(epoch, method)
        with torch.no_grad():
            for tensor, before in zip(now, kept, strict=False):
                tensor.copy_(before)
            # Momentum that the warm-up made starts at zero, which is what no momentum means.
            for tensor in now[len(kept) :]:
                tensor.zero_()

    def _touched(self, epoch: _Epoch, method: Method) -> list[Tensor]:
        """List all that a step writes; the optimizer's state last, since it may not exist yet."""
        state = [
            value
            for group in self.optimizer.param_groups
            for parameter in group["params"]
            for value in self.optimizer.state.get(parameter, {}).values()
            if isinstance(value, Tensor)
        ]
        counters = [epoch.cursor, epoch.step, epoch.total, self.train_losses]
        average = [] if self.average is None else self.average.tensors()
        return [*self.model.parameters(), *self.model.buffers(), *average, *method.written_columns(), *counters, *state]


@contextmanager
def _benchmarking() -> Iterator[None]:
    """Let cuDNN try out its algorithms: worth it for a step that is captured, not for a tail of a size of its own."""
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = not torch.are_deterministic_algorithms_enabled()
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = before
