"""What a number was measured with."""

import json
import os
import platform
import shutil
import subprocess
import sys

import numpy as np
import pytest
import torch

import stepe
from stepe.run import environment
from stepe.run.environment import command_line, commit
from stepe.training.environment import describe_environment, device_name


@pytest.fixture(autouse=True)
def _no_given_commit(monkeypatch):
    monkeypatch.delenv("STEPE_COMMIT", raising=False)


def test_versions_device_threads_and_seed_are_recorded():
    found = describe_environment(seed=7, device="cpu")
    assert found["stepe"] == stepe.__version__
    assert found["torch"].split("+")[0] == torch.__version__.split("+")[0]
    assert found["numpy"] == np.__version__
    assert found["python"] == platform.python_version()
    assert found["threads"] == torch.get_num_threads()
    assert found["cpus"] == os.cpu_count()
    assert found["seed"] == 7
    assert found["device"] == "cpu"
    assert {"scikit_learn", "pandas", "safetensors", "platform", "device_name", "time"} <= found.keys()
    assert json.loads(json.dumps(found)) == found


def test_threads_are_those_of_the_moment():
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(before + 1)
        assert describe_environment()["threads"] == before + 1
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize(
    ("argv", "command"),
    [
        (["/usr/local/bin/stepe", "clean", "digits"], "stepe clean digits"),
        (["/site-packages/stepe/__main__.py", "clean", "my data.npz"], "stepe clean 'my data.npz'"),
        (["/home/me/train.py", "--fast"], "train.py --fast"),
        (["stepe", "clean", "/home/me/data.csv", "--out", "runs/1"], "stepe clean data.csv --out runs/1"),
        ([""], "python"),
        ([], "python"),
    ],
)
def test_the_command_line_is_recorded_without_the_folders_of_one_machine(monkeypatch, argv, command):
    monkeypatch.setattr(sys, "argv", argv)
    assert command_line() == command
    assert describe_environment()["command"] == command


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_the_commit_of_the_source_tree_is_recorded(tmp_path, monkeypatch):
    def git(*words):
        identity = ["-c", "user.name=me", "-c", "user.email=me@example.org"]
        command = ["git", "-C", str(tmp_path), *identity, *words]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    package = tmp_path / "src" / "stepe"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "digits.json").write_text("{}")
    monkeypatch.setattr(stepe, "__file__", str(package / "__init__.py"))
    assert commit() is None
    git("init", "-q")
    git("add", ".")
    git("commit", "-q", "-m", "first")
    git("tag", "v9")
    head = git("rev-parse", "HEAD")
    assert commit() == head[:12]
    (tmp_path / "results" / "digits.json").write_text("[]")
    assert commit() == head[:12]
    (package / "__init__.py").write_text("changed")
    assert commit() == f"{head[:12]}-dirty"


def test_without_a_repository_the_commit_may_be_given(monkeypatch):
    monkeypatch.setenv("STEPE_COMMIT", "abc123")
    assert commit() == "abc123"


def test_an_installed_package_has_no_commit(tmp_path, monkeypatch):
    monkeypatch.setattr(stepe, "__file__", str(tmp_path / "site-packages" / "stepe" / "__init__.py"))
    assert commit() is None


def test_without_git_the_commit_is_unknown_and_nothing_fails(tmp_path, monkeypatch):
    (tmp_path / ".git").mkdir()
    monkeypatch.setattr(stepe, "__file__", str(tmp_path / "src" / "stepe" / "__init__.py"))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert commit() is None


def test_a_missing_package_is_recorded_as_missing(monkeypatch):
    monkeypatch.setattr(environment, "PACKAGES", ("torch", "no-such-package"))
    found = describe_environment()
    assert found["no_such_package"] is None
    assert found["torch"] is not None


def test_a_cpu_has_a_name():
    assert device_name("cpu") in (platform.processor(), platform.machine())
