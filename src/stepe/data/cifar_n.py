"""CIFAR-10 and CIFAR-100 with their own labels, or with the human ones of CIFAR-N.

CIFAR: A. Krizhevsky, 2009. CIFAR-N: Wei et al., Learning with Noisy Labels Revisited, ICLR 2022 (CC BY-NC 4.0).
The files are the publishers': the folders ``cifar-10-batches-py`` and ``cifar-100-python``, and beside them
``CIFAR-10_human.pt`` and ``CIFAR-100_human.pt``.
"""

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from stepe.data import download as downloads
from stepe.data import pickles
from stepe.data.download import Remote
from stepe.errors import InputError
from stepe.loop.draws import Draws
from stepe.loop.metrics import Truth

Pixels = npt.NDArray[np.uint8]
Labels = npt.NDArray[np.int64]
SIDE = 32
PUBLISHED_SIZE = (50_000, 10_000)
"""training and test images of both sets"""


@dataclass(frozen=True)
class Images:
    """One of the two image sets, as it is published."""

    folder: str
    archive: Remote
    train: tuple[str, ...]
    test: str
    meta: str
    labels_key: str
    names_key: str
    sha256: Mapping[str, str]
    mean: tuple[float, float, float]
    std: tuple[float, float, float]

    @property
    def files(self) -> tuple[str, ...]:
        """All files in the folder that are read."""
        return (*self.train, self.test, self.meta)


@dataclass(frozen=True)
class HumanLabels:
    """One of the two label files of CIFAR-N; ``columns`` holds our name of each column, and its name in the file."""

    file: Remote
    columns: Mapping[str, str]


CIFAR10 = Images(
    folder="cifar-10-batches-py",
    archive=Remote(
        "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
        "6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce",
    ),
    train=tuple(f"data_batch_{i}" for i in range(1, 6)),
    test="test_batch",
    meta="batches.meta",
    labels_key="labels",
    names_key="label_names",
    sha256={
        "data_batch_1": "54636561a3ce25bd3e19253c6b0d8538147b0ae398331ac4a2d86c6d987368cd",
        "data_batch_2": "766b2cef9fbc745cf056b3152224f7cf77163b330ea9a15f9392beb8b89bc5a8",
        "data_batch_3": "0f00d98ebfb30b3ec0ad19f9756dc2630b89003e10525f5e148445e82aa6a1f9",
        "data_batch_4": "3f7bb240661948b8f4d53e36ec720d8306f5668bd0071dcb4e6c947f78e9682b",
        "data_batch_5": "d91802434d8376bbaeeadf58a737e3a1b12ac839077e931237e0dcd43adcb154",
        "test_batch": "f53d8d457504f7cff4ea9e021afcf0e0ad8e24a91f3fc42091b8adef61157831",
        "batches.meta": "f962466ef690d46b226450fb9aadc74ba4bc64a76aa526b5827fe4bc5c7125cb",
    },
    mean=(0.4914, 0.4822, 0.4465),
    std=(0.2470, 0.2435, 0.2616),
)
CIFAR100 = Images(
    folder="cifar-100-python",
    archive=Remote(
        "https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz",
        "85cd44d02ba6437773c5bbd22e183051d648de2e7d6b014e1ef29b855ba677a7",
    ),
    train=("train",),
    test="test",
    meta="meta",
    labels_key="fine_labels",
    names_key="fine_label_names",
    sha256={
        "train": "735e79b04f092ca3d2e6d07f368c0a7d70d48c48d28865950cc24454cf45129b",
        "test": "4b67687d9933c4db8f0831104447f15b93774f4f464bd0516f0f0f2ac83b7864",
        "meta": "a5d4786345c961390f865e93b434dbd5c6904ce880667e0cb888c97d449f28b9",
    },
    mean=(0.5071, 0.4865, 0.4409),
    std=(0.2673, 0.2564, 0.2762),
)
CIFAR10N = HumanLabels(
    Remote(
        "https://raw.githubusercontent.com/UCSC-REAL/cifar-10-100n/main/data/CIFAR-10_human.pt",
        "873e69c39cb9b5e97fb6bae2d60bb59b38a5cbc31d2b868f7903dcb2b9dd2310",
    ),
    {
        "aggre": "aggre_label",
        "worst": "worse_label",
        "rand1": "random_label1",
        "rand2": "random_label2",
        "rand3": "random_label3",
    },
)
CIFAR100N = HumanLabels(
    Remote(
        "https://raw.githubusercontent.com/UCSC-REAL/cifar-10-100n/main/data/CIFAR-100_human.pt",
        "bd2d80409754d420292d622e15e25248ba21e37d27429efac49c8da723f44394",
    ),
    {"noisy": "noisy_label"},
)
SETS: dict[str, tuple[Images, HumanLabels | None]] = {
    "cifar10": (CIFAR10, None),
    "cifar100": (CIFAR100, None),
    "cifar10n": (CIFAR10, CIFAR10N),
    "cifar100n": (CIFAR100, CIFAR100N),
}
NAMES = tuple(
    name
    for set_name, (_, human) in SETS.items()
    for name in (set_name, *(f"{set_name}:{column}" for column in (human.columns if human else ())))
)
"""every name that :func:`load` knows; the name of a set alone stands for its first column"""


@dataclass(frozen=True, eq=False)
class CifarN:
    """Images (uint8, n x 3 x 32 x 32) with the labels that somebody gave them, and what only a benchmark knows."""

    name: str
    """the name with its column, as in ``cifar10n:aggre``"""
    images: Pixels
    labels: Labels
    """the given ones: the human ones of CIFAR-N, or the data set's own"""
    clean_labels: Labels
    """the data set's own; for metrics and the oracle only"""
    test_images: Pixels
    test_labels: Labels
    class_names: tuple[str, ...]
    mean: tuple[float, float, float]
    """the means of each channel, of training pixels in [0, 1]"""
    std: tuple[float, float, float]
    published: bool
    """every file is the publisher's, byte for byte; otherwise it is a smaller set in the same format"""

    @property
    def classes(self) -> int:
        """The number of classes."""
        return len(self.class_names)

    @property
    def truth(self) -> Truth:
        """The truth of the labels: those that differ from the data set's own are wrong."""
        return Truth.from_labels(self.labels, self.clean_labels)

    @property
    def noise_rate(self) -> float:
        """The share of given labels that are wrong."""
        return self.truth.rate

    def first(self, train: int | None, test: int | None) -> "CifarN":
        """Cut the data to its first images, for a quick look; ``None`` keeps all."""
        return self._cut(slice(train), self.test_images[:test], self.test_labels[:test])

    def holding_out(self, share: float, seed: int) -> "CifarN":
        """Put a random part of the training images in place of the test set, under their given labels.

        Settings are chosen on it, so that neither test images nor clean labels have a say.
        """
        order = Draws.named(seed, "hold-out").shuffle(np.arange(len(self.labels)))
        train, test = np.sort(order[: -round(share * len(order))]), order[-round(share * len(order)) :]
        return self._cut(train, self.images[test], self.labels[test])

    def _cut(self, train: slice | Labels, test_images: Pixels, test_labels: Labels) -> "CifarN":
        kept = {name: getattr(self, name)[train] for name in ("images", "labels", "clean_labels")}
        return replace(self, **kept, test_images=test_images, test_labels=test_labels)


def load(name: str, data_dir: Path | None = None, *, download: bool = True) -> CifarN:
    """Load a data set by its name, one of ``NAMES``.

    Its files are looked for in ``data_dir``, in ``$STEPE_DATA`` and in the cache folder; what is in none of them is
    downloaded into the first of these places that is given.
    """
    if name not in NAMES:
        raise InputError(f"unknown data set {name!r}; there is {', '.join(NAMES)}")
    set_name, _, column = name.partition(":")
    images, human = SETS[set_name]
    places = folders(data_dir)
    folder = _find_images(images, places, download)
    remedy = f"delete {folder} to have it downloaded again, or unpack {images.archive.url} in {folder.parent}"
    files = {file: _File.read(folder / file, images.sha256[file], remedy) for file in images.files}
    class_names = files[images.meta].names(images.names_key)
    train = [files[file].samples(images.labels_key, len(class_names)) for file in images.train]
    pixels, clean = (np.concatenate(parts) for parts in zip(*train, strict=True))
    test_pixels, test_labels = files[images.test].samples(images.labels_key, len(class_names))
    given = clean
    if human is not None:
        column = column or next(iter(human.columns))
        path = _find_labels(human, places, download)
        remedy = f"delete it to have it downloaded again, or get {human.file.url} and put it into {path.parent}"
        files[path.name] = _File.read(path, human.file.sha256, remedy)
        given = _given_labels(files[path.name], human.columns[column], clean, len(class_names))
    # Sets of another size are somebody's subset; what has the published size must be what was published.
    if (len(pixels), len(test_pixels)) == PUBLISHED_SIZE:
        for file in files.values():
            if not file.published:
                raise file.error(f"is not the published file: its SHA-256 is {file.sha256}")
    return CifarN(
        name=f"{set_name}:{column}" if column else set_name,
        images=pixels.reshape(-1, 3, SIDE, SIDE),
        labels=given,
        clean_labels=clean,
        test_images=test_pixels.reshape(-1, 3, SIDE, SIDE).copy(),  # those of a pickle are read-only
        test_labels=test_labels,
        class_names=class_names,
        mean=images.mean,
        std=images.std,
        published=all(file.published for file in files.values()),
    )


def folders(data_dir: Path | None = None) -> list[Path]:
    """List the folders in which data is looked for, in this order; a download goes into the first."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "stepe"
    given = [data_dir, os.environ.get("STEPE_DATA"), cache]
    return [Path(place).expanduser() for place in given if place]


def _find_images(images: Images, places: list[Path], download: bool) -> Path:
    for place in places:
        if (place / images.folder).is_dir():
            return place / images.folder
    if not download:
        raise _not_found(images.folder, places, f"unpack {images.archive.url}")
    folder = places[0] / images.folder
    archive = places[0] / images.archive.name
    put_by_hand = archive.exists()
    downloads.fetch(images.archive, places[0])
    downloads.unpack(archive, [f"{images.folder}/{file}" for file in images.files], folder)
    if not put_by_hand:
        archive.unlink(missing_ok=True)
    return folder


def _find_labels(human: HumanLabels, places: list[Path], download: bool) -> Path:
    for place in places:
        if (place / human.file.name).is_file():
            return place / human.file.name
    if not download:
        raise _not_found(human.file.name, places, f"put {human.file.url}")
    return downloads.fetch(human.file, places[0])


def _not_found(what: str, places: list[Path], fix: str) -> InputError:
    return InputError(f"{what} is not in {' or '.join(map(str, places))}; {fix} into the first, or allow the download")


def _given_labels(file: "_File", column: str, clean: Labels, classes: int) -> Labels:
    """Read a column of human labels, once the file is known to speak of the same images in the same order."""
    same = file.labels("clean_label", classes)
    if len(same) != len(clean):
        raise file.error(f"holds labels for {len(same)} images, but the data set has {len(clean)}")
    if (wrong := np.flatnonzero(same != clean)).size:
        raise file.error(
            f"does not belong to this data set: its clean labels differ from the data set's own for {wrong.size} of "
            f"{len(clean)} images, the first being image {wrong[0]}"
        )
    given = file.labels(column, classes)
    if len(given) != len(clean):
        raise file.error(f"holds {len(given)} labels {column} for {len(clean)} images")
    return given


@dataclass(frozen=True)
class _File:
    """A file's content, what it should be, and what to do where it is not that."""

    path: Path
    content: dict[str, object]
    sha256: str
    published: bool
    remedy: str

    @classmethod
    def read(cls, path: Path, published_sha256: str, remedy: str) -> "_File":
        if not path.is_file():
            raise InputError(f"{path} is missing; {remedy}")
        try:
            data = path.read_bytes()
            content = pickles.loads(data, path)
        except OSError as error:
            raise InputError(f"{path} cannot be read: {error.strerror or error}") from error
        except InputError as error:
            raise InputError(f"{error}; {remedy}") from error
        sha256 = hashlib.sha256(data).hexdigest()
        return cls(path, content, sha256, sha256 == published_sha256, remedy)

    def error(self, problem: str) -> InputError:
        return InputError(f"{self.path} {problem}; {self.remedy}")

    def __getitem__(self, key: str) -> object:
        if key not in self.content:
            raise self.error(f"has no entry {key}; it holds {', '.join(self.content) or 'nothing'}")
        return self.content[key]

    def names(self, key: str) -> tuple[str, ...]:
        """Read the names of the classes."""
        found = self[key]
        if not isinstance(found, list) or not found or not all(isinstance(name, bytes | str) for name in found):
            raise self.error(f"has something other than class names in its entry {key}")
        return tuple(name.decode("utf-8", "replace") if isinstance(name, bytes) else name for name in found)

    def samples(self, labels_key: str, classes: int) -> tuple[Pixels, Labels]:
        """Read the images, a row each, and their labels."""
        pixels = self["data"]
        if not isinstance(pixels, np.ndarray) or pixels.dtype != np.uint8 or pixels.shape[1:] != (3 * SIDE * SIDE,):
            raise self.error(f"has something other than rows of {3 * SIDE * SIDE} pixel values in its entry data")
        labels = self.labels(labels_key, classes)
        if len(labels) != len(pixels):
            raise self.error(f"holds {len(labels)} labels for {len(pixels)} images")
        return pixels, labels

    def labels(self, key: str, classes: int) -> Labels:
        """Read labels, each of them a class."""
        found = self[key]
        if not isinstance(found, np.ndarray):
            integers = isinstance(found, list) and all(type(label) is int for label in found)
            found = np.array(found if integers else None)
        if found.ndim != 1 or found.dtype.kind not in "iu":
            raise self.error(f"has something other than integers in its entry {key}")
        if found.size and not 0 <= found.min() <= found.max() < classes:
            raise self.error(f"has labels outside 0 to {classes - 1} in its entry {key}")
        return found.astype(np.int64)
