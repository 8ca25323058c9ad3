"""Files are whole or not there, and what the operating system refuses becomes an error that names the path."""

import errno
import os
import stat
from pathlib import Path

import numpy as np
import pytest

from stepe import RunError
from stepe.files import TEMPORARY, inside, plain, replacing, replacing_folder, reporting, sweep, write_text


def refuse(*args, **kwargs):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_file_appears_whole(tmp_path):
    path = tmp_path / "a.txt"
    with replacing(path) as temporary:
        temporary.write_text("new")
        assert not path.exists()
    assert path.read_text() == "new"
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.txt"]


def test_the_old_file_stays_until_the_new_one_is_whole(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("old")

    def be_interrupted():
        with replacing(path) as temporary:
            temporary.write_text("half")
            assert path.read_text() == "old"
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        be_interrupted()
    assert path.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.txt"]


def test_the_temporary_file_keeps_the_ending_that_writers_go_by(tmp_path):
    with replacing(tmp_path / "a.npz") as temporary:
        assert temporary.suffix == ".npz"
        np.savez(temporary, x=np.arange(3))
    assert np.load(tmp_path / "a.npz")["x"].tolist() == [0, 1, 2]


def test_a_folder_appears_whole_and_replaces_an_older_one(tmp_path):
    path = tmp_path / "folder"
    for content in ("one", "two"):
        with replacing_folder(path) as new:
            (new / content).write_text(content)
    assert [entry.name for entry in path.iterdir()] == ["two"]
    assert [entry.name for entry in tmp_path.iterdir()] == ["folder"]


def test_a_folder_that_is_not_finished_is_not_there(tmp_path):
    def fail():
        with replacing_folder(tmp_path / "folder") as new:
            (new / "half").write_text("half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert list(tmp_path.iterdir()) == []


def test_files_and_folders_get_the_usual_permissions(tmp_path):
    before = os.umask(0o027)
    try:
        write_text(tmp_path / "file", "text")
        with replacing_folder(tmp_path / "folder"):
            pass
        assert os.umask(0o027) == 0o027
    finally:
        os.umask(before)
    assert mode(tmp_path / "file") == 0o640
    assert mode(tmp_path / "folder") == 0o750


def test_text_is_utf8_whatever_the_locale(tmp_path):
    write_text(tmp_path / "a", "Katze, кот, 猫")
    assert (tmp_path / "a").read_bytes() == "Katze, кот, 猫".encode()


@pytest.mark.parametrize("call", ["fsync", "replace"])
@pytest.mark.parametrize("writer", [replacing, replacing_folder])
def test_a_full_disk_is_an_error_that_names_the_path_and_leaves_nothing_behind(tmp_path, monkeypatch, writer, call):
    monkeypatch.setattr(os, call, refuse)
    complaint = r"cannot write .*/target: No space left on device; free some space"
    with pytest.raises(RunError, match=complaint), writer(tmp_path / "target"):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_path_below_a_file_is_an_error_that_names_the_path(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match=r"file/a.txt: Not a directory"):
        write_text(tmp_path / "file" / "a.txt", "text")


def test_only_refusals_of_the_operating_system_are_turned_into_run_errors():
    with pytest.raises(ValueError, match="mine"), reporting(Path("a")):
        raise ValueError("mine")


def test_sweeping_removes_what_was_left_half_written_and_nothing_else(tmp_path):
    (tmp_path / f"{TEMPORARY}file").write_text("")
    (tmp_path / f"{TEMPORARY}folder").mkdir()
    (tmp_path / f"{TEMPORARY}folder" / "file").write_text("")
    (tmp_path / "mine").write_text("")
    (tmp_path / "folder").mkdir()
    sweep(tmp_path)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["folder", "mine"]


def test_numpy_scalars_become_plain_numbers_at_any_depth():
    found = plain({"a": [np.float64(0.5), (np.int64(2), "x")], "b": np.bool_(True), "c": None})
    assert found == {"a": [0.5, (2, "x")], "b": True, "c": None}
    assert [type(value) for value in (found["a"][0], found["a"][1][0], found["b"])] == [float, int, bool]


# ---------------------------------------------------------------------------------------------------------------
# Links


def test_what_lies_in_a_folder_has_its_own_path_whether_it_is_there_or_not(tmp_path):
    assert inside(tmp_path, "a", "b.txt") == tmp_path / "a" / "b.txt"


def test_a_link_within_a_folder_and_a_link_to_the_folder_are_followed(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "a.txt").write_text("mine")
    (tmp_path / "run" / "link.txt").symlink_to("a.txt")
    (tmp_path / "latest").symlink_to("run")
    assert inside(tmp_path / "run", "link.txt").read_text() == "mine"
    assert inside(tmp_path / "latest", "a.txt").read_text() == "mine"


@pytest.mark.parametrize("names", [("link",), ("link", "file"), ("..", "file"), ("/etc/passwd",)])
def test_what_leads_out_of_a_folder_is_refused_and_named(tmp_path, names):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "link").symlink_to(tmp_path)
    path = (tmp_path / "run").joinpath(*names)
    with pytest.raises(RunError) as error:
        inside(tmp_path / "run", *names)
    assert str(error.value).startswith(f"{path} leads out of {tmp_path / 'run'}, to {path.resolve()}, and no link is")


def test_a_link_to_itself_is_refused(tmp_path):
    (tmp_path / "link").symlink_to("link")
    with pytest.raises(RunError, match="link cannot be reached"):
        inside(tmp_path, "link")
