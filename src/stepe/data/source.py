"""Sources: where ``stepe clean`` gets its samples, by name or path."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from stepe.beliefs.names import Names
from stepe.data import arrays, cifar_n
from stepe.data.collect import (
    Collection,
    Say,
    can_collect,
    collect,
    conflicting_duplicates,
    csv_text,
    from_matrix,
    group_numbers,
    number_labels,
)
from stepe.data.encoders import (
    Array,
    Encoder,
    FeatureEncoder,
    FitEncoder,
    ImageEncoder,
    TableEncoder,
    fit_encoder,
)
from stepe.data.images import FEW_PIXELS, image_size_for
from stepe.data.noise import Noise, Planted
from stepe.data.originals import Originals
from stepe.data.split import hold_out
from stepe.errors import InputError
from stepe.files import exists
from stepe.loop.draws import Draws
from stepe.loop.metrics import Truth
from stepe.options.data import HF_PREFIX
from stepe.options.layout import HOLD_OUT, DataKind, Layout
from stepe.run.previews import Preview, encoded
from stepe.tables.formats import FORMATS

BUNDLED_PREFIX = "bundled:"
PROJECTED = 64
"""dimensions in which texts are compared, to plant noise that depends on them"""

BENCHMARK: dict[str, Any] = {
    "held_out_is_clean": True,
    "uniform_classes": True,
    "is_experiment": True,
    "default_probe": "in-sample",
    "default_epochs": 60,
}
"""what holds of digits and CIFAR; the classes of both have (about) equally many pictures, which is public"""

Integers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Source:
    """Labelled samples, some of them held out. What only a benchmark knows is kept in ``truth`` and ``clean_*``."""

    name: str
    x: Array
    labels: Integers
    class_names: list[str]
    names: Names
    test_x: Array
    test_labels: Integers
    test_names: Names
    kind: DataKind
    encoder: Encoder
    """how further inputs become what ``x`` holds"""
    reference: str | None = None
    """what :func:`open_source` finds it by; ``None``: arrays, which cannot be found again"""
    bundled: bool = False
    image_shape: tuple[int, ...] | None = None
    """height and width (and channels), where a sample is a picture: values in [0, 1], or bytes with channels first"""
    mean: tuple[float, ...] | None = None
    """the means of the pictures' channels, in [0, 1], where a network wants them normalised by it"""
    std: tuple[float, ...] | None = None
    truth: Truth | None = None
    clean_x: Array | None = None
    clean_labels: Integers | None = None
    noise_rate: float | None = None
    """the share of wrong labels, where noise was planted or the data set says it"""
    held_out_is_clean: bool = False
    """whether the held-out labels are known to be right"""
    uniform_classes: bool = False
    """whether all classes are known to be equally frequent"""
    is_experiment: bool = False
    """whether the noise is known or planted, so that nobody needs the data cleaned"""
    default_probe: str = "auto"
    """who judges the samples where nobody says"""
    default_epochs: int | None = None
    """length of a run where nobody says, in which networks train as in the experiments; ``None``: by the data"""
    trusted: npt.NDArray[np.bool_] | None = None
    """whether each label was checked"""
    test_trusted: npt.NDArray[np.bool_] | None = None
    """the same of the held-out ones, which judges judge as well"""
    groups: Integers | None = None
    """one integer a sample, for the floor below which none is dropped"""
    unlabelled_x: Array | None = None
    """samples without a label, to be predicted"""
    unlabelled_names: Names | None = None
    duplicates: int = 0
    """samples whose very input also stands under another label"""
    files: dict[str, str] = field(default_factory=dict)
    """what was found before training, as files for the run folder"""
    originals: Originals | None = None
    """what people are shown, by row; where there are none, a picture can be made of ``x``"""
    keys: list[Any] | None = None
    """of each sample, the held-out ones and those without a label after the others, what its copies share"""
    together: list[str] | None = None
    """of the same samples, what each belongs to (``split_by``)"""

    @property
    def classes(self) -> int:
        """The number of classes."""
        return len(self.class_names)

    @property
    def can_be_blended(self) -> bool:
        """Whether half of one input and half of another are an input."""
        has_codes = isinstance(self.encoder, TableEncoder) and bool(self.encoder.codes)
        return self.kind != "text" and not has_codes

    def planted(self, noise: Noise | None, seed: int) -> "Source":
        """Return the same samples with noise; what they were before becomes the truth."""
        if self.noise_rate:
            raise InputError(f"{self.name} has wrong labels of its own; leave the noise out")
        if noise is None:
            truth = Truth(np.zeros(len(self.labels), dtype=bool), self.labels)
            return replace(
                self, truth=truth, clean_x=self.x, clean_labels=self.labels, noise_rate=0.0, is_experiment=True
            )
        planted = self._plant(noise, seed)
        return replace(
            self,
            x=planted.x,
            labels=planted.labels,
            truth=Truth(planted.noisy, self.labels),
            clean_x=self.x,
            clean_labels=self.labels,
            noise_rate=float(planted.noisy.mean()),
            is_experiment=True,
            # An original would not show what was done to the input.
            originals=None if noise.kind == "outliers" else self.originals,
        )

    def _plant(self, noise: Noise, seed: int) -> Planted:
        if self.kind == "text" and noise.kind == "instance":
            # Numbers of n-grams are names: what a text resembles shows in a projection of its bag.
            directions = Draws.named(seed, "noise/projection").normal(np.arange((self.x.max() + 1) * PROJECTED))
            bags = _mean_of(directions.reshape(-1, PROJECTED), self.x)
            return replace(noise.plant(bags, self.labels, self.classes, seed), x=self.x)
        if self.kind == "table" and noise.kind == "outliers":
            # The columns of a table have no range in common.
            low, high = self.x.min(0), self.x.max(0)
            planted = noise.plant((self.x - low) / np.maximum(high - low, 1e-6), self.labels, self.classes, seed)
            return replace(planted, x=np.where(planted.noisy[:, None], low + (high - low) * planted.x, self.x))
        return noise.plant(self.x, self.labels, self.classes, seed)

    def previews(self, index: list[int]) -> list[Preview]:
        """Return training samples as a person is to see them."""
        rows = [self.names.rows[i] for i in index]
        found = [Preview(row) for row in rows] if self.originals is None else self.originals.show(rows)
        if self.image_shape is None:
            return found
        return [
            replace(preview, picture=self._picture(i)) if preview.picture is None else preview
            for i, preview in zip(index, found, strict=True)
        ]

    def _picture(self, index: int) -> bytes:
        """Draw a sample as the network sees it."""
        from PIL import Image

        assert self.image_shape is not None
        x = self.x[index]
        if x.ndim == 3:
            return encoded(Image.fromarray(np.ascontiguousarray(x.transpose(1, 2, 0))))
        scaled = (x.clip(0, 1) * 255).round().astype(np.uint8)
        return encoded(Image.fromarray(scaled.reshape(self.image_shape)))


def _mean_of(directions: npt.NDArray[np.float32], texts: Integers) -> npt.NDArray[np.float32]:
    """Average the directions of the n-grams of each text, whose numbers are the rows; 0 pads."""
    directions[0] = 0
    means = np.empty((len(texts), directions.shape[1]), dtype=np.float32)
    for i, text in enumerate(texts):
        means[i] = directions[text].sum(0) / max(1, np.count_nonzero(text))
    return means


def digits() -> Source:
    """Return scikit-learn's bundled handwritten digits: 1797 pictures of 8 x 8, a fifth of them held out."""
    from sklearn.datasets import load_digits

    bunch = load_digits()
    collection = from_matrix(bunch.data / 16, bunch.target, "digits")
    return replace(
        from_collection(collection, fit=lambda kind, inputs: FeatureEncoder.identity(64)),
        reference=f"{BUNDLED_PREFIX}digits",
        bundled=True,
        **BENCHMARK,
        image_shape=(8, 8),
        duplicates=0,
        files={},
    )


BUNDLED: dict[str, Callable[[], Source]] = {"digits": digits}


def from_cifar(name: str, data_dir: Path | None = None) -> Source:
    """Load CIFAR-10 or -100 with their own labels or the human ones of CIFAR-N; the clean test set is held out."""
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
        kind="images",
        encoder=ImageEncoder(32, list(data.mean), list(data.std)),
        **BENCHMARK,
        reference=data.name,
        image_shape=(32, 32, 3),
        mean=data.mean,
        std=data.std,
        truth=data.truth,
        clean_x=data.images,
        clean_labels=data.clean_labels,
        noise_rate=data.noise_rate,
    )


def open_own(
    data: Any,
    layout: Layout | None = None,
    say: Say = lambda message: None,
    *,
    gpu: bool = False,
    by_network: bool | None = True,
    fit: FitEncoder = fit_encoder,
) -> Source:
    """Open people's own data: a path, a reference, a pair of arrays or a table in memory.

    Judges need nothing held out; ``by_network`` says whether a network judges, or ``None``: as the data are.
    """
    layout = layout or Layout()
    if isinstance(data, tuple):
        layout.check_no_columns("a pair of arrays")
        features, labels = data
        collection = from_matrix(features, labels, "arrays")
    else:
        collection = collect(
            data, layout, say, size_for=partial(image_size_for, gpu=gpu, by_network=by_network is True)
        )
    if by_network is None:
        by_network = needs_network(collection)
    layout = layout if layout.holdout is not None else replace(layout, holdout=HOLD_OUT if by_network else 0.0)
    if layout.test is None:
        return from_collection(collection, layout, say, fit=fit)
    if collection.reference == layout.test:
        raise InputError("the test data is the training data, so the accuracy would say nothing; leave --test out")
    size = collection.inputs.shape[-1] if collection.kind == "images" else None
    held_out = collect(layout.test, replace(layout, image_size=size), say)
    return from_collection(collection, layout, say, fit=fit, held_out=held_out)


def needs_network(collection: Collection) -> bool:
    """Say whether the samples are pictures too large to be judged by their pixels."""
    return collection.kind == "images" and collection.inputs.shape[-1] > FEW_PIXELS


def from_collection(
    collection: Collection,
    layout: Layout | None = None,
    say: Say = lambda message: None,
    *,
    fit: FitEncoder = fit_encoder,
    held_out: Collection | None = None,
) -> Source:
    """Give labels numbers, hold some samples out, and encode all with what is fitted on the rest."""
    layout = layout or Layout()
    class_names, numbers = number_labels(collection.labels, collection.name)
    labelled = np.flatnonzero(numbers >= 0)
    together = None if collection.together is None else [collection.together[i] for i in labelled]
    share = HOLD_OUT if layout.holdout is None else layout.holdout
    apart = hold_out(numbers[labelled], 0 if held_out is not None else share, together)
    train, test, unlabelled = labelled[~apart], labelled[apart], np.flatnonzero(numbers < 0)
    encoder = fit(collection.kind, collection.take(train))
    if held_out is None:
        tested, test_labels = collection, numbers[test]
    else:
        tested, test, test_labels = held_out, *_known_labels(held_out, class_names, say)
    duplicates = conflicting_duplicates(collection)
    if duplicates:
        groups = duplicates[-1][-1]
        say(
            f"{len(duplicates)} samples, in {groups} groups of the very same input, carry different labels: see "
            "duplicates.csv"
        )
    return Source(
        name=collection.name,
        x=encoder.encode(collection.take(train)),
        labels=numbers[train],
        class_names=class_names,
        names=collection.names(train, "train"),
        test_x=encoder.encode(tested.take(test)),
        test_labels=test_labels,
        test_names=tested.names(test, "test"),
        kind=collection.kind,
        encoder=encoder,
        reference=collection.reference,
        image_shape=(encoder.size, encoder.size, 3) if isinstance(encoder, ImageEncoder) else None,
        mean=tuple(encoder.mean) if isinstance(encoder, ImageEncoder) else None,
        std=tuple(encoder.std) if isinstance(encoder, ImageEncoder) else None,
        trusted=None if collection.trusted is None else np.asarray(collection.trusted, dtype=bool)[train],
        test_trusted=None if tested.trusted is None else np.asarray(tested.trusted, dtype=bool)[test],
        groups=None if collection.groups is None else group_numbers([collection.groups[i] for i in train]),
        unlabelled_x=encoder.encode(collection.take(unlabelled)) if len(unlabelled) else None,
        unlabelled_names=collection.names(unlabelled, "unlabelled") if len(unlabelled) else None,
        duplicates=len(duplicates),
        files=_findings(duplicates, collection.skipped or {}),
        originals=collection.originals,
        keys=_of_parts("keys", collection, train, tested, test, unlabelled),
        together=_of_parts("together", collection, train, tested, test, unlabelled),
    )


def _of_parts(
    what: Literal["keys", "together"],
    collection: Collection,
    train: Integers,
    tested: Collection,
    test: Integers,
    unlabelled: Integers,
) -> list[Any] | None:
    """Say of each sample what it shares with others, the held-out ones and those without a label after the others."""
    parts = [(collection, train), (tested, test), (collection, unlabelled)]
    found: list[Any] = []
    for part, index in parts:
        values: Any = getattr(part, what)
        if values is None:
            return None
        found += [values[i] for i in index]
    return found


def _known_labels(
    held_out: Collection, class_names: list[str], say: Say
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Find which samples of a separate test set have a label, and its number."""
    number = {label: i for i, label in enumerate(class_names)}
    if unknown := sorted(set(held_out.labels) - set(number) - {""}):
        raise InputError(
            f"class {unknown[0]!r} of the test data {held_out.name} is not among the training labels; remove its rows"
        )
    labels = np.array([number.get(label, -1) for label in held_out.labels], dtype=np.int64)
    index = np.flatnonzero(labels >= 0)
    if not len(index):
        raise InputError(f"no row of the test data {held_out.name} has a label; leave --test out")
    if len(index) < len(labels):
        say(f"{len(labels) - len(index)} rows of the test data have no label and are left out")
    return index, labels[index]


def _findings(duplicates: list[tuple[str, int, str, int]], skipped: dict[str, str]) -> dict[str, str]:
    found = {}
    if duplicates:
        found["duplicates.csv"] = csv_text(("id", "row", "given_label", "group"), duplicates)
    if skipped:
        found["unreadable.csv"] = csv_text(("id", "reason"), list(skipped.items()))
    return found


def open_source(
    data: str,
    say: Say = lambda message: None,
    data_dir: Path | None = None,
    layout: Layout | None = None,
    *,
    gpu: bool = False,
    by_network: bool | None = True,
    fit: FitEncoder = fit_encoder,
) -> Source:
    """Open a source by path or by name; a local path wins, and ``say`` is told so."""
    layout = layout or Layout()
    path = Path(data)
    if data in cifar_n.NAMES and not exists(path):
        layout.check_no_columns(data)
        return from_cifar(data, data_dir)
    if data.startswith(BUNDLED_PREFIX) or (data in BUNDLED and not exists(path)):
        name = data.removeprefix(BUNDLED_PREFIX)
        if name not in BUNDLED:
            raise InputError(f"unknown bundled data set {name!r}; there is {', '.join(BUNDLED)}")
        layout.check_no_columns(data)
        return BUNDLED[name]()
    if data in BUNDLED:
        say(f"{data!r} is a local path, which wins over the bundled data set; for that one, say {BUNDLED_PREFIX}{data}")
    if data in cifar_n.NAMES:
        say(f"{data!r} is a local path, which wins over the data set of that name")
    check_there(data)
    return open_own(data, layout, say, gpu=gpu, by_network=by_network, fit=fit)


def check_there(data: str) -> None:
    """Refuse a path that does not lead to data, with what would."""
    if data.startswith(HF_PREFIX):
        return
    readable = f"a folder of pictures, a file that ends in {', '.join(FORMATS)}, or a pair x.npy,y.npy"
    there = arrays.missing(data) is None if arrays.is_array_file(data) else exists(Path(data))
    if not data or not there:
        raise InputError(
            f"{data!r} is neither a file here nor a known data set; there is {', '.join([*BUNDLED, *cifar_n.NAMES])}, "
            f"or give the path of {readable}"
        )
    if not can_collect(data):
        raise InputError(f"{data!r} is not a kind of data that can be read; give {readable}")
