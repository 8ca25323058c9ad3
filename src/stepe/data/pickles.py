"""Pickles of dicts, lists and plain integer arrays, read without running anything that a pickle asks for.

A pickle is a program, and its GLOBAL instruction names any function of any module. Here the few names that the CIFAR
and CIFAR-N files use lead to stand-ins of this module, so that not even numpy's own unpickling, which trusts what it
is given, sees the file's bytes. Every other name is refused.
"""

import io
import math
import pickle
import zipfile
from pathlib import Path

import numpy as np
import numpy.typing as npt

from stepe.errors import InputError

DTYPES = ("u1", "i8")
"""the types of pixels and labels"""


def loads(data: bytes, path: Path) -> dict[str, object]:
    """Read the dict in a pickle, or in the zip file that ``torch.save`` writes around one; arrays are read-only.

    ``path`` is where the data came from, for error messages.
    """
    try:
        found = _Unpickler(io.BytesIO(_unzipped(data))).load()
        if not isinstance(found, dict):
            raise pickle.UnpicklingError(f"holds a {type(found).__name__} instead of a dict")
        return {_text(key): value.array if isinstance(value, _Array) else value for key, value in found.items()}
    except _Refused as error:
        raise InputError(f"{path} is not safe to load and was refused: it asks for {error}") from error
    except Exception as error:  # damaged pickles fail in every way there is
        reason = f"{type(error).__name__}: {error}".rstrip(": ")
        raise InputError(f"{path} is cut off, damaged or not the file its name says ({reason})") from error


class _Refused(pickle.UnpicklingError):
    """The file wants something that plain data does not need."""


class _StandIn:
    """Something that a pickle may name. It can't be given state or attributes: those would outlive the file."""

    __slots__ = ()

    def __setstate__(self, state: object) -> None:
        raise _Refused(f"a changed {type(self).__name__.strip('_')}")


class _DtypeClass(_StandIn):
    """Stands in for ``numpy.dtype``."""

    __slots__ = ()

    def __call__(self, code: object, *_: object) -> "_Dtype":
        if (name := _text(code)) not in DTYPES:
            raise _Refused(f"an array of {name!r}, where only {' and '.join(DTYPES)} are plain numbers")
        return _Dtype(name)


class _ArrayClass(_StandIn):
    """Stands in for ``numpy.ndarray``, which is only ever named, not called."""

    __slots__ = ()


class _Reconstruct(_StandIn):
    """Stands in for numpy's ``_reconstruct``: an array that its state is still to fill."""

    __slots__ = ()

    def __call__(self, kind: object, *_: object) -> "_Array":
        if not isinstance(kind, _ArrayClass):
            raise _Refused(f"an array of the type {type(kind).__name__}")
        return _Array()


class _Encode(_StandIn):
    """Stands in for ``_codecs.encode``: how Python 3 writes bytes for Python 2. Other codecs run other code."""

    __slots__ = ()

    def __call__(self, text: object, encoding: object) -> bytes:
        if (codec := _text(encoding)) != "latin1":
            raise _Refused(f"the codec {codec!r}")
        return _text(text).encode("latin1")


class _Dtype:
    __slots__ = ("code",)

    def __init__(self, code: str):
        self.code = code

    def __setstate__(self, state: tuple[object, ...]) -> None:
        # (version, byte order, subtype, names, fields, itemsize, alignment, flags): a plain number has none of these
        _, order, *structure = state
        if _text(order) not in ("<", "|") or structure != [None, None, None, -1, -1, 0]:
            raise _Refused("an array of elements with a structure")


class _Array:
    __slots__ = ("array",)

    array: npt.NDArray[np.generic]

    def __setstate__(self, state: tuple[object, ...]) -> None:
        _, shape, dtype, fortran, data = state
        if not isinstance(dtype, _Dtype) or fortran or not isinstance(data, bytes):
            raise _Refused(f"an array of {type(data).__name__} in an unusual layout")
        if not isinstance(shape, tuple) or not all(isinstance(size, int) and size >= 0 for size in shape):
            raise ValueError("an array of an impossible shape")
        flat = np.frombuffer(data, np.dtype(f"<{dtype.code}"))
        if math.prod(shape) != len(flat):
            raise ValueError(f"an array of shape {shape} with {len(flat)} elements")
        self.array = flat.reshape(shape)


_RECONSTRUCT = _Reconstruct()
ALLOWED: dict[tuple[str, str], _StandIn] = {
    ("numpy.core.multiarray", "_reconstruct"): _RECONSTRUCT,
    ("numpy._core.multiarray", "_reconstruct"): _RECONSTRUCT,  # its name since numpy 2
    ("numpy", "ndarray"): _ArrayClass(),
    ("numpy", "dtype"): _DtypeClass(),
    ("_codecs", "encode"): _Encode(),
}


# The one of the two unpicklers that is written in Python. It is as fast here, and a damaged memo number costs it an
# entry of a dict; the other one fills an array up to that number, with gigabytes.
class _Unpickler(pickle._Unpickler):
    def __init__(self, file: io.BytesIO):
        # Strings of Python 2 stay bytes: the pixels are one.
        super().__init__(file, fix_imports=False, encoding="bytes")

    def find_class(self, module: str, name: str) -> _StandIn:
        try:
            return ALLOWED[module, name]
        except KeyError:
            raise _Refused(f"{module}.{name}") from None


def _unzipped(data: bytes) -> bytes:
    """Find the pickle in the zip file that ``torch.save`` writes, or return the data itself."""
    if not data.startswith(b"PK"):
        return data
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        entries = [entry for entry in archive.infolist() if entry.filename.endswith("/data.pkl")]
        if len(entries) != 1:
            raise ValueError(f"a zip file with {len(entries)} entries data.pkl")
        # torch stores without compressing; a small file that unpacks into a huge one is none of its.
        if entries[0].compress_type != zipfile.ZIP_STORED:
            raise _Refused("unpacking a compressed data.pkl, which torch does not write")
        return archive.read(entries[0])


def _text(value: object) -> str:
    if isinstance(value, bytes):
        return value.decode("ascii")
    if isinstance(value, str):
        return value
    raise ValueError(f"{type(value).__name__} in place of a string")
