"""Labels as people have them: which are taken, which are refused, and how they are found in a data set."""

import numpy as np
import pandas as pd
import pytest
import torch
from torch.utils.data import Subset, TensorDataset

from jittered import Jittered
from stepe import InputError
from stepe.samples.given_labels import check_labels, read_labels


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
    dataset, before = Jittered(torch.zeros(9, 2), torch.arange(9) % 3), torch.get_rng_state()
    assert read_labels(dataset) == [i % 3 for i in range(9)]
    assert torch.equal(torch.get_rng_state(), before)
    assert read_labels(Subset(dataset, [4, 2])) == [1, 2]
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
