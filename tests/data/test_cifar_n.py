import os
import pickle
import shutil
import tarfile
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
import torch

from stepe import InputError
from stepe.data import cifar_n
from stepe.data.cifar_n import CIFAR10, CIFAR10N, CIFAR100, CIFAR100N, load
from stepe.data.download import Remote
from tiny_cifar import BATCH, make_sets, write

LABEL_FILE = {CIFAR10.folder: "CIFAR-10_human.pt", CIFAR100.folder: "CIFAR-100_human.pt"}


def read(path: Path) -> dict:
    """For tests that change one thing in a file they wrote themselves."""
    return pickle.loads(path.read_bytes(), encoding="latin1")


@pytest.fixture
def data_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Small sets in the publishers' layout; a fifth of the human labels are wrong, all of the worst ones."""
    monkeypatch.delenv("STEPE_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    data = tmp_path / "data"
    make_sets(data)
    return data


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object) -> None:
        raise AssertionError("a download was tried")

    monkeypatch.setattr(cifar_n.downloads, "fetch", refuse)


@pytest.mark.parametrize(
    ("name", "full_name", "classes", "noise_rate"),
    [
        ("cifar10", "cifar10", 10, 0),
        ("cifar10n", "cifar10n:aggre", 10, 0.2),
        ("cifar10n:aggre", "cifar10n:aggre", 10, 0.2),
        ("cifar10n:worst", "cifar10n:worst", 10, 1),
        ("cifar10n:rand1", "cifar10n:rand1", 10, 0.2),
        ("cifar10n:rand2", "cifar10n:rand2", 10, 0.2),
        ("cifar10n:rand3", "cifar10n:rand3", 10, 0.2),
        ("cifar100", "cifar100", 100, 0),
        ("cifar100n", "cifar100n:noisy", 100, 0.2),
        ("cifar100n:noisy", "cifar100n:noisy", 100, 0.2),
    ],
)
def test_each_name_gives_its_images_and_labels(data_dir, offline, name, full_name, classes, noise_rate):
    found = load(name, data_dir)
    assert found.name == full_name
    assert found.images.shape == (5 * BATCH, 3, 32, 32)
    assert found.test_images.shape == (BATCH, 3, 32, 32)
    assert found.images.dtype == found.test_images.dtype == np.uint8
    assert found.labels.dtype == found.clean_labels.dtype == found.test_labels.dtype == np.int64
    assert found.class_names == tuple(f"class {c}" for c in range(classes))
    assert found.classes == classes
    assert found.noise_rate == pytest.approx(noise_rate)
    assert np.array_equal(found.truth.noisy, found.labels != found.clean_labels)
    assert not found.published


def test_every_name_is_listed():
    names = "cifar10 cifar100 cifar10n cifar10n:aggre cifar10n:worst cifar10n:rand1 cifar10n:rand2 cifar10n:rand3"
    assert set(cifar_n.NAMES) == {*names.split(), "cifar100n", "cifar100n:noisy"}


def test_images_and_labels_are_those_of_the_files_in_order(data_dir):
    found = load("cifar10n:rand2", data_dir)
    batches = [read(data_dir / CIFAR10.folder / file) for file in CIFAR10.train]
    assert found.images.reshape(5 * BATCH, -1).tolist() == [row.tolist() for batch in batches for row in batch["data"]]
    assert found.clean_labels.tolist() == [label for batch in batches for label in batch["labels"]]
    human = torch.load(data_dir / "CIFAR-10_human.pt", weights_only=False)
    assert found.labels.tolist() == human["random_label2"].tolist()
    test = read(data_dir / CIFAR10.folder / "test_batch")
    assert found.test_images.reshape(BATCH, -1).tolist() == test["data"].tolist()
    assert found.test_labels.tolist() == test["labels"]


@pytest.mark.parametrize("name", ["cifar10n:noisy", "cifar10:aggre", "cifar", "", "cifar10n:", "CIFAR10"])
def test_an_unknown_name_is_answered_with_the_known_ones(name, data_dir):
    with pytest.raises(InputError, match=f"'{name}'; there is cifar10, .*cifar10n:worst.*cifar100n:noisy"):
        load(name, data_dir)


def test_data_is_looked_for_in_the_given_folder_then_in_stepe_data_then_in_the_cache(data_dir, monkeypatch, offline):
    def mark(value: int) -> None:
        """Tell the copy of the data apart by its first test label."""
        test = read(data_dir / CIFAR10.folder / "test_batch")
        write(data_dir / CIFAR10.folder / "test_batch", {**test, "labels": [value, *test["labels"][1:]]})

    cache = data_dir.parent / "cache" / "stepe"
    places = [data_dir.parent / "given", data_dir.parent / "environment", cache]
    for i, place in enumerate(places):
        mark(i)
        shutil.copytree(data_dir, place)
    monkeypatch.setenv("STEPE_DATA", str(places[1]))
    assert load("cifar10n", places[0]).test_labels[0] == 0
    assert load("cifar10n", data_dir.parent / "nowhere").test_labels[0] == 1
    assert load("cifar10n").test_labels[0] == 1
    monkeypatch.setenv("STEPE_DATA", "")
    assert load("cifar10n").test_labels[0] == 2


def test_the_cache_is_in_the_home_folder_where_nothing_else_is_said(monkeypatch):
    for name in ("XDG_CACHE_HOME", "STEPE_DATA"):
        monkeypatch.delenv(name, raising=False)
    assert cifar_n.folders() == [Path.home() / ".cache" / "stepe"]


@pytest.mark.parametrize("missing", ["cifar-10-batches-py", "CIFAR-10_human.pt"])
def test_what_is_nowhere_is_named_with_where_it_comes_from(data_dir, missing, offline):
    (data_dir / missing).rename(data_dir / "elsewhere")
    url = {CIFAR10.folder: CIFAR10.archive.url}.get(missing, CIFAR10N.file.url)
    with pytest.raises(InputError, match=f"{missing} is not in {data_dir} or .*cache/stepe; .*{url}"):
        load("cifar10n", data_dir, download=False)


@pytest.mark.parametrize("name", ["data_batch_3", "test_batch", "batches.meta"])
def test_a_file_missing_from_the_folder_is_named_and_nothing_is_downloaded_over_it(data_dir, name, offline):
    folder = data_dir / CIFAR10.folder
    (folder / name).unlink()
    with pytest.raises(InputError, match=f"{folder / name} is missing; delete {folder} .*{CIFAR10.archive.url}"):
        load("cifar10", data_dir)


FILES = [*(f"{CIFAR10.folder}/{file}" for file in CIFAR10.files), "CIFAR-10_human.pt"]


@pytest.mark.parametrize("name", FILES)
def test_a_cut_off_file_is_named_with_the_way_to_get_it(data_dir, name):
    data = (data_dir / name).read_bytes()
    (data_dir / name).write_bytes(data[: len(data) // 2])
    with pytest.raises(InputError, match=f"{data_dir / name} is cut off, damaged .*; delete .*downloaded again.*https"):
        load("cifar10n", data_dir)


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_would_run_something_is_refused_by_name(data_dir, name, tmp_path):
    class Hostile:
        def __reduce__(self) -> tuple[Callable, tuple[str]]:
            return os.system, (f"touch {tmp_path}/mark",)

    (data_dir / name).write_bytes(pickle.dumps({"data": Hostile()}))
    with pytest.raises(InputError, match=rf"{data_dir / name} is not safe .*\.system; delete .*https"):
        load("cifar10n", data_dir)
    assert not (tmp_path / "mark").exists()


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"labels": [0] * (BATCH - 1)}, "holds 19 labels for 20 images"),
        ({"labels": [0] * (BATCH - 1) + [10]}, "labels outside 0 to 9 in its entry labels"),
        ({"labels": [0] * (BATCH - 1) + [-1]}, "labels outside 0 to 9 in its entry labels"),
        ({"labels": ["cat"] * BATCH}, "other than integers in its entry labels"),
        ({"labels": [True] * BATCH}, "other than integers in its entry labels"),
        ({"labels": 3}, "other than integers in its entry labels"),
        ({"data": np.zeros((BATCH, 3071), np.uint8)}, "other than rows of 3072 pixel values"),
        ({"data": [1] * BATCH}, "other than rows of 3072 pixel values"),
    ],
)
@pytest.mark.parametrize("name", ["data_batch_5", "test_batch"])
def test_a_file_with_something_else_in_it_is_named(data_dir, name, change, match):
    path = data_dir / CIFAR10.folder / name
    write(path, {**read(path), **change})
    with pytest.raises(InputError, match=f"{path} .*{match}"):
        load("cifar10", data_dir)


def test_a_file_of_the_other_set_is_told_by_its_entries(data_dir):
    (data_dir / CIFAR100.folder / "test").replace(data_dir / CIFAR10.folder / "test_batch")
    with pytest.raises(InputError, match=r"test_batch has no entry labels; it holds data, fine_labels, filenames"):
        load("cifar10", data_dir)


@pytest.mark.parametrize("names", [[], 3, ["cat", 4]])
def test_class_names_that_are_none_are_refused(data_dir, names):
    path = data_dir / CIFAR10.folder / "batches.meta"
    write(path, {"label_names": names})
    with pytest.raises(InputError, match=f"{path} has something other than class names"):
        load("cifar10", data_dir)


def change_labels(data_dir: Path, **columns: Callable[[np.ndarray], object]) -> Path:
    path = data_dir / "CIFAR-100_human.pt"
    content = torch.load(path, weights_only=False)
    torch.save({**content, **{key: function(content[key]) for key, function in columns.items()}}, path)
    return path


def test_clean_labels_that_are_not_the_data_sets_own_are_an_error(data_dir):
    def swap(clean: np.ndarray) -> np.ndarray:
        first = int(np.flatnonzero(clean[1:] != clean[:-1])[0])
        clean[[first, first + 1]] = clean[[first + 1, first]]
        return clean

    path = change_labels(data_dir, clean_label=swap)
    with pytest.raises(InputError, match=f"{path} does not belong .* for 2 of 100 images, the first being image"):
        load("cifar100n", data_dir)
    assert load("cifar100", data_dir).noise_rate == 0  # which does not read that file


@pytest.mark.parametrize(
    ("columns", "match"),
    [
        ({"clean_label": lambda y: y[1:], "noisy_label": lambda y: y[1:]}, "labels for 99 images, .* has 100"),
        ({"noisy_label": lambda y: y[1:]}, "99 labels noisy_label for 100 images"),
        ({"noisy_label": lambda y: y + 1000}, "labels outside 0 to 99 in its entry noisy_label"),
        ({"noisy_label": lambda y: y.reshape(-1, 2)}, "other than integers in its entry noisy_label"),
        ({"noisy_label": lambda y: "noisy"}, "other than integers in its entry noisy_label"),
    ],
)
def test_label_files_that_do_not_fit_are_named(data_dir, columns, match):
    path = change_labels(data_dir, **columns)
    with pytest.raises(InputError, match=f"{path} .*{match}.*; delete it .*{CIFAR100N.file.url}"):
        load("cifar100n", data_dir)


def test_the_other_sets_label_file_is_refused(data_dir):
    (data_dir / "CIFAR-10_human.pt").replace(data_dir / "CIFAR-100_human.pt")
    with pytest.raises(InputError, match=r"CIFAR-100_human\.pt does not belong to this data set"):
        load("cifar100n", data_dir)


def test_a_set_of_the_published_size_must_be_the_published_one(data_dir, monkeypatch):
    monkeypatch.setattr(cifar_n, "PUBLISHED_SIZE", (5 * BATCH, BATCH))
    for file in CIFAR10.files:
        path = data_dir / CIFAR10.folder / file
        with pytest.raises(InputError, match=f"{path} is not the published file: its SHA-256 is .*; delete"):
            load("cifar10n", data_dir)
        monkeypatch.setitem(CIFAR10.sha256, file, sha256(path.read_bytes()).hexdigest())
    assert load("cifar10", data_dir).published
    path = data_dir / "CIFAR-10_human.pt"
    with pytest.raises(InputError, match=f"{path} is not the published file"):
        load("cifar10n", data_dir)


@pytest.mark.parametrize("put_by_hand", [False, True])
def test_what_is_nowhere_is_downloaded_into_the_first_place_and_unpacked(data_dir, tmp_path, monkeypatch, put_by_hand):
    expected = load("cifar100n", data_dir)
    archive = tmp_path / CIFAR100.archive.name
    with tarfile.open(archive, "w:gz") as opened:
        opened.add(data_dir / CIFAR100.folder, CIFAR100.folder)
    fetched = []

    def fetch(remote: Remote, folder: Path) -> Path:
        fetched.append(remote)
        folder.mkdir(parents=True, exist_ok=True)
        source = archive if remote == CIFAR100.archive else data_dir / remote.name
        (folder / remote.name).write_bytes(source.read_bytes())
        return folder / remote.name

    monkeypatch.setattr(cifar_n.downloads, "fetch", fetch)
    first = tmp_path / "first"
    monkeypatch.setenv("STEPE_DATA", str(first))
    if put_by_hand:
        first.mkdir()
        (first / archive.name).write_bytes(archive.read_bytes())
    for _ in range(2):
        found = load("cifar100n")
        assert np.array_equal(found.images, expected.images)
        assert np.array_equal(found.labels, expected.labels)
    assert fetched == [CIFAR100.archive, CIFAR100N.file]  # once
    kept = {CIFAR100.folder, "CIFAR-100_human.pt"}
    assert {path.name for path in first.iterdir()} == kept | ({archive.name} if put_by_hand else set())


REAL = Path(os.environ.get("STEPE_DATA") or "nowhere")
real = pytest.mark.skipif(
    not all((REAL / name).exists() for pair in LABEL_FILE.items() for name in pair),
    reason="$STEPE_DATA does not point to CIFAR and CIFAR-N",
)


@real
@pytest.mark.parametrize(
    ("name", "wrong", "smallest", "largest"),
    [
        ("cifar10", 0, 5000, 5000),
        ("cifar10n:aggre", 4505, 4349, 5509),
        ("cifar10n:worst", 20104, 4040, 6053),
        ("cifar10n:rand1", 8617, 4445, 5558),
        ("cifar10n:rand2", 9061, 4479, 5497),
        ("cifar10n:rand3", 8820, 4389, 5518),
        ("cifar100", 0, 500, 500),
        ("cifar100n", 20100, 199, 865),
    ],
)
def test_the_published_files_hold_what_is_known_of_them(name, wrong, smallest, largest):
    found = load(name, REAL, download=False)
    assert found.published
    assert found.images.shape == (50_000, 3, 32, 32)
    assert found.test_images.shape == (10_000, 3, 32, 32)
    assert round(found.noise_rate * 50_000) == wrong
    counts = np.bincount(found.labels)
    assert (int(counts.min()), int(counts.max())) == (smallest, largest)
    assert np.bincount(found.clean_labels).tolist() == [50_000 // found.classes] * found.classes
    assert np.bincount(found.test_labels).tolist() == [10_000 // found.classes] * found.classes


@real
@pytest.mark.parametrize(("name", "third"), [("cifar10", "bird"), ("cifar100", "baby")])
def test_mean_and_deviation_are_those_of_the_training_pixels(name, third):
    found = load(name, REAL, download=False)
    assert found.class_names[2] == third
    channels = found.images.swapaxes(0, 1).reshape(3, -1)[:, ::7] / 255
    np.testing.assert_allclose(channels.mean(1), found.mean, atol=5e-4)
    np.testing.assert_allclose(channels.std(1), found.std, atol=5e-4)
