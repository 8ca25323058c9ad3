"""The eager engine: any model, any map-style data, any device."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from stepe.engine.learning_rate import Rate
from stepe.engine.steps import Awaitable, Steps, exhaust
from stepe.errors import InputError
from stepe.loop.ledger import Observation
from stepe.loop.plan import Plan, Share
from stepe.loop.probe import check_losses, evaluating, probe
from stepe.loop.processes import Ranks
from stepe.loop.randomness import Stream, seed_globals, seeded
from stepe.loop.task import Batch, Task, View
from stepe.methods.base import Method
from stepe.models.averaging import Average
from stepe.samples.samples import Samples

ModelForward = Callable[[nn.Module, Any], Tensor]
"""(model, inputs) -> outputs"""

AMP_TYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}

WAYS_TO_UPDATE = ("foreach", "fused", "capturable", "differentiable")
"""options of torch's optimizers that change how an update is computed, and not what comes out"""


class EagerEngine:
    """Runs probes and epochs of one model on one device."""

    def __init__(
        self,
        model: nn.Module,
        samples: Samples,
        task: Task,
        *,
        optimizer: Optimizer,
        rate: Rate,
        device: torch.device,
        batch_size: int,
        probe_batch_size: int,
        forward: ModelForward | None = None,
        amp: str | None = None,
        ranks: Ranks | None = None,
        averaging: float = 0.0,
    ):
        if not model.training:  # once, here: a module that its owner froze afterwards stays frozen
            model.train()
        self.model, self.samples, self.task = model, samples, task
        self.optimizer, self.rate, self.device = optimizer, rate, device
        self.batch_size, self.probe_batch_size = batch_size, probe_batch_size
        self.ranks = ranks or Ranks()
        self.learning_rate = float(optimizer.param_groups[0]["lr"])
        """the learning rate of the last step"""
        self.calls_model = forward is None
        """whether outputs are simply what the model returns"""
        self._forward = forward or (lambda model, x: model(x))
        self.amp = amp
        self._amp = None if amp is None else AMP_TYPES[amp]
        # Only float16 underflows; a scaler that is off passes everything through.
        self.scaler = torch.amp.GradScaler(device.type, enabled=amp == "fp16")
        # In epochs, so that it means the same for little and for much data.
        self.average = Average(model, averaging * task.n / batch_size) if averaging else None

    @property
    def judge_model(self) -> nn.Module:
        """The model that is probed and tested: the one in training, or the average of its weights."""
        return self.model if self.average is None else self.average.model

    def forward(self, x: Any, model: nn.Module | None = None) -> Tensor:
        """Return outputs of the model in training, or another, in full precision whatever they were computed in."""
        # No cache of cast weights: inside a graph it would outlive the step.
        amp = torch.autocast(self.device.type, self._amp, cache_enabled=False) if self._amp else nullcontext()
        with amp:
            outputs = self._forward(self.model if model is None else model, x)
        check_outputs(outputs)
        return outputs.float() if outputs.dtype in AMP_TYPES.values() else outputs

    def judged(self, x: Any) -> Tensor:
        """Return outputs of the model that is probed and tested."""
        return self.forward(x, self.judge_model)

    def probe(
        self,
        epoch: int,
        view: View,
        *,
        probabilities: bool = False,
        only: Tensor | None = None,
    ) -> Observation:
        """Judge all training samples under the given labels, or ``only`` some, in their order."""
        stream = Stream.named(self.task.seed, "probe", epoch)
        return self._judge_all(self.samples, self.task.labels, stream, view, probabilities, only)

    def judge(self, samples: Samples, labels: Tensor) -> Observation:
        """Judge other samples, for example held-out ones, as they come."""
        return self._judge_all(samples, labels, Stream.named(self.task.seed, "judge"), "augmented")

    def mark(self) -> Awaitable | None:
        """Return what to wait for until all work launched so far is done; ``None`` where launching is doing."""
        if self.device.type != "cuda":
            return None
        event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record()
        return event

    def _judge_all(
        self,
        samples: Samples,
        labels: Tensor,
        stream: Stream,
        view: View,
        probabilities: bool = False,
        only: Tensor | None = None,
    ) -> Observation:
        index = torch.arange(len(samples)) if only is None else only
        positions = torch.split(torch.arange(len(index)), self.probe_batch_size)
        parts = [index[position] for position in self.ranks.deal(positions)]

        def batches() -> Iterator[tuple[Tensor, Any]]:
            done = 0
            for part, x in zip(parts, samples.fetch(parts, stream, view), strict=True):
                yield torch.arange(done, done + len(part)), (to_device(x, self.device), labels[part].to(self.device))
                done += len(part)

        def judge(batch: tuple[Any, Tensor]) -> tuple[Tensor, Tensor | None, Tensor | None]:
            x, y = batch
            outputs = self.judged(x)
            return self.task.criterion(outputs, y), outputs if self.task.can_read(outputs) else None, y

        seen = probe(
            self.judge_model,
            batches(),
            sum(map(len, parts)),
            judge,
            stream=stream,
            device=self.device,
            probabilities=probabilities,
            read=self.task.read,
        )
        return self.ranks.assemble(seen, positions)

    def try_out(self) -> None:
        """Judge a few samples, so that what does not fit together is found before anything is written."""
        part = torch.arange(min(len(self.samples), 4))
        stream = Stream.named(self.task.seed, "try out")
        with evaluating(self.judge_model), seeded(stream, self.device):
            for x in self.samples.fetch([part], stream, "augmented"):
                outputs = self.forward(to_device(x, self.device), self.judge_model)
                check_losses(self.task.criterion(outputs, self.task.labels[part].to(self.device)), len(part))

    def train(self, plan: Plan, method: Method) -> float:
        """Train one epoch as planned; returns the mean training loss."""
        return exhaust(self.train_steps(plan, method))

    def train_steps(self, plan: Plan, method: Method) -> Steps[float]:
        """Train one epoch as planned, step by step; returns the mean training loss."""
        shares = self.shares(plan)
        total = torch.zeros((), device=self.device)
        for share, batch in zip(shares, self.batches(plan, shares), strict=True):
            total += self.train_on(batch, plan, share, len(shares), method) * share.size
            yield None
        self.end_epoch(plan, method, shares)
        return float(self.ranks.mean(total)) / sum(share.size for share in shares)

    def batches(self, plan: Plan, shares: list[Share]) -> Iterator[Batch]:
        """Give the samples of every share, on the device."""
        stream = Stream.named(self.task.seed, "augment", plan.epoch)
        inputs = self.samples.fetch([share.index for share in shares], stream, "augmented")
        seed_globals(stream, self.device)  # for what draws before the first step
        for share, x in zip(shares, inputs, strict=True):
            y = self.task.labels[share.index].to(self.device)
            yield Batch(
                x=to_device(x, self.device),
                y=y,
                target=y if plan.target is None else plan.target[share.index].to(self.device),
                index=share.index.to(self.device),
                weight=None if share.weight is None else share.weight.to(self.device),
                total_weight=share.total_weight,
            )

    def train_on(self, batch: Batch, plan: Plan, share: Share, steps: int, method: Method) -> Tensor:
        """Make one update, one of so many in the epoch, at the rate of its time; returns the loss."""
        # Dropout and its like draw under the step's name, whatever was drawn before.
        seed_globals(self.draws(plan.epoch, share.step), self.device)
        with self.at_rate(plan, share, steps):
            return self.step(method, batch)

    @contextmanager
    def at_rate(self, plan: Plan, share: Share, steps: int) -> Iterator[None]:
        """Give the optimizer, for the time being, the learning rate of a share's update."""
        self.rate.before_step(share.progress)
        yield
        self.learning_rate = float(self.optimizer.param_groups[0]["lr"])
        self.rate.after_step((plan.epoch + (share.step + 1) / steps) / plan.epochs)

    def shares(self, plan: Plan) -> list[Share]:
        """List this rank's share of every batch."""
        return plan.batches(self.batch_size, rank=self.ranks.rank, world=self.ranks.world)

    def end_epoch(self, plan: Plan, method: Method, shares: list[Share]) -> None:
        """Bring together what every rank learned of the samples it has seen, besides the weights."""
        self.ranks.broadcast(self.model.buffers())
        if self.average is not None:
            if plan.epoch == 0:  # what the weights were on the way here is not worth remembering
                self.average.restart()
            self.ranks.broadcast(self.average.model.buffers())
        self.ranks.exchange(method.written_columns(), [share.index for share in shares])

    def hand_over(self) -> None:
        """End the run: the model becomes what was probed and tested."""
        if self.average is not None:
            self.average.hand_over()

    def draws(self, epoch: int, step: int) -> Stream:
        """Name what dropout and its like draw in a step: on each rank something else."""
        purpose = "model" if self.ranks.is_first else f"model of rank {self.ranks.rank}"
        return Stream.named(self.task.seed, purpose, epoch, step)

    def step(self, method: Method, batch: Batch) -> Tensor:
        """Make one update; returns the loss, still on the device."""
        self.optimizer.zero_grad(set_to_none=True)
        loss = method.loss(self.forward, batch)
        self.scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
        self.ranks.average_gradients(self.model)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        if self.average is not None:
            self.average.update()
        return loss.detach()

    def state_dict(self) -> dict[str, Any]:
        """Return all but the model's own weights, which are saved apart."""
        return {
            "optimizer": self.optimizer.state_dict(),
            "rate": self.rate.state_dict(),
            "scaler": self.scaler.state_dict(),
            **({} if self.average is None else {"average": self.average.state_dict()}),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take up the saved state of any engine."""
        # How an update is computed is this engine's choice, not that of the one that saved.
        groups = self.optimizer.param_groups
        ways = [{name: group[name] for name in WAYS_TO_UPDATE if name in group} for group in groups]
        self.optimizer.load_state_dict(state["optimizer"])
        for group, way in zip(self.optimizer.param_groups, ways, strict=True):
            group.update(way)
        self.rate.load_state_dict(state["rate"])
        self.scaler.load_state_dict(state["scaler"])
        if self.average is not None:
            self.average.load_state_dict(state["average"])


def check_outputs(outputs: Any) -> None:
    """Refuse what is no tensor, such as the named outputs of other libraries' models."""
    if not isinstance(outputs, Tensor):
        raise InputError(
            f"the model returned a {type(outputs).__name__}, not a tensor of logits; give forward=, which says "
            "where they are: lambda model, x: model(x).logits, for example"
        )


def to_device(x: Any, device: torch.device) -> Any:
    """Put tensors, and the tensors inside lists, tuples and dicts, on a device."""
    if isinstance(x, Tensor):
        return x.to(device, non_blocking=True)
    if callable(getattr(x, "to", None)):  # packed sequences, tokenizers' encodings
        return x.to(device)
    if isinstance(x, dict):
        return {key: to_device(value, device) for key, value in x.items()}
    if isinstance(x, list | tuple):
        moved = [to_device(value, device) for value in x]
        return type(x)(*moved) if hasattr(x, "_fields") else type(x)(moved)
    return x
