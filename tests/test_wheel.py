"""The wheel, installed outside the source tree, is all that is needed."""

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import stepe

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """Built from a copy, so that the source tree stays as it is."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        if (ROOT / name).exists():
            shutil.copy(ROOT / name, source)
    shutil.copytree(ROOT / "src", source / "src", ignore=shutil.ignore_patterns("__pycache__"))
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder / "dist")]
    done = subprocess.run(build, cwd=source, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    (built,) = (folder / "dist").iterdir()
    return built


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory) -> Path:
    """The wheel alone in a folder; what it depends on comes from the environment of the tests."""
    target = tmp_path_factory.mktemp("installed")
    pip = [sys.executable, "-m", "pip", "install", "--no-deps", "--no-index", "--no-compile", "--quiet"]
    done = subprocess.run([*pip, "--target", str(target), str(wheel)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return target


@pytest.fixture
def run_installed(installed, tmp_path):
    """Python in a folder of its own, with the installed wheel before anything else."""

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        env = {key: value for key, value in os.environ.items() if key != "STEPE_COMMIT"}
        env["PYTHONPATH"] = str(installed)
        done = subprocess.run(
            [sys.executable, *words], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, done.stderr
        return done

    return run


def test_the_wheel_holds_all_of_the_package_and_nothing_else(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    package = {
        f"stepe/{path.relative_to(ROOT / 'src' / 'stepe').as_posix()}"
        for path in (ROOT / "src" / "stepe").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert {name for name in names if not name.startswith("stepe-")} == package
    assert "stepe/py.typed" in names
    assert any(name.startswith("stepe/report/templates/") for name in names)
    assert any(name.endswith("licenses/LICENSE") for name in names)


def test_the_package_that_runs_is_the_installed_one(run_installed, installed):
    told = run_installed("-c", "import stepe; print(stepe.__file__)").stdout.strip()
    assert Path(told).is_relative_to(installed)


def test_the_installed_command_tells_its_version(run_installed, installed):
    assert run_installed("-m", "stepe", "--version").stdout == f"stepe {stepe.__version__}\n"
    assert (installed / "bin" / "stepe").exists()


def test_the_installed_command_cleans_the_digits_and_writes_a_report(run_installed, tmp_path):
    done = run_installed("-m", "stepe", "clean", "digits", "--epochs", "2", "--no-compare", "--json")
    told = json.loads(done.stdout)
    assert told["run"] == "runs/digits-1"
    assert told["summary"]["epochs"] == 2
    assert "<html" in (tmp_path / "runs" / "digits-1" / "report.html").read_text()
    config = json.loads((tmp_path / "runs" / "digits-1" / "config.json").read_text())
    assert config["environment"]["commit"] is None
