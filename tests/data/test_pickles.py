import io
import os
import pickle
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

from stepe import InputError
from stepe.data import pickles

PATH = Path("some/file")
LABELS = np.array([3, 0, 255], dtype=np.int64)
PIXELS = np.arange(6, dtype=np.uint8).reshape(2, 3)


class Call:
    """Pickles as a call of anything."""

    def __init__(self, function, *arguments, state=None):
        self.reduced = (function, arguments) if state is None else (function, arguments, state)

    def __reduce__(self):
        return self.reduced


def saved_by_torch(value: object) -> bytes:
    file = io.BytesIO()
    torch.save(value, file)
    return file.getvalue()


def named(module: str, name: str, *rest: bytes) -> bytes:
    """A pickle that names something and goes on with the given instructions."""
    return b"\x80\x02}(U\x01ac" + f"{module}\n{name}\n".encode() + b"".join(rest) + b"u."


@pytest.mark.parametrize("protocol", [2, 3, 4])
def test_plain_data_comes_back(protocol):
    value = {"data": PIXELS, "labels": [1, 2], "names": ["cat"], "clean": LABELS, "empty": [], "size": 3, "no": None}
    found = pickles.loads(pickle.dumps(value, protocol), PATH)
    np.testing.assert_equal(found, value)
    assert found["data"].dtype == np.uint8
    assert found["clean"].dtype == np.int64


def test_what_torch_saves_comes_back():
    found = pickles.loads(saved_by_torch({"clean_label": LABELS, "coarse": [1, 2]}), PATH)
    np.testing.assert_equal(found, {"clean_label": LABELS, "coarse": [1, 2]})


@pytest.mark.parametrize("core", [b"numpy.core", b"numpy._core"])
def test_arrays_of_old_and_new_numpy_come_back(core):
    data = pickle.dumps({"clean_label": LABELS}, 2)
    known = b"numpy._core" if b"numpy._core" in data else b"numpy.core"
    np.testing.assert_equal(pickles.loads(data.replace(known, core), PATH), {"clean_label": LABELS})


def test_strings_of_python_2_are_keys_and_bytes():
    assert pickles.loads(b"\x80\x02}(U\x05namesU\x03\xffatu.", PATH) == {"names": b"\xffat"}


@pytest.mark.parametrize(
    ("function", "arguments", "name"),
    [
        (os.system, ("touch {}",), "system"),
        (eval, ("__import__('pathlib').Path('{}').touch()",), "eval"),
        (exec, ("open('{}', 'w')",), "exec"),
        (open, ("{}", "w"), "open"),
        (getattr, ("", "join"), "getattr"),
        (np.load, ("{}", None, True), "load"),
        (np.save, ("{}", 1), "save"),
        (np.memmap, ("{}", "u1", "w+", 0, 4), "memmap"),
        (np.fromfile, ("{}",), "fromfile"),
        (np.frombuffer, (b"1",), "frombuffer"),
        (torch.load, ("{}",), "load"),
    ],
)
@pytest.mark.parametrize("wrap", [pickle.dumps, saved_by_torch])
def test_a_pickle_that_calls_anything_is_refused_by_name_and_runs_nothing(tmp_path, function, arguments, name, wrap):
    mark = tmp_path / "mark.npy"
    arguments = [a.format(mark) if isinstance(a, str) else a for a in arguments]
    for hostile in (
        {"data": Call(function, *arguments)},
        Call(function, *arguments),
        {"data": [LABELS, Call(function, *arguments)]},
    ):
        with pytest.raises(InputError, match=rf"some/file is not safe .*\.{name}$"):
            pickles.loads(wrap(hostile), PATH)
    assert not mark.exists()


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("os", "system"),
        ("posix", "system"),
        ("builtins", "eval"),
        ("__builtin__", "eval"),
        ("numpy", "load"),
        ("numpy", "ndarray.tofile"),
        ("numpy", "dtype.__class__"),
        ("numpy.core.multiarray", "scalar"),
        ("numpy.testing._private.utils", "runstring"),
        ("_codecs", "lookup"),
        ("copyreg", "_reconstructor"),
    ],
)
def test_naming_alone_is_refused(module, name):
    with pytest.raises(InputError, match=f"some/file is not safe .* asks for {module}.{name}"):
        pickles.loads(named(module, name), PATH)
    short = b"\x80\x04}(U\x01a" + pickle.dumps(module, 4)[11:-2] + pickle.dumps(name, 4)[11:-2] + b"\x93u."
    with pytest.raises(InputError, match=f"some/file is not safe .* asks for {module}.{name}"):
        pickles.loads(short, PATH)


@pytest.mark.parametrize(
    "array",
    [
        np.array([object], dtype=object),
        np.array([1.5]),
        np.array(["text"]),
        np.array([(1, 2)], dtype=[("a", "i8"), ("b", "i8")]),
        np.array([1], dtype=">i8"),
        np.array(["2020-01-01"], dtype="M8[D]"),
        np.asfortranarray(PIXELS),
        np.ma.masked_array([1], [True]),
        np.float64(1),
    ],
    ids=lambda array: type(array).__name__ + " of " + str(array.dtype),
)
def test_arrays_of_anything_but_plain_integers_are_refused(array):
    with pytest.raises(InputError, match="some/file is not safe"):
        pickles.loads(pickle.dumps({"data": array}, 2), PATH)


def test_fields_under_the_name_of_a_plain_integer_are_refused():
    data = pickle.dumps({"a": LABELS}, 2)
    plain = b"X\x01\x00\x00\x00<"
    assert data.count(plain) == 1
    start = data.index(plain)
    for names in (b"(X\x01\x00\x00\x00xt", b"K\x01"):
        fields = data[start:].replace(b"NNN", b"N" + names + b"N", 1)
        with pytest.raises(InputError, match=r"some/file is not safe .*structure"):
            pickles.loads(data[:start] + fields, PATH)


def test_an_array_of_another_type_than_an_array_is_refused():
    for kind in (b"cnumpy\ndtype\n", b"K\x01"):
        with pytest.raises(InputError, match=r"some/file is not safe .*array of the type"):
            pickles.loads(named("numpy.core.multiarray", "_reconstruct", b"(", kind, b"K\x00tR"), PATH)


@pytest.mark.parametrize("codec", ["rot13", "zip", "utf8", "idna"])
def test_other_codecs_are_refused(codec):
    call = b"(X\x01\x00\x00\x00bX" + len(codec).to_bytes(4, "little") + codec.encode() + b"tR"
    with pytest.raises(InputError, match=f"not safe .*codec '{codec}'"):
        pickles.loads(named("_codecs", "encode", call), PATH)


@pytest.mark.parametrize(("module", "name"), pickles.ALLOWED)
@pytest.mark.parametrize("state", [b"}(U\x01xK\x01u", b"(N}(X\x08\x00\x00\x00__call__K\x01ut", b"N"])
def test_no_file_can_change_what_the_next_one_meets(module, name, state):
    with pytest.raises(InputError, match=r"some/file is not safe .*changed"):
        pickles.loads(named(module, name, state, b"b"), PATH)
    np.testing.assert_equal(pickles.loads(pickle.dumps({"a": LABELS}, 2), PATH), {"a": LABELS})


def test_an_array_with_another_number_of_elements_than_its_shape_says_is_refused():
    data = pickle.dumps({"a": PIXELS}, 2)
    assert data.count(b"K\x02K\x03\x86") == 1
    for shape in (b"K\x02K\x04\x86", b"J\xff\xff\xff\xffK\x03\x86", b"K\x02K\x00\x86"):
        with pytest.raises(InputError, match=r"some/file is cut off, damaged .*an array of .*shape"):
            pickles.loads(data.replace(b"K\x02K\x03\x86", shape), PATH)


def test_an_array_that_is_never_filled_is_refused():
    data = named("numpy.core.multiarray", "_reconstruct", b"(cnumpy\nndarray\nK\x00tR")
    with pytest.raises(InputError, match="some/file is cut off, damaged"):
        pickles.loads(data, PATH)


@pytest.mark.parametrize("write", [pickle.dumps, saved_by_torch])
def test_a_file_cut_off_anywhere_is_refused(write):
    data = write({"data": PIXELS, "labels": [1, 2, 3]})
    for length in range(len(data)):
        with pytest.raises(InputError, match="some/file is cut off, damaged"):
            pickles.loads(data[:length], PATH)


def test_noise_is_refused_whatever_it_makes_the_unpickler_do():
    data = bytearray(pickle.dumps({"data": PIXELS, "labels": [1, 2, 3]}, 2))
    draw = np.random.default_rng(0)
    refused = 0
    for _ in range(2000):
        damaged = bytearray(data)
        damaged[draw.integers(len(data))] = draw.integers(256)
        try:
            pickles.loads(bytes(damaged), PATH)
        except InputError:
            refused += 1
    assert refused > 500


def test_a_damaged_number_does_not_fill_the_memory():
    tracemalloc.start()
    try:
        assert pickles.loads(b"\x80\x02}r\xff\xff\xff\x00.", PATH) == {}
        assert tracemalloc.get_traced_memory()[1] < 10e6
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("value", [[1, 2], 3, "text", None])
def test_anything_but_a_dict_is_refused(value):
    with pytest.raises(InputError, match=f"some/file .*holds a {type(value).__name__}"):
        pickles.loads(pickle.dumps(value), PATH)


def test_tensors_are_not_plain_data():
    with pytest.raises(InputError, match="some/file"):
        pickles.loads(saved_by_torch({"data": torch.zeros(3)}), PATH)


@pytest.mark.parametrize(
    ("entries", "compression", "match"),
    [
        (["a/data.pkl", "b/data.pkl"], zipfile.ZIP_STORED, "2 entries data.pkl"),
        (["a/other"], zipfile.ZIP_STORED, "0 entries data.pkl"),
        (["a/data.pkl"], zipfile.ZIP_DEFLATED, "compressed"),
    ],
)
def test_zip_files_that_torch_would_not_write_are_refused(entries, compression, match):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", compression) as archive:
        for entry in entries:
            archive.writestr(entry, pickle.dumps({}))
    with pytest.raises(InputError, match=f"some/file .*{match}"):
        pickles.loads(file.getvalue(), PATH)
