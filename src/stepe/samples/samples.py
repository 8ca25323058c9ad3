"""Samples by index: what engines and probes read from.

Two carriers, one interface. :class:`TensorSamples` keeps everything in one tensor on the training device;
:class:`DatasetSamples` reads any map-style dataset through a ``DataLoader``, with workers. Either way a sample's
random draws are a function of (seed, epoch, sample, purpose): workers and batch size change nothing. (A data set that
draws from a generator of its own, rather than from torch's, numpy's or random's global one, answers for itself.)
"""

from collections.abc import Callable, Iterator, Sequence, Sized
from contextlib import nullcontext
from typing import Any, Protocol, cast, runtime_checkable

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset, Sampler, TensorDataset, get_worker_info

from stepe.errors import InputError
from stepe.loop.randomness import Stream, preserved, seed_globals
from stepe.loop.task import View

Augment = Callable[[Tensor, Tensor, Stream], Tensor]
"""(inputs, sample indices, stream) -> inputs, drawing only from the stream"""


@runtime_checkable
class Samples(Protocol):
    """Inputs by sample index."""

    def __len__(self) -> int: ...

    def fetch(self, parts: Sequence[Tensor], stream: Stream, view: View) -> Iterator[Any]:
        """Give the inputs of each part (a tensor of indices), in order, drawn under ``stream``."""
        ...


class TensorSamples:
    """Samples that are held in one tensor."""

    def __init__(self, x: Tensor, augment: Augment | None = None):
        self.x = x
        self.augment = augment

    def __len__(self) -> int:
        return len(self.x)

    def to(self, device: torch.device) -> "TensorSamples":
        """Put the same samples on another device."""
        return TensorSamples(self.x.to(device), self.augment)

    def fetch(self, parts: Sequence[Tensor], stream: Stream, view: View) -> Iterator[Tensor]:
        """Give the inputs of each part, augmented if the view asks for it."""
        for part in parts:
            index = part.to(self.x.device)
            x = self.x[index]
            yield x if self.augment is None or view == "plain" else self.augment(x, index, stream)


Draw = tuple[int, int, bool]
"""(sample index, key of its draws, whether the plain view is asked for)"""


class DrawnDataset(Dataset[Any]):
    """A dataset indexed by draws: its random transforms see generators seeded for the sample, in any process."""

    def __init__(self, dataset: Dataset[Any], plain: Dataset[Any] | None = None):
        self.dataset = dataset
        self.plain = plain

    def __len__(self) -> int:
        return len(cast(Sized, self.dataset))

    def __getitem__(self, draw: Draw) -> Any:
        return self.__getitems__([draw])[0]

    def __getitems__(self, draws: list[Draw]) -> list[Any]:
        """Return the samples of a batch, as the loader asks for them."""
        # A worker has no draws of its own to protect.
        with nullcontext() if get_worker_info() is not None else preserved():
            return [self._get(*draw) for draw in draws]

    def _get(self, index: int, key: int, wants_plain: bool) -> Any:
        seed_globals(Stream(key))
        return (self.plain if wants_plain and self.plain is not None else self.dataset)[index]


def draws(index: Tensor, stream: Stream, *, plain: bool = False) -> list[Draw]:
    """Name the samples of a batch, each with the key of its random draws."""
    return [(i, key, plain) for i, key in zip(index.tolist(), stream.bits(index).tolist(), strict=True)]


class PartSampler(Sampler[list[Draw]]):
    """A batch sampler that carries out whatever parts were set last."""

    def __init__(self) -> None:
        self.parts: Sequence[Tensor] = ()
        self.stream = Stream(0)
        self.plain = False

    def __len__(self) -> int:
        return len(self.parts)

    def __iter__(self) -> Iterator[list[Draw]]:
        for part in self.parts:
            yield draws(part, self.stream, plain=self.plain)


# They decide which samples come, and in which order: inputs would part from their labels.
_OWNED = {"batch_size", "shuffle", "sampler", "batch_sampler", "drop_last", "generator", "in_order"}


class DatasetSamples:
    """Samples of a map-style dataset that returns ``(x, y)`` or ``x``; the labels are kept elsewhere."""

    def __init__(self, dataset: Dataset[Any], plain: Dataset[Any] | None = None, **loader_options: Any):
        check_map_style(dataset)
        if owned := sorted(_OWNED & loader_options.keys()):
            raise InputError(f"leave the loader options {', '.join(owned)} out: batches follow the plan")
        if plain is not None and len(cast(Sized, plain)) != len(cast(Sized, dataset)):
            raise InputError(
                f"the plain view has {len(cast(Sized, plain))} samples, the data set {len(cast(Sized, dataset))}; "
                "it must hold the same samples in the same order"
            )
        self.dataset, self.plain = dataset, plain
        self._sampler = PartSampler()
        if loader_options.get("num_workers", 0) > 0:
            loader_options.setdefault("persistent_workers", True)
        self._loader = DataLoader(
            DrawnDataset(dataset, plain),
            batch_sampler=self._sampler,
            # The loader's own base seed must not advance the user's generator.
            generator=torch.Generator(),
            **loader_options,
        )

    def __len__(self) -> int:
        return len(cast(Sized, self.dataset))

    def fetch(self, parts: Sequence[Tensor], stream: Stream, view: View) -> Iterator[Any]:
        """Give the inputs of each part, without what else the data set returns."""
        for batch in self.fetch_batches(parts, stream, view):
            yield batch[0] if isinstance(batch, list | tuple) else batch

    def fetch_batches(self, parts: Sequence[Tensor], stream: Stream, view: View) -> Iterator[Any]:
        """Give whole batches as the data set and its collate function make them; workers live on between calls."""
        self._sampler.parts, self._sampler.stream, self._sampler.plain = parts, stream, view == "plain"
        yield from self._loader


def check_view(samples: Samples, view: View) -> None:
    """Refuse a view that is unknown, or that a data set cannot give."""
    if view not in ("augmented", "plain"):
        raise InputError(f"view is {view!r}; choose 'augmented' (as in training) or 'plain'")
    if view == "plain" and isinstance(samples, DatasetSamples) and samples.plain is None:
        raise InputError(
            "the plain view of a data set is not known, its transforms are its own; "
            "give plain_view=, the same samples without augmentation, or probe with view='augmented'"
        )


def check_map_style(dataset: object) -> None:
    """Refuse what cannot be read by index."""
    if isinstance(dataset, DataLoader):
        raise InputError("got a DataLoader; give its data set instead (loader.dataset): stepe makes its own batches")
    if isinstance(dataset, IterableDataset) or not (hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__")):
        raise InputError(
            f"{type(dataset).__name__} cannot be read by index, and a sample's index is its name here; "
            "give a map-style data set (with __getitem__ and __len__), for example by loading the stream into a list"
        )


def as_samples(data: Any, augment: Augment | None, plain_view: Any, **loader_options: Any) -> Samples:
    """Make samples of anything that a user may hand over: samples, a tensor, an array, or a data set."""
    if isinstance(data, Samples) and not hasattr(data, "__getitem__"):  # what a data set of somebody's has
        return data
    if type(data) is TensorDataset:  # a subclass may do more than index its tensors
        data = data.tensors[0]
    if isinstance(data, np.ndarray):
        data = torch.tensor(data, dtype=torch.float32 if data.dtype == np.float64 else None)
    if isinstance(data, Tensor):
        return TensorSamples(data, augment)
    check_map_style(data)
    if augment is not None:
        raise InputError("augment= works on tensors; a data set brings its own transforms")
    return DatasetSamples(data, plain_view, **loader_options)
