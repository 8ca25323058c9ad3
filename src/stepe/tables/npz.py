"""npz: named arrays, those of one length side by side. A copy keeps the bytes of every array that is not edited."""

import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from stepe.errors import InputError
from stepe.tables.batches import ROWS
from stepe.tables.edit import Edits, added_columns, edit_values

if TYPE_CHECKING:
    import pyarrow as pa

SUFFIXES: tuple[str, ...] = (".npz",)


@contextmanager
def opened(path: Path) -> "Iterator[np.lib.npyio.NpzFile]":
    """Open the arrays of a file by their names; what cannot be read is refused."""
    try:
        loaded = np.load(path, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            raise InputError(
                f"{path} holds one array without a name; write it with numpy.savez, as features and labels"
            )
        with loaded:
            yield loaded
    except (OSError, EOFError, zipfile.BadZipFile, zlib.error, RuntimeError, MemoryError) as error:
        raise InputError(f"{path} cannot be read as an npz file ({error}); write it with numpy.savez") from error
    except ValueError as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path} cannot be read: {error}; labels must be integers or fixed-width strings") from error


def read(path: Path, encoding: str) -> "Iterator[pa.RecordBatch]":
    """Read the arrays with as many rows as the first one as columns; rows of several numbers are lists."""
    import pyarrow as pa

    with opened(path) as arrays:
        found = {name: arrays[name] for name in arrays.files}
    n = next((len(array) for array in found.values() if array.ndim), 0)
    columns = {name: array for name, array in found.items() if array.shape[:1] == (n,)}
    for start in range(0, n, ROWS):
        parts = [_arrow(array[start : start + ROWS]) for array in columns.values()]
        yield pa.RecordBatch.from_arrays(parts, names=list(columns))


def _arrow(array: npt.NDArray[Any]) -> Any:
    import pyarrow as pa

    if array.ndim == 1:
        return pa.array(array)
    return pa.FixedSizeListArray.from_arrays(_arrow(array.reshape(-1, *array.shape[2:])), array.shape[1])


def rewrite(source: Path, target: Path, edits: Edits, encoding: str) -> None:
    """Copy all arrays; of those with as many rows as the edited one, dropped rows are left out."""
    with opened(source) as arrays:
        if edits.column not in arrays.files:
            raise edits.changed(f"it has no array {edits.column!r} any more")
        old = arrays[edits.column]
        found, labels = edit_values(old.tolist(), edits, source)
        written: dict[str, npt.NDArray[Any]] = {}
        if labels != old.tolist():
            # A new label may be longer than all the old ones.
            wide = np.array(labels)
            written[edits.column] = wide if old.dtype.kind in "SU" else wide.astype(old.dtype)
        types = {bool: (bool, False), str: (str, ""), float: (float, np.nan)}
        for name, kind, cells in added_columns(found, edits, arrays.files):
            dtype, missing = types[kind]
            written[name] = np.array([missing if cell is None else cell for cell in cells], dtype=dtype)
        kept = np.array([not edit.dropped for edit in found])
        if not kept.all():
            beside = {name: written[name] if name in written else arrays[name] for name in [*arrays.files, *written]}
            written = {name: array[kept] for name, array in beside.items() if array.shape[:1] == (len(old),)}
    _replace(source, target, written)


def _replace(source: Path, target: Path, written: dict[str, npt.NDArray[Any]]) -> None:
    """Copy a file with some of its arrays replaced or added."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w") as new:
        members = {member.filename.removesuffix(".npy"): member for member in old.infolist()}
        packed = any(member.compress_type != zipfile.ZIP_STORED for member in members.values())
        for name in [*members, *(name for name in written if name not in members)]:
            if name not in written:
                new.writestr(members[name], old.read(members[name]))
                continue
            member = zipfile.ZipInfo(f"{name}.npy")
            member.compress_type = zipfile.ZIP_DEFLATED if packed else zipfile.ZIP_STORED
            with new.open(member, "w", force_zip64=True) as file:
                np.lib.format.write_array(file, written[name], allow_pickle=False)
