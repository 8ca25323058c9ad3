"""The probe in somebody's own loop: losses of a model, from the data set or a loader of theirs, or a judge's answer."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, SequentialSampler, Subset

from stepe.engine.eager import to_device
from stepe.errors import InputError
from stepe.judges.base import Floats, one_hot
from stepe.loop.ledger import Observation
from stepe.loop.plan import Plan
from stepe.loop.probe import judged, probe
from stepe.loop.processes import Ranks, unwrapped
from stepe.loop.randomness import Stream
from stepe.methods import Method, Task
from stepe.samples.samples import DatasetSamples
from stepe.training.building import check_batch_size

BatchForward = Callable[[nn.Module, Any], "Tensor | tuple[Tensor, Tensor]"]
"""(model, batch) -> one loss per sample, or (losses, logits)"""
AskedJudge = Callable[[Floats, Floats], Any]
"""(weight of each sample in training, its distribution over the classes there) -> how likely each class is to it, by a
judge in which its own label had no say"""
TOLERANCE = 1e-3
"""by how much the probabilities of a sample may miss a sum of 1"""


@dataclass(frozen=True)
class Probing:
    """How to look at all samples with a model."""

    forward: BatchForward | None = None
    batch_size: int = 512
    loader: DataLoader[Any] | None = None
    """the user's own, in the order of the samples"""
    has_criterion: bool = False
    """whether somebody said how outputs are compared with labels that are no classes"""

    def look(
        self, model: nn.Module, task: Task, method: Method, samples: DatasetSamples | None, epoch: int
    ) -> Observation:
        """Judge every sample with the model as it is; under torchrun, each process a part of them."""
        model = unwrapped(model)
        Ranks.current().broadcast(model.buffers())  # as the next forward pass of a DDP model would do
        device = next((p.device for p in model.parameters()), torch.device("cpu"))
        stream = Stream.named(task.seed, "probe", epoch)
        positions = torch.split(torch.arange(task.n), check_batch_size(self.batch_size, task.n))
        # A loader of the user's own is read whole by every process: it is not ours to cut.
        ranks = Ranks() if self.loader is not None else Ranks.current()
        parts = ranks.deal(positions)

        def batches() -> Iterator[tuple[Tensor, Any]]:
            done = 0
            for part, batch in self._batches(parts, task, method, samples, stream):
                place, labels = torch.arange(done, done + len(part)), task.labels[part]
                yield place, (to_device(batch, device), labels.to(device))
                done += len(part)

        seen = probe(
            model,
            batches(),
            sum(map(len, parts)),
            lambda pair: self._judge(model, task, *pair),
            stream=stream,
            device=device,
            probabilities=method.needs_probabilities,
            read=task.read,
        )
        return ranks.assemble(seen, positions)

    def _batches(
        self, parts: list[Tensor], task: Task, method: Method, samples: DatasetSamples | None, stream: Stream
    ) -> Iterator[tuple[Tensor, Any]]:
        if self.loader is None:
            assert samples is not None
            yield from zip(parts, samples.fetch_batches(parts, stream, method.view), strict=True)
            return
        size = check_sequential(self.loader, task.n, None if samples is None else samples.dataset)
        for part, batch in zip(torch.split(torch.arange(task.n), size), self.loader, strict=True):
            _check_aligned(batch, task.labels[part])
            yield part, batch

    def _judge(
        self, model: nn.Module, task: Task, batch: Any, labels: Tensor
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        how = "say how a batch becomes one loss per sample: forward=lambda model, batch: ..."
        if self.forward is not None:
            seen = self.forward(model, batch)
            return (*seen, labels) if isinstance(seen, tuple) else (seen, None, None)
        if not isinstance(batch, list | tuple):
            raise InputError(f"a batch is a {type(batch).__name__}, not (inputs, labels); {how}")
        if task.kind != "classes" and not self.has_criterion:
            raise InputError(f"labels are {task.kind}, not classes; give criterion=, or {how}")
        logits = model(batch[0])
        if not isinstance(logits, Tensor):
            raise InputError(f"the model returned a {type(logits).__name__}, not a tensor of logits; {how}")
        return task.criterion(logits, labels), logits if task.can_read(logits) else None, labels


def ask(judge: AskedJudge, task: Task, plan: Plan | None) -> Observation:
    """Have a judge look at all samples, with the weights and targets that the last plan trained on.

    Under torchrun the first process asks, and tells the others.
    """
    ranks, state = Ranks.current(), {}
    if ranks.is_first:
        state = {"probability": _check_answer(judge(*_trained_on(task, plan)), task)}
    return judged(ranks.share(state)["probability"], task.labels)


def _trained_on(task: Task, plan: Plan | None) -> tuple[Floats, Floats]:
    """Read from a plan what trains: the weight of every sample, and its distribution over the classes."""
    given = one_hot(task.labels.numpy(), task.classes)
    if plan is None:
        return np.ones(task.n), given
    weights = (plan.kept if plan.trains is None else plan.trains).double()
    if plan.weight is not None:
        weights = weights * plan.weight.to(weights)
    if plan.target is None:
        return weights.cpu().numpy(), given
    targets = plan.target.detach().cpu().numpy()
    as_labels = targets.ndim == 1
    return weights.cpu().numpy(), one_hot(targets, task.classes) if as_labels else targets.astype(np.float64)


def _check_answer(answer: Any, task: Task) -> Tensor:
    found: npt.NDArray[np.float64]
    try:
        found = np.asarray(answer.detach().cpu() if isinstance(answer, Tensor) else answer, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"the judge gave a {type(answer).__name__}, not an array of probabilities") from error
    if found.shape != (task.n, task.classes):
        raise InputError(
            f"the judge gave an array of shape {found.shape}; it must give {(task.n, task.classes)}: a row per sample, "
            "in the order of the data set, and in it the probability of each class"
        )
    finite, sums = np.isfinite(found).all(1), found.sum(1)
    for wrong, what in (
        (~finite, "NaN or infinite"),
        (finite & ((found < 0).any(1) | (np.abs(sums - 1) > TOLERANCE)), "negative, or do not add up to 1"),
    ):
        if wrong.any():
            raise InputError(
                f"the judge's probabilities of sample {wrong.argmax()} are {what} (so are those of "
                f"{int(wrong.sum()) - 1} others); each row must be a distribution over the classes"
            )
    return torch.from_numpy(found).float()


def check_sequential(loader: Any, n: int, dataset: Any) -> int:
    """Refuse a probe loader whose k-th sample is not the k-th of the data set: it would drop the wrong samples.

    Returns how many samples its batches have.
    """
    fix = (
        "make it DataLoader(dataset, batch_size=..., shuffle=False), or leave it out: the data set is then read anyway"
    )
    if not isinstance(loader, DataLoader):
        raise InputError(f"the probe loader is a {type(loader).__name__}, not a DataLoader; {fix}")
    if isinstance(loader.dataset, IterableDataset):
        raise InputError(f"the probe loader reads a stream, whose order nothing vouches for; {fix}")
    # A custom batch sampler leaves loader.sampler a SequentialSampler: the batch sampler is what counts.
    cutter = loader.batch_sampler
    taken = f"so that its losses would be taken for those of other samples; {fix}"
    if cutter is None:
        raise InputError(f"the probe loader makes no batches (batch_size=None); {fix}")
    if type(cutter) is not BatchSampler:
        raise InputError(f"the probe loader has a batch sampler of its own ({type(cutter).__name__}), {taken}")
    if type(cutter.sampler) is not SequentialSampler:
        raise InputError(f"the probe loader shuffles, or has a sampler of its own, {taken}")
    if cutter.drop_last:
        raise InputError(f"the probe loader has drop_last=True and so leaves samples out; {fix}")
    length = len(loader.dataset)  # type: ignore[arg-type]
    if length != n or (isinstance(loader.dataset, Subset) and loader.dataset is not dataset):
        raise InputError(
            f"the probe loader reads {length} samples of a {type(loader.dataset).__name__}, the run has {n}; it must "
            f"hold the same samples in the same order; {fix}"
        )
    return cutter.batch_size


def _check_aligned(batch: Any, labels: Tensor) -> None:
    """Compare labels, where the batch brings some."""
    found = batch[1] if isinstance(batch, list | tuple) and len(batch) > 1 else None
    if isinstance(found, Tensor) and found.shape == labels.shape and not torch.equal(found.cpu().to(labels), labels):
        raise InputError(
            "the probe loader gives other labels than the data set at the same positions; it must hold the same "
            "samples in the same order"
        )
