import random
from collections import namedtuple

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset, TensorDataset

from stepe import InputError
from stepe.loop.randomness import Stream
from stepe.samples.samples import (
    DatasetSamples,
    TensorSamples,
    as_samples,
    check_labels,
    check_map_style,
    check_view,
    read_labels,
)

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


class Stored:
    """Stores labels; what it returns has none."""

    def __init__(self, **attributes: object):
        self.__dict__.update(attributes)

    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> object:
        return torch.zeros(2)


@pytest.mark.parametrize("labels", [[0, 2, 1], np.array([0, 2, 1]), torch.tensor([0, 2, 1])])
@pytest.mark.parametrize("name", ["targets", "labels"])
def test_stored_labels_are_found(name, labels):
    assert check_labels(read_labels(Stored(**{name: labels})), 3).tolist() == [0, 2, 1]


@pytest.mark.parametrize("wrong", [0, 50, 99])
def test_stored_labels_that_a_data_set_does_not_return_are_refused(wrong):
    """The usual wrapper returns noisy labels and keeps the clean ones in ``targets``."""

    class Wrapper:
        targets = range(100)

        def __len__(self) -> int:
            return 100

        def __getitem__(self, index: int) -> tuple[float, int]:
            return 0.0, index + (index == wrong)

    with pytest.raises(InputError, match=f"sample {wrong} .* label {wrong + 1}, but its own targets say {wrong}"):
        read_labels(Wrapper())


def test_a_few_samples_are_enough_to_check_stored_labels():
    read = []

    class Recorded:
        targets = range(1000)

        def __len__(self) -> int:
            return 1000

        def __getitem__(self, index: int) -> tuple[float, int]:
            read.append(index)
            return 0.0, index

    read_labels(Recorded())
    assert 2 <= len(read) <= 25


def test_labels_are_read_sample_by_sample_where_none_are_stored():
    before = torch.get_rng_state()
    assert read_labels(Jittered()) == [i % 3 for i in range(N)]
    assert torch.equal(torch.get_rng_state(), before)
    assert read_labels(Subset(Jittered(), [4, 2])) == [1, 2]
    assert read_labels([(0.0, torch.tensor(2)), (0.0, torch.tensor([1])[0])]) == [2, 1]
    dataset = [(0.0, 1), (0.0, 0)]
    assert read_labels(TensorDataset(torch.zeros(2), torch.tensor([1, 0]))).tolist() == read_labels(dataset)


def test_stored_labels_are_passed_over_when_a_transform_changes_them():
    class Remapped(Stored):
        def __getitem__(self, index: int) -> tuple[float, int]:
            return 0.0, self.target_transform(self.targets[index])

    dataset = Remapped(targets=[7, 8, 9], target_transform=lambda label: label - 7)
    assert read_labels(dataset) == [0, 1, 2]


def test_stored_labels_of_another_length_are_passed_over():
    class Windowed(Stored):
        def __getitem__(self, index: int) -> tuple[float, int]:
            return 0.0, index

    assert read_labels(Windowed(targets=[5, 5, 5, 5, 5])) == [0, 1, 2]
    assert read_labels(Windowed(labels=lambda: "a method")) == [0, 1, 2]


@pytest.mark.parametrize("item", [torch.zeros(2), 5.0, (torch.zeros(2),), {"x": 1}])
def test_samples_without_a_label_are_refused_with_the_fix(item):
    with pytest.raises(InputError, match=r"sample 0 .*pass labels= separately"):
        read_labels([item] * 3)


@pytest.mark.parametrize(
    "labels",
    [
        [0, 2, 1],
        (0, 2, 1),
        np.array([1, 2, 0])[::-1],
        np.array([0, 2, 1], dtype=np.uint8),
        pd.Series([0, 2, 1], index=[9, 4, 7]),
        pd.Series([0, 2, 1]).to_numpy(),
        torch.tensor([0, 2, 1], dtype=torch.int16),
        [torch.tensor(0), torch.tensor(2), torch.tensor(1)],
    ],
    ids=lambda labels: type(labels).__name__,
)
def test_integer_labels_are_taken_from_anything_array_like(labels):
    found = check_labels(labels, 3)
    assert found.dtype == torch.int64
    assert found.tolist() == [0, 2, 1]


@pytest.mark.parametrize(
    ("labels", "n", "message"),
    [
        (["cat", "dog", "cat"], 3, "map names to numbers"),
        (np.array(["cat", "dog"]), 2, "map names to numbers"),
        ([0, None, 1], 3, "must be integers"),
        ([[0], [1, 2]], 2, "must be integers"),
        ([0.0, 1.0], 2, "labels are torch.float64.*convert"),
        (torch.tensor([True, False]), 2, "labels are torch.bool"),
        (torch.tensor([[0], [1]]), 2, r"labels have shape \(2, 1\)"),
        (3, 3, r"labels have shape \(\)"),
        ([0, 1], 3, "2 labels for 3 samples"),
        ([0, 1, -1], 3, "label -1 of sample 2 is negative"),
        ([4, 4, 4], 3, "all 3 labels are 4; at least two classes"),
        ([], 0, "empty"),
    ],
)
def test_labels_that_cannot_be_used_are_refused_with_value_and_fix(labels, n, message):
    with pytest.raises(InputError, match=message):
        check_labels(labels, n)


def test_names_a_data_set_stores_or_returns_are_refused_like_any_other():
    for dataset in (Stored(targets=["cat", "dog", "cat"]), [(0.0, "cat"), (0.0, "dog"), (0.0, "cat")]):
        with pytest.raises(InputError, match="map names to numbers"):
            check_labels(read_labels(dataset), 3)
    with pytest.raises(InputError, match=r"labels have shape \(3, 2\)"):
        check_labels(read_labels([(0.0, torch.zeros(2, dtype=torch.int64))] * 3), 3)
