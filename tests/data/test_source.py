"""Sources: the bundled digits, arrays and .npz files, and what is wrong with those that cannot be used."""

import zipfile
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits

from stepe import InputError
from stepe.data.noise import Noise
from stepe.data.source import BUNDLED, digits, open_own, open_source


@pytest.fixture
def features() -> np.ndarray:
    return np.random.default_rng(0).normal(5, 3, size=(40, 3))


@pytest.fixture
def save(tmp_path):
    def save(**arrays) -> Path:
        np.savez(tmp_path / "data.npz", **arrays)
        return tmp_path / "data.npz"

    return save


LABELS = np.arange(40) % 4


# ---------------------------------------------------------------------------------------------------------------
# Digits, and how anything is split


def test_digits_are_the_bundled_ones_under_their_row_numbers():
    bunch, found = load_digits(), digits()
    assert found.bundled
    assert found.class_names == [str(digit) for digit in range(10)]
    assert found.labels.tolist() == bunch.target[found.names.rows].tolist()
    assert found.test_labels.tolist() == bunch.target[found.test_names.rows].tolist()
    np.testing.assert_allclose(found.x, bunch.data[found.names.rows] / 16)
    assert (float(found.x.min()), float(found.x.max())) == (0, 1)
    assert found.names.ids == [str(row) for row in found.names.rows]


def test_the_split_is_disjoint_complete_and_a_fifth_of_every_class():
    found = digits()
    assert sorted(found.names.rows + found.test_names.rows) == list(range(1797))
    assert found.names.split == "train"
    assert found.test_names.split == "test"
    for digit in range(10):
        held_out, training = int((found.test_labels == digit).sum()), int((found.labels == digit).sum())
        assert held_out == round(0.2 * (held_out + training))


def test_the_split_is_no_slice_and_the_same_every_time():
    rows = digits().test_names.rows
    assert rows == digits().test_names.rows
    first_half = sum(row < 1797 / 2 for row in rows) / len(rows)
    assert 0.4 < first_half < 0.6


def test_the_split_does_not_depend_on_the_seed_of_the_noise():
    one, other = (digits().planted(Noise("symmetric", 0.4), seed) for seed in (0, 1))
    assert one.names.rows == other.names.rows
    assert not np.array_equal(one.labels, other.labels)
    assert np.array_equal(one.test_labels, other.test_labels)


def test_planted_noise_leaves_the_held_out_samples_and_becomes_the_truth():
    clean = digits()
    planted = clean.planted(Noise("symmetric", 0.4), 0)
    assert planted.noise_rate == pytest.approx(0.4, abs=1e-3)
    assert planted.noise_rate == float((planted.labels != clean.labels).mean())
    assert np.array_equal(planted.truth.noisy, planted.labels != clean.labels)
    assert np.array_equal(planted.truth.labels, clean.labels)
    assert np.array_equal(planted.clean_labels, clean.labels)
    assert np.array_equal(planted.test_x, clean.test_x)
    assert np.array_equal(planted.test_labels, clean.test_labels)


def test_planted_outliers_leave_the_clean_inputs_to_the_oracle():
    clean = digits()
    planted = clean.planted(Noise("outliers", 0.1), 0)
    assert np.array_equal(planted.clean_x, clean.x)
    assert not np.array_equal(planted.x, clean.x)
    assert np.array_equal(planted.labels, clean.labels)


def test_planting_nothing_makes_all_labels_true():
    planted = digits().planted(None, 0)
    assert planted.noise_rate == 0
    assert not planted.truth.noisy.any()
    assert np.array_equal(planted.clean_labels, planted.labels)


# ---------------------------------------------------------------------------------------------------------------
# Arrays


def test_features_are_standardised_by_the_training_part(features):
    found = open_own((features, LABELS))
    assert found.x.dtype == np.float32
    np.testing.assert_allclose(found.x.mean(0), 0, atol=1e-5)
    np.testing.assert_allclose(found.x.std(0), 1, rtol=1e-5)
    training = features[found.names.rows]
    expected = (features[found.test_names.rows] - training.mean(0)) / training.std(0)
    np.testing.assert_allclose(found.test_x, expected, rtol=1e-5)
    assert not found.bundled
    assert found.truth is None
    assert found.noise_rate is None


def test_a_large_offset_costs_no_precision():
    seconds = 1.7e9 + np.arange(40.0)[:, None]
    found = open_own((seconds, LABELS))
    assert len(np.unique(np.concatenate([found.x, found.test_x]))) == 40


def test_a_constant_feature_becomes_zero(features):
    features[:, 1] = 7
    found = open_own((features, LABELS))
    assert (found.x[:, 1] == 0).all()
    assert np.isfinite(found.x).all()


@pytest.mark.parametrize(
    ("labels", "names"),
    [
        (LABELS, ["0", "1", "2", "3"]),
        (LABELS * 10 - 7, ["-7", "3", "13", "23"]),
        (LABELS.astype(np.uint8), ["0", "1", "2", "3"]),
        (LABELS > 1, ["False", "True"]),
        (np.array(["cat", "dog", "emu", "fox"])[LABELS], ["cat", "dog", "emu", "fox"]),
        (np.array([b"cat", b"dog", "é".encode(), b"fox"])[LABELS], ["cat", "dog", "fox", "é"]),
        (["cat", "dog"] * 20, ["cat", "dog"]),
    ],
    ids=["integers", "gaps", "uint8", "bool", "strings", "bytes", "list"],
)
def test_integers_and_strings_are_classes_in_order(features, labels, names):
    found = open_own((features, labels))
    assert found.class_names == names
    given = np.asarray(labels)[found.names.rows]
    told = [found.class_names[label] for label in found.labels.tolist()]
    assert told == [value.decode() if isinstance(value, bytes) else str(value) for value in given.tolist()]


def test_every_class_is_in_both_parts_even_with_two_samples(features):
    labels = np.array([0] * 36 + [1] * 2 + [2] * 2)
    found = open_own((features, labels))
    assert set(found.labels.tolist()) == set(found.test_labels.tolist()) == {0, 1, 2}


def test_a_class_with_one_sample_stays_in_training(features):
    labels = np.array([3] + [1] * 20 + [2] * 19)
    found = open_own((features, labels))
    assert (found.labels == found.class_names.index("3")).sum() == 1
    assert found.class_names.index("3") not in found.test_labels


BAD_ARRAYS = {
    "one dimension": (np.ones(40), LABELS, r"have shape \(40,\); they must be n x d"),
    "three dimensions": (np.ones((40, 2, 2)), LABELS, r"have shape \(40, 2, 2\)"),
    "no rows": (np.ones((0, 3)), np.array([], int), r"have shape \(0, 3\)"),
    "no columns": (np.ones((40, 0)), LABELS, r"have shape \(40, 0\)"),
    "words": (np.array([["a", "b"]] * 40), LABELS, "are not numbers"),
    "ragged": ([[1.0], [1.0, 2.0]], [0, 1], "are not numbers"),
    "fewer labels": (np.ones((40, 2)), LABELS[:39], r"labels of arrays have shape \(39,\) for 40 rows"),
    "labels in a column": (np.ones((40, 2)), LABELS[:, None], r"labels of arrays have shape \(40, 1\)"),
    "float labels": (np.ones((40, 2)), LABELS.astype(float), "are float64; classes must be integers or strings"),
    "complex labels": (np.ones((40, 2)), LABELS.astype(complex), "are complex128; classes must be"),
    "labels of all kinds": (np.ones((40, 2)), np.array([None, 1] * 20), "are object; classes must be"),
    "one class": (np.ones((40, 2)), np.full(40, 7), "all labels of arrays are .*7.*; at least two classes"),
    "all different": (np.ones((40, 2)), np.arange(40), "all 40 labels of arrays are different: that is an id"),
}


@pytest.mark.parametrize(("x", "y", "told"), BAD_ARRAYS.values(), ids=BAD_ARRAYS.keys())
def test_arrays_that_cannot_be_used_say_why(x, y, told):
    with pytest.raises(InputError, match=told):
        open_own((x, y))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_features_that_are_not_finite_are_refused_with_their_row(features, value):
    features[[7, 9], 1] = value
    with pytest.raises(InputError, match=r"hold NaN or infinity \(first in row 7\); fill or remove them"):
        open_own((features, LABELS))


# ---------------------------------------------------------------------------------------------------------------
# Files


def test_a_file_is_its_arrays(features, save):
    path = save(features=features, labels=LABELS, extra=np.ones(3))
    found, expected = open_own(path), open_own((features, LABELS))
    assert found.name == "data"
    assert np.array_equal(found.x, expected.x)
    assert np.array_equal(found.labels, expected.labels)


def test_missing_arrays_are_named_beside_what_is_there(features, save):
    with pytest.raises(InputError, match=r"data.npz has no array labels; it holds features, y"):
        open_own(save(features=features, y=LABELS))
    with pytest.raises(InputError, match=r"data.npz has no array features or labels; it holds nothing"):
        open_own(save())


def test_pickled_arrays_are_never_unpickled(features, tmp_path, save):
    class Payload:
        def __reduce__(self):
            return (Path.touch, (tmp_path / "owned",))

    path = save(features=features, labels=np.array([Payload()] * 40, dtype=object))
    with pytest.raises(InputError, match=r"cannot be read: .*pickle.*; labels must be integers or fixed-width strings"):
        open_own(path)
    assert not (tmp_path / "owned").exists()


def test_a_file_of_one_array_is_no_npz(tmp_path, features):
    np.save(tmp_path / "one.npy", features)
    (tmp_path / "one.npy").rename(tmp_path / "one.npz")
    with pytest.raises(InputError, match=r"one.npz holds one array without a name"):
        open_own(tmp_path / "one.npz")


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 cut off", b"features,labels\n1,2\n"])
def test_a_file_that_is_something_else_says_so(tmp_path, content):
    (tmp_path / "odd.npz").write_bytes(content)
    with pytest.raises(InputError, match=r"odd.npz cannot be read"):
        open_own(tmp_path / "odd.npz")


@pytest.mark.parametrize("writer", [np.savez, np.savez_compressed])
def test_damage_anywhere_in_a_file_is_an_error_of_its_own(tmp_path, features, writer):
    path = tmp_path / "data.npz"
    writer(path, features=features, labels=LABELS)
    content = path.read_bytes()
    refused = 0
    for position in range(0, len(content), len(content) // 40):
        path.write_bytes(content[:position] + bytes([content[position] ^ 0x55]) + content[position + 1 :])
        try:
            open_own(path)  # a byte that nobody reads may be any
        except InputError as error:
            assert "data.npz" in str(error) or "of data" in str(error)  # noqa: PT017
            refused += 1
    for length in range(0, len(content), len(content) // 20):
        path.write_bytes(content[:length])
        with pytest.raises(InputError, match=r"data.npz"):
            open_own(path)
    assert refused > 20


def test_an_entry_that_is_no_array_says_so(tmp_path):
    with zipfile.ZipFile(tmp_path / "data.npz", "w") as file:
        file.writestr("features", "not an array")
        file.writestr("labels", "neither")
    with pytest.raises(InputError, match="features of data are not numbers"):
        open_own(tmp_path / "data.npz")


# ---------------------------------------------------------------------------------------------------------------
# By name or path


def test_a_bundled_name_opens_the_bundled_data(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    said = []
    assert open_source("digits", said.append).bundled
    assert open_source("bundled:digits", said.append).name == "digits"
    assert said == []


def test_a_local_path_named_like_a_bundled_set_wins_and_says_so(tmp_path, monkeypatch, features, save):
    monkeypatch.chdir(tmp_path)
    save(features=features, labels=LABELS)
    monkeypatch.setitem(BUNDLED, "data.npz", digits)
    said = []
    found = open_source("data.npz", said.append)
    assert not found.bundled
    assert found.x.shape[1] == 3
    assert said == [
        "'data.npz' is a local path, which wins over the bundled data set; for that one, say bundled:data.npz"
    ]
    assert open_source("bundled:data.npz").bundled


@pytest.mark.parametrize(
    ("make", "told"), [(Path.mkdir, "neither pictures nor tables"), (Path.touch, "is not a kind of data")]
)
def test_a_folder_or_file_called_digits_wins_too(tmp_path, monkeypatch, make, told):
    monkeypatch.chdir(tmp_path)
    make(tmp_path / "digits")
    said = []
    with pytest.raises(InputError, match=told):
        open_source("digits", said.append)
    assert "bundled:digits" in said[0]


@pytest.mark.parametrize(
    ("data", "told"),
    [
        ("digit", "'digit' is neither a file here nor a known data set; there is digits, cifar10, "),
        ("missing.npz", "'missing.npz' is neither a file here"),
        ("bundled:mnist", "unknown bundled data set 'mnist'; there is digits"),
        ("", "'' is"),
        pytest.param("x" * 5000, "is neither a file here", id="a name too long for a file"),
    ],
)
def test_unknown_data_is_an_error_that_says_what_there_is(tmp_path, monkeypatch, data, told):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError) as error:
        open_source(data)
    assert told in str(error.value)


def test_another_kind_of_file_is_refused_with_what_is_needed(tmp_path):
    (tmp_path / "table.ods").write_text("a,b\n")
    with pytest.raises(InputError, match=r"table.ods' is not a kind of data that can be read; give a folder of pict"):
        open_source(str(tmp_path / "table.ods"))
