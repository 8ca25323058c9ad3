"""Pictures in files: found, checked, and read as squares of bytes."""

import hashlib
import io
import os
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from stepe.errors import InputError

if TYPE_CHECKING:
    from PIL.Image import Image

SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".bmp")
OTHERS = frozenset({".tif", ".tiff", ".gif", ".heic", ".heif", ".avif", ".jp2", ".dcm", ".psd", ".svg", ".raw", ".dng"})
SKIPPED_SHARE, SKIPPED_ALWAYS = 0.1, 5
"""so many pictures may be unreadable before that is an error"""
SMALL, LARGE, CPU_SIZE = 64, 224, 32
FEW_PIXELS = 16
"""pictures of at most this side are judged by their pixels"""
RESIDENT_BYTES = 4 << 30
SPLIT_NAMES = {"train", "training", "test", "testing", "val", "valid", "validation", "dev"}

Picture = Path | bytes
"""a file, or the content of one"""


@dataclass(frozen=True)
class Pictures:
    """The pictures that could be read, out of those that were asked for."""

    x: npt.NDArray[np.uint8]
    """bytes, n x 3 x size x size"""
    kept: list[int]
    """their positions among those that were asked for"""
    digests: list[str]
    """one for the content of each, by which exact duplicates are known"""
    skipped: dict[int, str]
    """for each of the others, by position, why it could not be read"""


def find_images(folder: Path) -> list[Path]:
    """Find every picture below a folder, in order; hidden files are ignored, links that lead out are refused."""
    root = folder.resolve()
    found = []
    for parent, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        here = Path(parent)
        for name in (*folders, *files):
            if (here / name).is_symlink():
                check_inside(here / name, root)
        found += [here / name for name in files if not name.startswith(".") and is_image(name)]
    return sorted(found, key=lambda path: path.relative_to(folder).as_posix())


def other_pictures(folder: Path) -> dict[str, int]:
    """Count the files that look like pictures of a kind that is not read, by their ending."""
    return Counter(
        path.suffix.lower() for path in folder.rglob("*") if path.suffix.lower() in OTHERS and path.is_file()
    )


def is_image(name: str) -> bool:
    """Say whether a file's name says that it is a picture."""
    return name.lower().endswith(SUFFIXES)


def check_inside(path: Path, folder: Path) -> None:
    """Refuse a path that leads out of the folder."""
    if not path.resolve().is_relative_to(folder.resolve()):
        raise InputError(f"{path} leads out of {folder}; copy the file into the folder, or leave it away")


def class_folders(folder: Path) -> list[str]:
    """Name the subfolders, each a class; an error says how to turn another layout into that."""
    names = sorted(child.name for child in folder.iterdir() if child.is_dir() and not child.name.startswith("."))
    if not names:
        loose = any(is_image(child.name) for child in folder.iterdir())
        raise InputError(
            f"{folder} holds {'pictures but no subfolders' if loose else 'neither pictures nor tables'}; put the "
            "pictures of each class into a subfolder named after it, or give a CSV file with --image and --label"
        )
    if set(map(str.lower, names)) <= SPLIT_NAMES:
        first = "train" if "train" in names else names[0]
        rest = f" --test {folder / next((name for name in names if name != first), 'test')}" if len(names) > 1 else ""
        raise InputError(f"the subfolders of {folder} are splits, not classes; say: stepe clean {folder / first}{rest}")
    return names


def typical_side(pictures: Sequence[Picture]) -> int:
    """Return the median of the shorter sides of some of the pictures."""
    from PIL import Image

    sides = []
    for picture in pictures[:: max(1, len(pictures) // 100)]:
        try:
            with warnings.catch_warnings(action="ignore"), Image.open(_stream(picture)) as image:
                sides.append(min(image.size))
        except Exception:  # reading will say why
            continue
    return int(np.median(sides)) if sides else SMALL


def image_size_for(pictures: Sequence[Picture], *, gpu: bool = False, by_network: bool = True) -> int:
    """Choose the side that pictures are resized to: small without a GPU, else as large as they and memory allow.

    Tiny ones stay as they are where no network has to look at them.
    """
    side = typical_side(pictures) if gpu or not by_network else CPU_SIZE
    if not by_network and side <= FEW_PIXELS:
        return side
    if not gpu:  # a larger side takes hours
        return CPU_SIZE
    if side <= SMALL:
        return max(CPU_SIZE, side)
    return LARGE if 3 * LARGE**2 * len(pictures) <= RESIDENT_BYTES else SMALL


def read_pictures(
    pictures: Sequence[Picture], names: Sequence[str], size: int, say: Callable[[str], None] = lambda message: None
) -> Pictures:
    """Read every picture that can be read; if too many cannot, that is an error."""

    def read(picture: Picture) -> tuple[npt.NDArray[np.uint8], str] | str:
        try:
            return _read(picture, size)
        except Exception as error:  # decoders raise whatever they stumble over
            if isinstance(error, OSError) and error.strerror:
                return error.strerror
            return "it is no picture" if "cannot identify" in str(error) else str(error) or repr(error)

    x = np.empty((len(pictures), size, size, 3), dtype=np.uint8)
    kept: list[int] = []
    digests: list[str] = []
    skipped: dict[int, str] = {}
    # Sizes are checked by hand, so that a bomb is skipped rather than warned of.
    with warnings.catch_warnings(action="ignore"), ThreadPoolExecutor(os.cpu_count()) as pool:
        for index, found in enumerate(pool.map(read, pictures)):
            if isinstance(found, str):
                skipped[index] = found
                continue
            x[len(kept)], digest = found
            kept.append(index)
            digests.append(digest)
    if skipped:
        some = "; ".join(f"{names[index]} ({why})" for index, why in list(skipped.items())[:3])
        message = f"{len(skipped)} of {len(pictures)} pictures cannot be read: {some}"
        if len(skipped) > max(SKIPPED_ALWAYS, SKIPPED_SHARE * len(pictures)) or not kept:
            raise InputError(f"{message}; repair or remove them")
        say(f"{message}; they are skipped, and listed in unreadable.csv")
    return Pictures(np.ascontiguousarray(x[: len(kept)].transpose(0, 3, 1, 2)), kept, digests, skipped)


def thumbnail(picture: Picture, side: int) -> "Image":
    """Shrink the whole picture until its longer side has at most ``side`` pixels."""
    image = _upright(_content(picture), side)
    image.thumbnail((side, side))
    return image


def _read(picture: Picture, size: int) -> tuple[npt.NDArray[np.uint8], str]:
    from PIL import Image

    content = _content(picture)
    image = _upright(content, size).resize((size, size), Image.Resampling.BICUBIC, reducing_gap=2.0)
    return np.asarray(image), hashlib.blake2b(content, digest_size=16).hexdigest()


def _upright(content: bytes, size: int) -> "Image":
    """Open a picture in RGB, white where it was transparent; of a large JPEG no more detail than ``size`` needs."""
    from PIL import Image, ImageOps

    with Image.open(io.BytesIO(content)) as opened:
        limit = Image.MAX_IMAGE_PIXELS
        if limit is not None and opened.width * opened.height > limit:
            raise ValueError(f"{opened.width} x {opened.height} pixels are more than the {limit} that are safe to open")
        opened.draft("RGB", (2 * size, 2 * size))  # a JPEG can be decoded at a fraction of its size
        image = ImageOps.exif_transpose(opened)
    if image.mode.startswith(("I", "F")):  # more than 8 bits a pixel, which would be cut off at 255
        values = np.asarray(image, dtype=np.float64)
        image = Image.fromarray((values * (255 / max(255, values.max()))).round().clip(0, 255).astype(np.uint8))
    if image.has_transparency_data:
        image = image.convert("RGBA")
        white = Image.new("RGBA", image.size, "white")
        image = Image.alpha_composite(white, image)
    return image.convert("RGB")


def _content(picture: Picture) -> bytes:
    return picture.read_bytes() if isinstance(picture, Path) else picture


def _stream(picture: Picture) -> io.BytesIO | Path:
    return picture if isinstance(picture, Path) else io.BytesIO(picture)
