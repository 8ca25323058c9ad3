import random
from collections import namedtuple

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from stepe import InputError
from stepe.loop.randomness import Stream
from stepe.samples.given_labels import read_labels
from stepe.samples.samples import DatasetSamples, TensorSamples, as_samples, check_map_style, check_view

N = 40
STREAM = Stream.named(0, "augment", 2)


class Jittered(Dataset[tuple[Tensor, int]]):
    """Draws from all three global generators; yields its index as the input's first entry."""

    def __len__(self) -> int:
        return N

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        draws = [float(torch.rand(1)), float(np.random.random()), random.random()]  # noqa: NPY002
        return torch.tensor([float(index), *draws]), index % 3


def read_all(
    samples: DatasetSamples | TensorSamples, sizes: int = 7, stream: Stream = STREAM, view="augmented"
) -> Tensor:
    """Everything, by sample index, read in a random order."""
    order = torch.randperm(N, generator=torch.Generator().manual_seed(sizes))
    parts = torch.split(order, sizes)
    found = torch.cat(list(samples.fetch(parts, stream, view)))
    return found[torch.argsort(order)]


def test_parts_come_in_order_with_the_samples_they_name():
    parts = [torch.tensor([3, 1]), torch.tensor([39]), torch.tensor([0, 3, 2])]
    for samples in (TensorSamples(torch.arange(N)), DatasetSamples(list(range(N)))):
        assert [x.tolist() for x in samples.fetch(parts, STREAM, "augmented")] == [[3, 1], [39], [0, 3, 2]]
        assert len(samples) == N


def test_no_parts_give_nothing():
    for samples in (TensorSamples(torch.arange(N)), DatasetSamples(list(range(N)))):
        assert list(samples.fetch([], STREAM, "augmented")) == []


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_a_samples_draws_depend_on_nothing_but_its_name(workers):
    samples = DatasetSamples(Jittered(), num_workers=workers)
    first = read_all(samples)
    assert torch.equal(first[:, 0], torch.arange(N).float())
    assert torch.equal(first, read_all(DatasetSamples(Jittered())))  # whatever the workers
    assert torch.equal(first, read_all(samples, sizes=13))  # whatever the batches, and a second time
    other = read_all(samples, stream=Stream.named(0, "augment", 3))
    assert (first[:, 1:] != other[:, 1:]).all()
    for draws in first[:, 1:].T:
        assert len(draws.unique()) == N


@pytest.mark.parametrize("workers", [0, 1])
def test_reading_moves_no_generator(workers):
    before = torch.get_rng_state(), np.random.get_state(), random.getstate()  # noqa: NPY002
    read_all(DatasetSamples(Jittered(), num_workers=workers))
    assert torch.equal(torch.get_rng_state(), before[0])
    np.testing.assert_equal(np.random.get_state(), before[1])  # noqa: NPY002
    assert random.getstate() == before[2]


def test_an_error_in_the_data_set_leaves_the_generators_alone_and_the_samples_usable():
    class Fragile(Jittered):
        broken = True

        def __getitem__(self, index: int) -> tuple[Tensor, int]:
            item = super().__getitem__(index)
            if self.broken and index == 5:
                raise OSError("file 5 is gone")
            return item

    before, dataset = torch.get_rng_state(), Fragile()
    samples = DatasetSamples(dataset)
    with pytest.raises(OSError, match="file 5 is gone"):
        read_all(samples)
    assert torch.equal(torch.get_rng_state(), before)
    dataset.broken = False
    assert torch.equal(read_all(samples), read_all(DatasetSamples(Jittered())))


def test_augmentation_sees_the_samples_their_indices_and_the_stream():
    def augment(x: Tensor, index: Tensor, stream: Stream) -> Tensor:
        return x + 100 * index + stream.uniform(index)

    samples = TensorSamples(torch.zeros(N), augment)
    expected = 100 * torch.arange(N) + STREAM.uniform(torch.arange(N))
    assert torch.equal(read_all(samples), expected)
    assert torch.equal(read_all(samples, view="plain"), torch.zeros(N))
    assert torch.equal(read_all(samples.to(torch.device("cpu"))), expected)


def test_the_plain_view_reads_the_plain_data_set():
    plain = [(torch.tensor(float(i)), 0) for i in range(N)]
    samples = DatasetSamples(Jittered(), plain)
    assert torch.equal(read_all(samples, view="plain"), torch.arange(N).float())
    assert read_all(samples).shape == (N, 4)


def test_views_that_cannot_be_had_are_refused():
    check_view(TensorSamples(torch.zeros(N)), "plain")
    check_view(DatasetSamples(Jittered(), Jittered()), "plain")
    check_view(DatasetSamples(Jittered()), "augmented")
    with pytest.raises(InputError, match="plain_view="):
        check_view(DatasetSamples(Jittered()), "plain")
    with pytest.raises(InputError, match="view is 'both'"):
        check_view(TensorSamples(torch.zeros(N)), "both")


def test_a_plain_view_of_other_length_is_refused():
    with pytest.raises(InputError, match="the plain view has 3 samples, the data set 40"):
        DatasetSamples(Jittered(), [1, 2, 3])


@pytest.mark.parametrize(
    "option", ["batch_size", "shuffle", "sampler", "batch_sampler", "drop_last", "generator", "in_order"]
)
def test_options_that_would_part_inputs_from_labels_are_refused(option):
    with pytest.raises(InputError, match=option):
        DatasetSamples(Jittered(), **{option: False})


def test_other_loader_options_pass_through():
    samples = DatasetSamples(list(range(N)), collate_fn=lambda items: (torch.tensor(items) * 2, None))
    assert read_all(samples).tolist() == [2 * i for i in range(N)]


def test_structured_inputs_come_as_the_loader_collates_them():
    Pair = namedtuple("Pair", "left right")
    for item in ({"a": 1.0, "b": 2.0}, Pair(1.0, 2.0)):
        (x,) = DatasetSamples([(item, 0)] * N).fetch([torch.arange(3)], STREAM, "augmented")
        assert type(x) is type(item)
    (x,) = DatasetSamples([{"a": 1.0}] * N).fetch([torch.arange(3)], STREAM, "augmented")
    assert x["a"].tolist() == [1.0, 1.0, 1.0]


class Endless(IterableDataset):
    def __iter__(self):
        yield from ()


@pytest.mark.parametrize("thing", [Endless(), iter([1, 2]), {1, 2}, 7, None])
def test_what_has_no_indices_is_refused(thing):
    with pytest.raises(InputError, match=f"{type(thing).__name__} cannot be read by index.*map-style"):
        check_map_style(thing)


def test_a_loader_is_refused_with_the_fix():
    with pytest.raises(InputError, match=r"got a DataLoader.*loader\.dataset"):
        as_samples(DataLoader(Jittered()), None, None)


def test_as_samples_takes_tensors_data_sets_and_samples():
    x = torch.zeros(N, 2)
    assert as_samples(x, None, None).x is x
    assert as_samples(TensorDataset(x, torch.zeros(N)), None, None).x is x
    assert isinstance(as_samples(Jittered(), None, None), DatasetSamples)
    ready = DatasetSamples(Jittered())
    assert as_samples(ready, None, None) is ready


def test_a_tensor_data_set_with_transforms_of_its_own_keeps_them():
    class Doubling(TensorDataset):
        def __getitem__(self, index: int) -> tuple[Tensor, int]:
            x, y = super().__getitem__(index)
            return 2 * x, int(y) + 1

    dataset = Doubling(torch.arange(N), torch.zeros(N, dtype=torch.int64))
    assert read_all(as_samples(dataset, None, None)).tolist() == [2 * i for i in range(N)]
    assert read_labels(dataset) == [1] * N


def test_augment_belongs_to_tensors():
    with pytest.raises(InputError, match="augment= works on tensors"):
        as_samples(Jittered(), lambda x, index, stream: x, None)
