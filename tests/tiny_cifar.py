"""CIFAR-10 and CIFAR-100 in their publishers' formats, with a few random images."""

import struct
from pathlib import Path

import numpy as np
import torch

from stepe.data.cifar_n import CIFAR10, CIFAR10N, CIFAR100, Images

BATCH = 20
"""images in a file; the training file of CIFAR-100 has five times as many"""


def python_2(value: object) -> bytes:
    """The instructions that Python 2 wrote for a value, as in CIFAR's own files."""
    match value:
        case None:
            return b"N"
        case bool():
            return b"\x88" if value else b"\x89"
        case int():
            return b"K" + bytes([value]) if 0 <= value < 256 else b"J" + struct.pack("<i", value)
        case str():
            return python_2(value.encode())
        case bytes():
            short = len(value) < 256
            return (b"U" + bytes([len(value)]) if short else b"T" + struct.pack("<i", len(value))) + value
        case tuple():
            return b"(" + b"".join(map(python_2, value)) + b"t"
        case list():
            return b"](" + b"".join(map(python_2, value)) + b"e"
        case dict():
            return b"}(" + b"".join(python_2(item) for pair in value.items() for item in pair) + b"u"
        case np.ndarray():
            empty = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n" + python_2((0,)) + b"U\x01btR"
            dtype = b"cnumpy\ndtype\n" + python_2(("u1", 0, 1)) + b"R"
            dtype += python_2((3, "|", None, None, None, -1, -1, 0)) + b"b"
            shape = python_2(value.shape)
            return empty + b"(K\x01" + shape + dtype + b"\x89" + python_2(value.tobytes()) + b"tb"
    raise TypeError(type(value))


def write(path: Path, value: object) -> None:
    path.write_bytes(b"\x80\x02" + python_2(value) + b".")


def make(folder: Path, images: Images, classes: int, draw: np.random.Generator) -> list[int]:
    """A small set in the published format; returns the training labels."""
    folder.mkdir(parents=True)
    found = []
    for file in (*images.train, images.test):
        n = BATCH if len(images.train) > 1 or file == images.test else 5 * BATCH
        labels = draw.integers(classes, size=n).tolist()
        found += labels if file in images.train else []
        pixels = draw.integers(256, size=(n, 3072), dtype=np.uint8)
        names = [f"{i}.png" for i in range(n)]
        write(folder / file, {"data": pixels, images.labels_key: labels, "filenames": names, "batch_label": "x"})
    write(folder / images.meta, {images.names_key: [f"class {c}" for c in range(classes)], "num_vis": 3072})
    return found


def make_sets(data: Path) -> None:
    """Both sets beside their human labels: a fifth of them are wrong, all of the worst ones."""
    draw = np.random.default_rng(0)
    clean = np.array(make(data / CIFAR10.folder, CIFAR10, 10, draw))
    wrong = np.arange(len(clean)) % 5 == 0
    columns = {key: (clean + i * wrong) % 10 for i, key in enumerate(CIFAR10N.columns.values(), start=1)}
    columns["worse_label"] = (clean + 1) % 10
    torch.save({"clean_label": clean, **columns}, data / "CIFAR-10_human.pt")
    clean = np.array(make(data / CIFAR100.folder, CIFAR100, 100, draw))
    noisy = (clean + wrong) % 100
    extra = {"noisy_coarse_label": noisy.tolist()}
    torch.save({"clean_label": clean, "noisy_label": noisy, **extra}, data / "CIFAR-100_human.pt")
