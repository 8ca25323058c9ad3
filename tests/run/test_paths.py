"""Paths that a run folder names: followed where they are one's own, and otherwise named first."""

from pathlib import Path

import pytest

from stepe import RunError
from stepe.run.paths import check_paths, local_paths, remember


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch) -> Path:
    """A run folder in the working folder, with files below and beside it."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    run = tmp_path / "here" / "run"
    run.mkdir(parents=True)
    (run / "config.json").write_text("{}")
    for place in ("here", "."):
        (tmp_path / place / "table.csv").touch()
    monkeypatch.chdir(tmp_path / "here")
    return Path("run")


def test_what_lies_below_the_working_folder_is_followed(folder):
    check_paths(folder, {"input": [Path("table.csv"), Path("run/x/../new"), Path.cwd() / "table.csv"]}, trust=False)


@pytest.mark.parametrize(
    "path", ["../table.csv", "run/../../table.csv", "/etc/passwd", "link", "/nowhere/at/all", "a\0b"]
)
def test_what_lies_elsewhere_is_named_with_the_way_to_agree(folder, path):
    Path("link").symlink_to("../table.csv")
    with pytest.raises(RunError) as refused:
        check_paths(folder, {"input": [Path(path)], "track": []}, trust=False)
    assert f"input {path!r}" in str(refused.value)
    assert "add --trust-paths (in Python, trust_paths=True)" in str(refused.value)


def test_whoever_agrees_is_told_once_what_it_is_about(folder):
    told: list[str] = []
    named = {"input": [Path("../table.csv"), Path("table.csv")], "track": [Path("/logs")]}
    check_paths(folder, named, trust=lambda said: not told.append(said))
    assert told == [
        f"run was not made here, and names what lies outside of {Path.cwd()}: input '../table.csv', track '/logs'"
    ]
    with pytest.raises(RunError, match="--trust-paths"):
        check_paths(folder, named, trust=lambda said: False)
    check_paths(folder, named, trust=True)


def test_one_s_own_run_is_followed_anywhere_until_its_configuration_is_another_one(folder, tmp_path, monkeypatch):
    remember(folder)
    moved = folder.rename(tmp_path / "moved")
    monkeypatch.chdir("/")
    check_paths(moved, {"input": [Path("/etc/passwd")]}, trust=False)
    (moved / "config.json").write_text("{ }")
    with pytest.raises(RunError, match="was not made here"):
        check_paths(moved, {"input": [Path("/etc/passwd")]}, trust=False)


@pytest.mark.parametrize("home", ["here", "here/me"])
def test_a_home_folder_is_no_working_folder(folder, tmp_path, monkeypatch, home):
    monkeypatch.setenv("HOME", str(tmp_path / home))
    with pytest.raises(RunError, match=r"table\.csv"):
        check_paths(folder, {"input": [Path("table.csv")]}, trust=False)


def test_where_no_note_can_be_kept_people_are_asked(folder, tmp_path, monkeypatch):
    (tmp_path / "state").touch()
    remember(folder)
    with pytest.raises(RunError, match="was not made here"):
        check_paths(folder, {"input": [Path("../table.csv")]}, trust=False)


def test_a_recorded_name_may_hide_a_path():
    for name in ("table.csv", "hf:../table.csv", "hf:run:train", "none.npy,run", "timm:local-dir:run"):
        assert local_paths(name), name
    for name in ("digits", "cifar10n:worst", "hf:imdb", "timm:resnet18", "gone.csv", "", "a\0b", "x" * 5000):
        assert not local_paths(name), name
