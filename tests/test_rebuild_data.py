"""tools/rebuild_data.py: what it takes of a package and of a table; its digests are those of the data in use."""

import importlib.util
import io
import os
import sys
import tarfile
from pathlib import Path
from types import ModuleType

import numpy as np
import pandas as pd
import pytest

DATA = Path(os.environ.get("STEPE_DATA") or "nowhere")


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    path = Path(__file__).parents[1] / "tools" / "rebuild_data.py"
    spec = importlib.util.spec_from_file_location("rebuild_data", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["rebuild_data"] = module
    spec.loader.exec_module(module)
    return module


def debian_package(path: Path, name: str, content: bytes) -> Path:
    """An ar archive of a version, an odd number of other bytes and a tar archive, as Debian packs them."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:xz") as archive:
        entry = tarfile.TarInfo(name)
        entry.size = len(content)
        archive.addfile(entry, io.BytesIO(content))
    whole = b"!<arch>\n"
    for member, inside in (("debian-binary", b"2.0\n"), ("control.tar", b"odd"), ("data.tar.xz", packed.getvalue())):
        whole += f"{member:<16}{0:<12}{0:<6}{0:<6}{100644:<8}{len(inside):<10}`\n".encode() + inside
        whole += b"\n" * (len(inside) % 2)
    path.write_bytes(whole)
    return path


def test_a_file_is_taken_out_of_a_debian_package(tool, tmp_path):
    package = debian_package(tmp_path / "r.deb", "./usr/lib/R/site-library/mlbench/data/Glass.rda", b"rows")
    assert tool.member_of(package, "/data/Glass.rda") == b"rows"
    with pytest.raises(tool.RebuildError, match=r"r\.deb holds no /data/Zoo\.rda; delete it"):
        tool.member_of(package, "/data/Zoo.rda")


def test_a_file_that_is_not_the_published_one_is_refused(tool, tmp_path):
    (tmp_path / "r.deb").write_bytes(b"other")
    with pytest.raises(tool.RebuildError, match=r"r\.deb has the SHA-256 .* not 00: it is not the published file"):
        tool.fetched("http://nowhere.invalid/r.deb", tmp_path, "00")
    with pytest.raises(tool.RebuildError, match="something else"):
        tool.check("glass", "1", "2")


def test_a_file_put_by_hand_needs_no_network(tool, tmp_path):
    (tmp_path / "r.deb").write_bytes(b"by hand")
    assert tool.fetched("http://nowhere.invalid/r.deb", tmp_path).read_bytes() == b"by hand"


def test_of_a_long_table_so_many_rows_are_drawn_and_rare_classes_left_out(tool):
    frame = pd.DataFrame({"n": np.arange(2100.0), "Id": 1, "Class": ["a"] * 1000 + ["b"] * 1095 + ["rare"] * 5})
    table = tool.Table("mlbench", "Made", "Class", "", unused="Id")
    taken = tool.rows_taken(frame, table)
    drawn = frame.sample(2000, random_state=0)
    assert taken["n"].tolist() == drawn.loc[drawn["Class"] != "rare", "n"].astype(int).tolist()
    assert taken.columns.tolist() == ["n", "__label"]


def test_categories_called_by_numbers_become_numbers_unless_they_are_words(tool):
    frame = pd.DataFrame(
        {
            "whole": pd.Categorical(["1", "0"] * 9),
            "gaps": pd.Categorical(["1", None] * 9),
            "words": pd.Categorical(["1", "low"] * 9),
            "Class": ["1", "0"] * 9,
        }
    )
    taken = tool.rows_taken(frame, tool.Table("mlbench", "Made", "Class", ""))
    assert [taken[name].dtype.kind for name in ("whole", "gaps")] == ["i", "f"]
    assert taken["words"].tolist()[:2] == ["1", "low"]
    assert taken["__label"].tolist()[:2] == ["1", "0"]
    kept = tool.rows_taken(frame, tool.Table("mlbench", "Made", "Class", "", numbers=False))
    assert kept["whole"].tolist()[:2] == ["1", "0"]


@pytest.mark.skipif(not (DATA / "tables").exists(), reason="$STEPE_DATA does not lead to tables")
def test_the_digests_are_those_of_the_tables_in_use(tool):
    found = {name: tool.frame_digest(pd.read_parquet(DATA / "tables" / f"{name}.parquet")) for name in tool.TABLES}
    assert found == {name: table.digest for name, table in tool.TABLES.items()}


@pytest.mark.skipif(not (DATA / "ready-probabilities.npz").exists(), reason="$STEPE_DATA does not lead to them")
def test_the_digests_are_those_of_the_arrays_in_use(tool):
    ready = dict(np.load(DATA / "ready-probabilities.npz", allow_pickle=False))
    labels = {name: values for name, values in np.load(DATA / "cifar10n-features.npz").items() if name != "features"}
    found = {start: tool.array_digest(ready if start else labels, start) for start in tool.ARRAYS}
    assert found == tool.ARRAYS
