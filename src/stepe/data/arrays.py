"""Arrays of features and labels: an npz file that holds both, or a pair of npy files."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from stepe.errors import InputError
from stepe.options.data import array_files
from stepe.tables import npz


def is_array_file(data: str) -> bool:
    """Say whether a path, or a pair with a comma between, names files of arrays."""
    return data.lower().endswith((".npz", ".npy"))


def name_of(data: str) -> str:
    """Say what to call the data of some array files."""
    return Path(array_files(data)[0]).stem


def missing(data: str) -> str | None:
    """Return the first of the files that is not there."""
    return next((part for part in array_files(data) if not Path(part).exists()), None)


def read_arrays(data: str, *, labelled: bool = True) -> tuple[npt.NDArray[Any], npt.NDArray[Any] | None]:
    """Read features and, where they are wanted, labels."""
    parts = array_files(data)
    if parts[0].lower().endswith(".npz"):
        return _read_npz(Path(data), labelled=labelled)
    if labelled and len(parts) < 2:
        raise InputError(f"{data} holds one array; give the labels too: {data},labels.npy")
    features, *labels = (_read_npy(Path(part)) for part in parts)
    return features, labels[0] if labelled else None


def _read_npy(path: Path) -> npt.NDArray[Any]:
    try:
        found = np.load(path, allow_pickle=False)
    except (OSError, EOFError, ValueError, MemoryError) as error:
        raise InputError(f"{path} cannot be read as an npy file ({error}); write it with numpy.save") from error
    if not isinstance(found, np.ndarray):
        raise InputError(f"{path} is an npz file; name it so")
    return found


def _read_npz(path: Path, *, labelled: bool) -> tuple[npt.NDArray[Any], npt.NDArray[Any] | None]:
    wanted = {"features", "labels"} if labelled else {"features"}
    with npz.opened(path) as arrays:
        if absent := wanted - set(arrays.files):
            found = ", ".join(arrays.files) or "nothing"
            raise InputError(f"{path} has no array {' or '.join(sorted(absent))}; it holds {found}")
        return arrays["features"], arrays["labels"] if labelled else None


def check_features(features: npt.ArrayLike, name: str) -> npt.NDArray[np.float64]:
    """Check features, and return them as a matrix of finite numbers."""
    try:
        x = np.asarray(features, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"the features of {name} are not numbers: {error}") from error
    if x.ndim != 2 or x.size == 0:
        raise InputError(
            f"the features of {name} have shape {x.shape}; they must be n x d, with at least one row and one column"
        )
    if not np.isfinite(x).all():
        row = int(np.flatnonzero(~np.isfinite(x).all(1))[0])
        raise InputError(f"the features of {name} hold NaN or infinity (first in row {row}); fill or remove them")
    return x


def check_labels(labels: npt.ArrayLike, n: int, name: str) -> list[str]:
    """Check labels, and return them as the names of classes, one a row."""
    y = np.asarray(labels)
    if y.shape != (n,):
        raise InputError(f"the labels of {name} have shape {y.shape} for {n} rows of features; give one a row")
    if y.dtype.kind not in "biuSU":
        raise InputError(f"the labels of {name} are {y.dtype}; classes must be integers or strings")
    if y.dtype.kind == "S":
        y = np.char.decode(y, "utf-8", "backslashreplace")
    return [str(label) for label in y.tolist()]
