"""tools/setup.sh and the Makefile, on machines made up of fake Pythons: no network, and nothing is installed."""

from __future__ import annotations

import ast
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
UTILITIES = ("cat", "cp", "date", "dirname", "grep", "mkdir", "mv", "rm", "sed", "sh", "sleep", "tail", "uname")

# Stands in for a Python: runs the code it is given under a made-up version, and fakes `-m venv` and pip.
FAKE_PYTHON = r"""
import os, sys   # each test starts it many times: nothing slow to import

def read(path):
    with open(path) as file:
        return eval(file.read())

def write(path, text):
    with open(path, "a") as file:
        file.write(text)

me = read(sys.argv[1])
args = sys.argv[2:]

def log(what):
    watched = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "PIP_TARGET", "PIP_USER")
    entry = {"python": me["name"], "what": what, "env": {k: os.environ[k] for k in watched if k in os.environ}}
    if what[0] == "pip":
        entry["constraints"] = open(what[what.index("-c") + 1]).read()
    write(me["machine"] + "/log", repr(entry) + "\n")

class Pip:
    def run_module(self, name, **_):
        log([name, *sys.argv[1:]])
        mood = read(me["machine"] + "/pip")
        print("pip at work", flush=True)
        if "sleep" in mood:
            import time
            write(os.environ["TMPDIR"] + "/half a download", "")
            time.sleep(mood["sleep"])
        if mood.get("fails"):
            print("ERROR: no network\nERROR: no matching distribution", file=sys.stderr)
            sys.exit(1)

sys.version_info = tuple(me["version"])
sys.executable = me["path"]
sys._base_executable = me.get("base") or me["path"]
sys.base_prefix = me["prefix"]
if me.get("torch") and me.get("sees_system", True):
    sys.path.insert(0, me["torch"])
sys.modules["venv"] = sys
sys.modules["ensurepip"] = None if me.get("no_venv") else sys

if args[0] == "-c":
    sys.argv = ["-c", *args[2:]]
    sys.modules["runpy"] = Pip()
    exec(args[1], {"__name__": "__main__"})
elif args[:2] == ["-m", "venv"]:
    log(args[1:])
    target = os.path.abspath(args[-1])
    os.makedirs(target + "/bin")
    if me.get("venv_fails"):
        print("Something went wrong.\n\nError: no space left on device\n")
        sys.exit(1)
    sees = "--system-site-packages" in args
    write(target + "/pyvenv.cfg", "include-system-site-packages = %s\n" % str(sees).lower())
    path = target + "/bin/python"
    child = {**me, "name": ".venv", "path": path, "base": me["path"], "sees_system": sees}
    write(path + ".settings", repr(child))
    write(path, me["launcher"])
    os.chmod(path, 0o755)
else:
    log(args[1:])
"""
LAUNCHER = '#!/bin/sh\nexec "{real}" -I -S -B "{fake}" "$0.settings" "$@"\n'
PYENV_SHIM = "#!/bin/sh\necho 'pyenv: command not found' >&2\nexit 127\n"


class Machine:
    """A folder with a checkout in it, and a PATH on which only the Pythons given to it exist."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.project = folder / "a checkout with spaces"
        self.venv = self.project / ".venv"
        self.bin = folder / "bin"
        self.env: dict[str, str] = {}
        (self.project / "tools").mkdir(parents=True)
        self.bin.mkdir()
        for name in ("tools/setup.sh", "Makefile", "pyproject.toml", "constraints.txt"):
            shutil.copy(ROOT / name, self.project / name)
        for name in UTILITIES:
            found = shutil.which(name)
            assert found, f"{name} is needed to test the set-up"
            (self.bin / name).symlink_to(found)
        (folder / "fake.py").write_text(FAKE_PYTHON)
        self.launcher = LAUNCHER.format(real=sys.executable, fake=folder / "fake.py")
        self.pip()
        self.before = self.files()

    def python(self, name: str, version: str = "3.12.1", **settings: Any) -> Path:
        path = self.bin / name
        numbers = [int(part) for part in version.split(".")]
        told = {"name": name, "path": str(path), "prefix": str(path), "version": numbers}
        told |= {"machine": str(self.folder), "launcher": self.launcher, **settings}
        self.script(name, self.launcher)
        path.with_name(name + ".settings").write_text(repr(told))
        return path

    def script(self, name: str, text: str) -> None:
        (self.bin / name).unlink(missing_ok=True)
        (self.bin / name).write_text(text)
        (self.bin / name).chmod(0o755)

    def torch(self, version: str) -> str:
        site = self.folder / f"site {version}"
        (site / "torch").mkdir(parents=True)
        (site / "torch" / "__init__.py").touch()
        metadata = f"Metadata-Version: 2.1\nName: torch\nVersion: {version}\nRequires-Dist: sympy==1.13.1\n"
        (site / f"torch-{version}.dist-info").mkdir()
        (site / f"torch-{version}.dist-info" / "METADATA").write_text(metadata)
        return str(site)

    def pip(self, **mood: Any) -> None:
        (self.folder / "pip").write_text(repr(mood))

    def start(self, *command: str, **env: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            command,
            cwd=self.project,
            env={"PATH": str(self.bin), **self.env, **env},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def run(self, *command: str, **env: str) -> subprocess.CompletedProcess[str]:
        process = self.start(*command, **env)
        stdout, stderr = process.communicate(timeout=300)
        return subprocess.CompletedProcess(command, process.returncode, stdout, stderr)

    def setup(self, what: str = "core", **env: str) -> subprocess.CompletedProcess[str]:
        return self.run("sh", "tools/setup.sh", what, **env)

    def works(self, what: str = "core", **env: str) -> str:
        result = self.setup(what, **env)
        assert (result.returncode, result.stderr) == (0, "")
        return result.stdout

    def fails(self, what: str = "core", **env: str) -> str:
        """The one line on stderr."""
        result = self.setup(what, **env)
        assert result.returncode == 1
        assert result.stderr.endswith("\n")
        assert len(result.stderr.splitlines()) == 1, result.stderr
        assert "Traceback" not in result.stdout
        return result.stderr

    def files(self) -> set[str]:
        return {str(path.relative_to(self.project)) for path in self.project.rglob("*")}

    def stamps(self) -> set[str]:
        return {path.name for path in self.venv.glob(".stepe-*")}

    def log(self) -> list[dict[str, Any]]:
        path = self.folder / "log"
        return [ast.literal_eval(line) for line in path.read_text().splitlines()] if path.exists() else []

    def pip_calls(self) -> list[list[str]]:
        return [entry["what"] for entry in self.log() if entry["what"][0] == "pip"]

    def venvs_made_by(self) -> list[str]:
        return [entry["python"] for entry in self.log() if entry["what"][0] == "venv"]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path / "a machine")


# Choosing a Python


def test_a_python_that_is_too_old_is_one_clear_line_and_leaves_nothing_behind(machine: Machine) -> None:
    machine.python("python3", "3.9.18")
    line = machine.fails()
    assert "3.11 or newer" in line
    assert "python3 (Python 3.9.18)" in line
    assert machine.files() == machine.before


def test_no_python_at_all_is_one_clear_line_and_leaves_nothing_behind(machine: Machine) -> None:
    line = machine.fails()
    assert "3.11 or newer" in line
    assert "found: none" in line
    assert machine.files() == machine.before


def test_a_pyenv_shim_that_does_not_run_is_passed_over(machine: Machine) -> None:
    machine.script("python3.13", PYENV_SHIM)
    machine.script("python3.12", PYENV_SHIM)
    machine.python("python3.11", "3.11.7")
    assert machine.works().startswith("setup: using python3.11 (Python 3.11.7")
    assert machine.venvs_made_by() == ["python3.11"]


def test_shims_that_do_not_run_are_named_when_nothing_else_is_there(machine: Machine) -> None:
    machine.script("python3.12", PYENV_SHIM)
    machine.python("python3", "3.10.13")
    line = machine.fails()
    assert "python3.12 (does not run), python3 (Python 3.10.13)" in line
    assert machine.files() == machine.before


def test_the_newest_named_python_comes_first_and_is_said_before_anything_is_made(machine: Machine) -> None:
    for name, version in (("python3", "3.11.2"), ("python3.12", "3.12.1"), ("python3.13", "3.13.0")):
        machine.python(name, version)
    machine.python("python3.13", "3.13.0", no_venv=True)
    result = machine.setup()
    assert "using python3.13 (Python 3.13.0" in result.stdout
    assert machine.files() == machine.before


def test_a_plain_python3_newer_than_the_named_ones_is_good_enough(machine: Machine) -> None:
    machine.python("python3", "3.14.0")
    assert "using python3 (Python 3.14.0" in machine.works()


def test_the_python_named_by_the_user_is_used(machine: Machine) -> None:
    machine.python("python3.13", "3.13.0")
    other = machine.python("my python", "3.11.4")
    assert "(Python 3.11.4" in machine.works(PYTHON=str(other))
    assert machine.venvs_made_by() == ["my python"]


@pytest.mark.parametrize(("name", "says"), [("old", "is Python 3.9.2"), ("absent", "does not run")])
def test_a_python_named_by_the_user_that_will_not_do_is_not_replaced_by_another(
    machine: Machine, name: str, says: str
) -> None:
    machine.python("python3.13", "3.13.0")
    machine.python("old", "3.9.2")
    line = machine.fails(PYTHON=name)
    assert f"PYTHON={name} {says}" in line
    assert machine.files() == machine.before


def test_naming_another_python_remakes_the_environment_and_naming_the_same_does_not(machine: Machine) -> None:
    machine.python("python3.12")
    machine.python("python3.11", "3.11.7")
    machine.works()
    machine.works(PYTHON="python3.12")
    assert machine.venvs_made_by() == ["python3.12"]
    machine.works(PYTHON="python3.11")
    assert machine.venvs_made_by() == ["python3.12", "python3.11"]


def test_the_python_behind_an_active_environment_is_used_and_not_the_environment(machine: Machine) -> None:
    real = machine.python("real", "3.12.1")
    machine.python("python3", "3.12.1", base=str(real))
    machine.works(VIRTUAL_ENV="/somewhere/else")
    assert machine.venvs_made_by() == ["real"]


# Making the environment


def test_a_python_without_venv_is_one_clear_line_that_names_the_fix(machine: Machine) -> None:
    machine.python("python3.12", no_venv=True)
    line = machine.fails()
    assert "apt install python3-venv" in line
    assert "python3.12-venv" in line
    assert machine.files() == machine.before


def test_a_venv_that_cannot_be_made_is_one_clear_line_and_leaves_nothing_behind(machine: Machine) -> None:
    machine.python("python3", venv_fails=True)
    assert "no space left on device" in machine.fails()
    assert machine.files() == machine.before


@pytest.mark.parametrize("what", ["core", "dev"])
def test_a_pip_that_fails_leaves_nothing_behind_and_the_next_attempt_starts_properly(
    machine: Machine, what: str
) -> None:
    machine.python("python3")
    machine.pip(fails=True)
    result = machine.setup(what)
    assert result.returncode == 1
    assert "no matching distribution" in result.stdout
    assert len(result.stderr.splitlines()) == 1
    assert "pip could not install" in result.stderr
    assert machine.files() == machine.before
    machine.pip()
    machine.works(what)
    assert machine.stamps() == {f".stepe-{what}"}


def test_the_core_is_the_package_alone_under_the_pinned_versions(machine: Machine) -> None:
    machine.python("python3")
    machine.works("core")
    (call,) = machine.pip_calls()
    assert call[-2:] == ["-e", "."]
    assert machine.log()[-1]["constraints"] == (machine.project / "constraints.txt").read_text()
    assert machine.stamps() == {".stepe-core"}


def test_dev_takes_the_extra_in_and_satisfies_core(machine: Machine) -> None:
    machine.python("python3")
    machine.works("dev")
    assert machine.works("core") == ""
    (call,) = machine.pip_calls()
    assert call[-2:] == ["-e", ".[dev]"]


def test_dev_after_core_only_adds_the_tools(machine: Machine) -> None:
    machine.python("python3")
    machine.works("core")
    machine.works("dev")
    assert len(machine.venvs_made_by()) == 1
    assert "-e" not in machine.pip_calls()[-1]
    assert machine.stamps() == {".stepe-core", ".stepe-dev"}


def test_tools_that_cannot_be_added_leave_the_core_as_it_was(machine: Machine) -> None:
    machine.python("python3")
    machine.works("core")
    before = machine.files()
    machine.pip(fails=True)
    assert "could not add the development tools" in machine.fails("dev")
    assert machine.files() == before
    assert machine.works("core") == ""


def test_settings_of_the_user_that_point_elsewhere_do_not_reach_pip(machine: Machine) -> None:
    machine.python("python3")
    elsewhere = dict.fromkeys(("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "PIP_TARGET"), "/else/where")
    machine.works(**elsewhere, PIP_USER="1")
    env = machine.log()[-1]["env"]
    assert env["PIP_USER"] == "0"
    assert not env.keys() & elsewhere.keys()


def test_anything_but_core_or_dev_is_refused(machine: Machine) -> None:
    machine.python("python3")
    assert "core" in machine.fails("everything")
    assert machine.files() == machine.before


# Finding it already there


def test_a_second_run_is_silent_and_calls_neither_pip_nor_any_other_python(machine: Machine) -> None:
    machine.python("python3")
    machine.works()
    calls = machine.log()
    (machine.bin / "python3").unlink()
    assert machine.works() == ""
    assert machine.log() == calls


def test_changed_pins_make_the_environment_anew(machine: Machine) -> None:
    machine.python("python3")
    machine.works()
    with (machine.project / "constraints.txt").open("a") as file:
        file.write("colorama==0.4.6\n")
    machine.works()
    assert len(machine.venvs_made_by()) == 2
    assert "colorama==0.4.6" in machine.log()[-1]["constraints"]
    assert machine.works() == ""


def test_settings_of_the_linter_do_not_make_the_environment_anew(machine: Machine) -> None:
    machine.python("python3")
    machine.works()
    with (machine.project / "pyproject.toml").open("a") as file:
        file.write("\n[tool.something]\nline-length = 1\n")
    assert machine.works() == ""


def test_a_failed_upgrade_leaves_the_earlier_environment_working(machine: Machine) -> None:
    machine.python("python3")
    machine.works("dev")
    before = machine.files()
    pins = (machine.project / "constraints.txt").read_text()
    (machine.project / "constraints.txt").write_text(pins + "nonsense==0\n")
    machine.pip(fails=True)
    assert "earlier .venv is back" in machine.fails("dev")
    assert machine.files() == before
    (machine.project / "constraints.txt").write_text(pins)
    assert machine.works("dev") == ""


def test_a_moved_checkout_makes_its_environment_anew(machine: Machine) -> None:
    machine.python("python3")
    machine.works()
    machine.project = machine.project.rename(machine.folder / "another place")
    machine.venv = machine.project / ".venv"
    assert ".venv is ready" in machine.works()
    assert len(machine.venvs_made_by()) == 2
    assert not list(machine.project.glob(".venv.*"))


def test_an_environment_whose_python_is_gone_is_made_anew(machine: Machine) -> None:
    machine.python("python3")
    machine.works()
    (machine.venv / "bin" / "python").unlink()
    assert ".venv is ready" in machine.works()


def test_an_environment_somebody_made_by_hand_is_kept_under_another_name(machine: Machine) -> None:
    machine.python("python3")
    machine.venv.mkdir()
    (machine.venv / "precious").touch()
    machine.pip(fails=True)
    machine.fails()
    assert (machine.venv / "precious").exists()
    machine.pip()
    said = machine.works()
    (kept,) = machine.project.glob(".venv.*")
    assert (kept / "precious").exists()
    assert kept.name in said
    assert machine.works() == ""


# Interruptions


def interrupt(machine: Machine, number: int, *, everyone: bool) -> tuple[int, str]:
    """Signal a set-up while its pip is at work: the whole group (Ctrl-C), or the script alone (kill)."""
    machine.pip(sleep=600)
    process = machine.start("sh", "tools/setup.sh", "core")
    try:
        deadline = time.monotonic() + 300
        while not (machine.venv / ".stepe-tmp" / "half a download").exists():
            assert time.monotonic() < deadline
            time.sleep(0.02)
        send = os.killpg if everyone else os.kill
        send(process.pid, number)
        _, stderr = process.communicate(timeout=300)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
    return process.returncode, stderr


@pytest.mark.parametrize(("number", "everyone"), [(signal.SIGINT, True), (signal.SIGTERM, False)])
def test_an_interrupted_set_up_stops_at_once_and_leaves_nothing_behind(
    machine: Machine, number: int, everyone: bool
) -> None:
    machine.python("python3")
    status, stderr = interrupt(machine, number, everyone=everyone)
    assert status == 128 + number
    assert "interrupted" in stderr.splitlines()[-1]
    assert machine.files() == machine.before


def test_an_interrupted_upgrade_gives_the_earlier_environment_back(machine: Machine) -> None:
    machine.python("python3")
    machine.works()
    before = machine.files()
    (machine.project / "constraints.txt").write_text("")
    interrupt(machine, signal.SIGTERM, everyone=False)
    assert machine.files() == before
    shutil.copy(ROOT / "constraints.txt", machine.project)
    assert machine.works() == ""


def test_a_reader_of_the_output_that_goes_away_leaves_nothing_half_made(machine: Machine) -> None:
    machine.python("python3")
    process = machine.start("sh", "tools/setup.sh", "core")
    assert process.stdout
    process.stdout.close()
    process.wait(timeout=300)
    assert process.returncode != 0
    assert machine.files() == machine.before


def test_after_a_set_up_that_was_killed_the_earlier_environment_is_found_again(machine: Machine) -> None:
    machine.python("python3")
    machine.works()
    before = machine.files()
    gone = subprocess.Popen(["true"])
    gone.wait()
    machine.venv.rename(machine.project / ".venv.previous")
    machine.venv.mkdir()
    (machine.venv / ".stepe-unfinished").write_text(f"{gone.pid}\n")
    assert machine.works() == ""
    assert machine.files() == before


def test_a_set_up_that_is_at_work_is_left_alone(machine: Machine) -> None:
    machine.python("python3")
    machine.venv.mkdir()
    (machine.venv / ".stepe-unfinished").write_text(f"{os.getpid()}\n")
    assert f"process {os.getpid()}" in machine.fails()
    assert (machine.venv / ".stepe-unfinished").exists()


# torch


def test_a_torch_that_is_there_is_kept_with_what_it_asks_for(machine: Machine) -> None:
    machine.python("python3", torch=machine.torch("2.7.1+cu126"))
    said = machine.works()
    assert "keeping the torch 2.7.1+cu126" in said
    assert "GB" not in said
    (made,) = [entry["what"] for entry in machine.log() if entry["what"][0] == "venv"]
    assert "--system-site-packages" in made
    pins = machine.log()[-1]["constraints"].splitlines()
    names = {pin.partition("==")[0] for pin in pins}
    assert "torch==2.7.1+cu126" in pins
    assert "sympy" not in names  # this torch asks for another version of it
    assert {"numpy", "pandas", "scikit-learn"} <= names
    machine.works("dev")
    assert "torch==2.7.1+cu126" in machine.log()[-1]["constraints"].splitlines()


@pytest.mark.parametrize("version", ["2.5.1", "2.6.0a0+nightly"])
def test_a_torch_that_is_too_old_is_not_kept(machine: Machine, version: str) -> None:
    machine.python("python3", torch=machine.torch(version))
    assert "keeping" not in machine.works()
    (made,) = [entry["what"] for entry in machine.log() if entry["what"][0] == "venv"]
    assert "--system-site-packages" not in made
    assert machine.log()[-1]["constraints"] == (machine.project / "constraints.txt").read_text()


@pytest.mark.parametrize("version", ["2.6.0", "2.8.0a0+nightly", "2.10", "3.0.0"])
def test_a_torch_that_is_new_enough_is_kept(machine: Machine, version: str) -> None:
    machine.python("python3", torch=machine.torch(version))
    assert f"keeping the torch {version}" in machine.works()


def test_a_torch_that_does_not_import_is_not_kept(machine: Machine) -> None:
    site = machine.torch("2.7.1")
    Path(site, "torch", "__init__.py").write_text("raise ImportError('libcudart.so')\n")
    machine.python("python3", torch=site)
    assert "keeping" not in machine.works()


def test_on_linux_the_size_of_torch_and_the_way_round_it_are_said_before_pip_starts(machine: Machine) -> None:
    machine.python("python3")
    machine.script("uname", "#!/bin/sh\necho Linux\n")
    said = machine.works()
    before, _, _ = said.partition("pip at work")
    assert "3 GB" in before
    for setting in ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "pip.conf"):
        assert setting in before


def test_on_macos_nobody_is_warned_of_a_cuda_build(machine: Machine) -> None:
    machine.python("python3")
    machine.script("uname", "#!/bin/sh\necho Darwin\n")
    said = machine.works()
    assert "CUDA" not in said
    assert "300 MB" in said


# make


@pytest.fixture
def make(machine: Machine) -> str:
    found = shutil.which("make")
    if not found:
        pytest.skip("make is not installed")
    return found


def test_make_demo_sets_the_core_up_and_cleans_the_digits(machine: Machine, make: str) -> None:
    machine.python("python3")
    result = machine.run(make, "demo", "ARGS=--seed 1", PYTHONPATH="/else/where")
    assert result.returncode == 0, result.stderr
    assert machine.pip_calls()[0][-1] == "."
    last = machine.log()[-1]
    assert (last["python"], last["what"]) == (".venv", ["stepe", "clean", "digits", "--compare", "--seed", "1"])
    assert "PYTHONPATH" not in last["env"]


def test_make_test_runs_every_check_and_hands_its_arguments_to_pytest(machine: Machine, make: str) -> None:
    machine.python("python3")
    result = machine.run(make, "test", "ARGS=-k 'this or that'")
    assert result.returncode == 0, result.stderr
    run = [entry["what"] for entry in machine.log() if entry["python"] == ".venv" and entry["what"][0] != "pip"]
    assert [what[:2] for what in run[:3]] == [["ruff", "check"], ["ruff", "format"], ["mypy"]]
    assert run[3][0] == "pytest"
    assert run[3][-2:] == ["-k", "this or that"]


def test_make_fails_when_the_set_up_does(machine: Machine, make: str) -> None:
    machine.python("python3", "3.9.18")
    result = machine.run(make, "test")
    assert result.returncode != 0
    assert "3.11 or newer" in result.stderr
    assert machine.files() == machine.before
