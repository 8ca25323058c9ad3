"""Sources: where ``stepe clean`` gets its samples, by name or path."""

import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from stepe.data import cifar_n
from stepe.data.noise import Noise
from stepe.errors import InputError
from stepe.issues import Names
from stepe.metrics import Truth
from stepe.randomness import Stream

BUNDLED_PREFIX = "bundled:"
HOLD_OUT = 0.2


@dataclass(frozen=True)
class Source:
    """Labelled samples, some of them held out. What only a benchmark knows is kept in ``truth`` and ``clean_*``."""

    name: str
    x: Tensor
    labels: Tensor
    class_names: list[str]
    names: Names
    test_x: Tensor
    test_labels: Tensor
    test_names: Names
    reference: str | None = None
    """what :func:`open_source` finds it by; ``None``: arrays, which only their owner can bring again"""
    bundled: bool = False
    image_shape: tuple[int, ...] | None = None
    """height and width (and channels), where a sample is a picture: values in [0, 1], or bytes with channels first"""
    mean: tuple[float, ...] | None = None
    """per channel of the pictures, in [0, 1], where a network wants them normalised by it"""
    std: tuple[float, ...] | None = None
    truth: Truth | None = None
    clean_x: Tensor | None = None
    clean_labels: Tensor | None = None
    noise_rate: float | None = None
    """known, because it was planted or the data set says so"""

    @property
    def classes(self) -> int:
        """Number of classes."""
        return len(self.class_names)

    def planted(self, noise: Noise | None, seed: int) -> "Source":
        """The same samples with noise; what they were before becomes the truth."""
        if self.noise_rate:
            raise InputError(f"{self.name} has wrong labels of its own; leave the noise out")
        if noise is None:
            truth = Truth(torch.zeros(len(self.labels), dtype=torch.bool), self.labels)
            return replace(self, truth=truth, clean_x=self.x, clean_labels=self.labels, noise_rate=0.0)
        planted = noise.plant(self.x, self.labels, self.classes, seed)
        return replace(
            self,
            x=planted.x,
            labels=planted.labels,
            truth=Truth(planted.noisy, self.labels),
            clean_x=self.x,
            clean_labels=self.labels,
            noise_rate=float(planted.noisy.double().mean()),
        )

    def pictures(self, index: Tensor) -> npt.NDArray[np.uint8]:
        """Samples as pictures."""
        assert self.image_shape is not None
        x = self.x[index].cpu()
        if x.ndim == 4:
            return x.permute(0, 2, 3, 1).contiguous().numpy()
        scaled = (x.clamp(0, 1) * 255).round().to(torch.uint8)
        return scaled.reshape(len(index), *self.image_shape).numpy()


def digits() -> Source:
    """scikit-learn's bundled handwritten digits: 1797 pictures of 8 x 8, a fifth of them held out."""
    from sklearn.datasets import load_digits

    bunch = load_digits()
    x = torch.tensor(bunch.data / 16, dtype=torch.float32)
    return _split(
        "digits", x, torch.tensor(bunch.target), [str(i) for i in range(10)], bundled=True, image_shape=(8, 8)
    )


BUNDLED: dict[str, Callable[[], Source]] = {"digits": digits}


def from_cifar(name: str, data_dir: Path | None = None) -> Source:
    """CIFAR-10 or -100 with their own labels or the human ones of CIFAR-N; the clean test set is held out."""
    data = cifar_n.load(name, data_dir)
    return Source(
        name=data.name.replace(":", "-"),
        x=data.images,
        labels=data.labels,
        class_names=list(data.class_names),
        names=Names.numbered(len(data.labels)),
        test_x=data.test_images,
        test_labels=data.test_labels,
        test_names=Names.numbered(len(data.test_labels), "test"),
        reference=data.name,
        image_shape=(32, 32, 3),
        mean=data.mean,
        std=data.std,
        truth=data.truth,
        clean_x=data.images,
        clean_labels=data.clean_labels,
        noise_rate=data.noise_rate,
    )


def from_arrays(features: npt.ArrayLike, labels: npt.ArrayLike, name: str = "arrays") -> Source:
    """Features (n x d) and labels, which may be strings."""
    try:
        x = np.asarray(features, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"the features of {name} are not numbers: {error}") from error
    y = np.asarray(labels)
    if x.ndim != 2 or x.size == 0:
        raise InputError(
            f"the features of {name} have shape {x.shape}; they must be n x d, with at least one row and one column"
        )
    if y.shape != (len(x),):
        raise InputError(f"the labels of {name} have shape {y.shape} for {len(x)} rows of features; give one a row")
    if not np.isfinite(x).all():
        row = int(np.flatnonzero(~np.isfinite(x).all(1))[0])
        raise InputError(f"the features of {name} hold NaN or infinity (first in row {row}); fill or remove them")
    if y.dtype.kind not in "biuSU":
        raise InputError(f"the labels of {name} are {y.dtype}; classes must be integers or strings")
    if y.dtype.kind == "S":
        y = np.char.decode(y, "utf-8", "replace")
    classes, index, counts = np.unique(y, return_inverse=True, return_counts=True)
    if len(classes) < 2:
        raise InputError(f"all labels of {name} are {str(classes[0])!r}; at least two classes are needed")
    if counts.min() < 2:
        rare = classes[counts.argmin()]
        raise InputError(f"class {str(rare)!r} of {name} has one sample; each class needs at least two to hold one out")
    center, scale = x.mean(0), x.std(0)
    x = (x - center) / np.where(scale > 0, scale, 1)
    names = [str(c) for c in classes]
    return _split(name, torch.tensor(x, dtype=torch.float32), torch.tensor(index, dtype=torch.int64), names)


def from_npz(path: Path) -> Source:
    """A file with the arrays ``features`` and ``labels``, as ``numpy.savez`` writes it."""
    try:
        with _load_npz(path) as arrays:
            if missing := {"features", "labels"} - set(arrays.files):
                found = ", ".join(arrays.files) or "nothing"
                raise InputError(f"{path} has no array {' or '.join(sorted(missing))}; it holds {found}")
            source = from_arrays(arrays["features"], arrays["labels"], name=path.stem)
            return replace(source, reference=str(path.resolve()))
    except (OSError, EOFError, zipfile.BadZipFile, zlib.error, RuntimeError, MemoryError) as error:
        raise InputError(f"{path} cannot be read as an npz file ({error}); write it with numpy.savez") from error
    except ValueError as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path} cannot be read: {error}; labels must be integers or fixed-width strings") from error


def _load_npz(path: Path) -> "np.lib.npyio.NpzFile":
    loaded = np.load(path, allow_pickle=False)
    if isinstance(loaded, np.ndarray):
        raise InputError(f"{path} holds one array without a name; write it with numpy.savez, as features and labels")
    return loaded  # type: ignore[no-any-return]


def open_source(data: str, say: Callable[[str], None] = lambda message: None, data_dir: Path | None = None) -> Source:
    """A source by path or by name; a local path wins, and ``say`` is told so."""
    path = Path(data)
    if data in cifar_n.NAMES and not _exists(path):
        return from_cifar(data, data_dir)
    if data.startswith(BUNDLED_PREFIX) or (data in BUNDLED and not _exists(path)):
        name = data.removeprefix(BUNDLED_PREFIX)
        if name not in BUNDLED:
            raise InputError(f"unknown bundled data set {name!r}; there is {', '.join(BUNDLED)}")
        return BUNDLED[name]()
    if data in BUNDLED:
        say(f"{data!r} is a local path, which wins over the bundled data set; for that one, say {BUNDLED_PREFIX}{data}")
    if data in cifar_n.NAMES:
        say(f"{data!r} is a local path, which wins over the data set of that name")
    if not _exists(path):
        raise InputError(
            f"{data!r} is neither a file here nor a known data set; there is {', '.join([*BUNDLED, *cifar_n.NAMES])}, "
            "or give the path of an .npz file with the arrays features and labels"
        )
    if path.suffix != ".npz":
        raise InputError(
            f"{data!r} is not a kind of data that can be read yet; "
            "give an .npz file with the arrays features (n x d) and labels (n), as numpy.savez writes it"
        )
    return from_npz(path)


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # a name that no file can have
        return False


def _split(
    name: str,
    x: Tensor,
    labels: Tensor,
    class_names: list[str],
    *,
    bundled: bool = False,
    image_shape: tuple[int, ...] | None = None,
) -> Source:
    """Hold out a fifth of each class. The split does not depend on the run's seed, so that runs can be compared."""
    order = Stream.named(0, "split").shuffle(torch.arange(len(labels)))
    held_out = []
    for c in range(len(class_names)):
        of_class = order[labels[order] == c]
        held_out.append(of_class[: min(max(1, round(HOLD_OUT * len(of_class))), len(of_class) - 1)])
    test = torch.sort(torch.cat(held_out)).values
    train = torch.ones(len(labels), dtype=torch.bool)
    train[test] = False
    rows = torch.nonzero(train).squeeze(1)
    return Source(
        name=name,
        x=x[rows],
        labels=labels[rows],
        class_names=class_names,
        names=Names([str(row) for row in rows.tolist()], rows.tolist()),
        test_x=x[test],
        test_labels=labels[test],
        test_names=Names([str(row) for row in test.tolist()], test.tolist(), "test"),
        reference=f"{BUNDLED_PREFIX}{name}" if bundled else None,
        bundled=bundled,
        image_shape=image_shape,
    )
