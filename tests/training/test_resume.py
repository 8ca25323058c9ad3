"""Killed at any moment and resumed, a run ends as if it had never been interrupted.

Processes are really killed, with SIGKILL and their data workers with them: at random moments, and at every kind of
moment in which a file is made, renamed or removed. Most are forked from one process that has everything imported, so
that many of them fit into a test; some are started cold.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import stepe
from processes import signalled
from stepe import Run
from stepe.files import TEMPORARY

SCRIPT = r'''
import json, os, random, signal, sys, time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import Dataset

import stepe
from stepe.training.building import Silent


class Jittered(Dataset):
    """Random transforms as people write them: from whichever global generator is at hand."""

    def __init__(self, x, y):
        self.x, self.y = x, y

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        noise = 0.1 * torch.randn(self.x.shape[1]) + np.random.normal(0, 0.1) + random.gauss(0, 0.1)
        return (self.x[index] + noise).float(), int(self.y[index])


def train(run, workers, epochs, observers=()):
    draw = torch.Generator().manual_seed(0)
    clean = torch.arange(97) % 3
    x = 2 * torch.randn(3, 6, generator=draw)[clean] + torch.randn(97, 6, generator=draw)
    given = torch.where(torch.rand(97, generator=draw) < 0.25, (clean + 1) % 3, clean)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, 3))
    result = stepe.fit(
        model,
        Jittered(x, given) if workers else x,
        given,
        rho_max=0.3,
        memory=0.3,
        epochs=epochs,
        batch_size=16,
        test=(x, clean),
        truth=stepe.Truth.from_labels(given, clean),
        loader_options={"num_workers": workers} if workers else None,
        device="cpu",
        seed=5,
        run=run,
        resume=True,
        observers=observers,
    )
    columns = {name: column.numpy() for name, column in result.ledger.state_dict().items()}
    np.savez(f"{run}.ledger.npz", **columns)


def command(words):
    import stepe.cli

    sys.argv = ["stepe", *words]
    stepe.cli.main()


class Killer:
    """Kills this process at the N-th thing it does to a file, or to a file of that name."""

    WATCHED = ("open", "os.rename", "os.mkdir", "os.remove", "os.rmdir", "os.truncate")

    def __init__(self, folder, at=None, name=None):
        self.folder, self.at, self.name = folder, at, name
        self.count, self.process = 0, os.getpid()

    def __call__(self, event, args):
        if event not in self.WATCHED or os.getpid() != self.process:
            return
        paths = [os.fspath(arg) for arg in args if isinstance(arg, (str, os.PathLike))]
        within_removed = event in ("os.remove", "os.rmdir") and not paths[0].startswith("/")
        if not within_removed and not any(path.startswith(self.folder) for path in paths):
            return
        if self.name is not None and not any(path.endswith(self.name) for path in paths):
            return
        self.count += 1
        if self.count == self.at:
            os.kill(os.getpid(), signal.SIGKILL)


class Last(Silent):
    """Kills this process and its data workers after so many epochs."""

    def __init__(self, epoch):
        self.epoch = epoch

    def epoch_ended(self, training, row):
        if training.epoch == self.epoch:
            os.killpg(os.getpgid(0), signal.SIGKILL)


def tear(path, at, left):
    """Kills this process while the N-th line is added to a file: the end of it is not written."""
    fsync, seen = os.fsync, [0]

    def torn(handle):
        if os.path.exists(path) and os.fstat(handle).st_ino == os.stat(path).st_ino:
            seen[0] += 1
            if seen[0] == at:
                os.ftruncate(handle, os.fstat(handle).st_size - left)
                os.kill(os.getpid(), signal.SIGKILL)
        fsync(handle)

    os.fsync = torn


def work(job):
    killer = None
    if "kill" in job:
        killer = Killer(**job["kill"])
        sys.addaudithook(killer)
    if "tear" in job:
        tear(**job["tear"])
    if "command" in job:
        command(job["command"])
    else:
        train(job["run"], job.get("workers", 0), job.get("epochs", 4))
    return killer.count if killer else 0


def fork(job):
    """Do a job in another process; kill it after a delay, if there is one."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.setsid()
        os.chdir(job["folder"])
        log = os.open(os.path.join(job["folder"], "log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(log, 1)
        os.dup2(log, 2)
        code = 1
        try:
            os.write(writer, str(work(job)).encode())
            code = 0
        except SystemExit as end:
            code = end.code
        except BaseException:
            import traceback

            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    os.close(writer)
    started = time.monotonic()
    while job.get("delay") is not None and time.monotonic() - started < job["delay"]:
        if os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            break
        time.sleep(0.001)
    if job.get("delay") is not None:
        os.kill(child, signal.SIGKILL)  # which may not have its group yet
    _, status = os.waitpid(child, 0)
    try:
        os.killpg(child, signal.SIGKILL)  # its data workers
    except ProcessLookupError:
        pass
    told = os.read(reader, 100).decode()
    os.close(reader)
    code = os.waitstatus_to_exitcode(status)
    return {"code": code, "events": int(told or 0), "seconds": time.monotonic() - started}


if __name__ == "__main__":
    torch.set_num_threads(1)
    if len(sys.argv) > 1:
        run, epochs, last = sys.argv[1:]
        train(run, workers=2, epochs=int(epochs), observers=[Last(int(last))])
    else:
        import matplotlib.figure, pandas, pyarrow.parquet, sklearn.datasets, torch._dynamo  # noqa: E401
        import stepe.cli, stepe.app.clean, stepe.report.html, stepe.training.recorder  # noqa: E401

        for line in sys.stdin:
            print(json.dumps(fork(json.loads(line))), flush=True)
'''

KILLED = -signal.SIGKILL


def environment() -> dict[str, str]:
    """With the package at hand whether or not it is installed."""
    source = str(Path(stepe.__file__).parents[1])
    path = os.pathsep.join(filter(None, (source, os.environ.get("PYTHONPATH"))))
    return os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1", "STEPE_COMMIT": "none"}


class Server:
    """The process that others are forked from."""

    def __init__(self, script: Path):
        self.process = subprocess.Popen(
            [sys.executable, str(script)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment(),
            start_new_session=True,
        )

    def do(self, folder: Path, **job: Any) -> dict[str, Any]:
        """Do a job in a process of its own, in a folder."""
        print(json.dumps({"folder": str(folder), **job}), file=self.process.stdin, flush=True)
        answer = json.loads(self.process.stdout.readline())
        assert answer["code"] in (0, KILLED), (folder / "log").read_text()
        return answer

    def close(self) -> None:
        self.process.stdin.close()
        self.process.wait(timeout=300)


@pytest.fixture(scope="module")
def script(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("script") / "train.py"
    path.write_text(SCRIPT)
    return path


@pytest.fixture(scope="module")
def server(script) -> Iterator[Server]:
    server = Server(script)
    yield server
    server.close()


def history(run: Path) -> list[dict[str, Any]]:
    """The lines of the file, without the clock."""
    rows = [json.loads(line) for line in (run / "history.jsonl").read_text().splitlines()]
    return [{key: value for key, value in row.items() if not key.endswith("seconds")} for row in rows]


def outcome(run: Path) -> dict[str, Any]:
    """Everything a run leaves that must not depend on interruptions, of the runs inside it too."""
    found: dict[str, Any] = {}
    for folder in (run, *sorted(run.glob("compare/*"))):
        name = str(folder.relative_to(run))
        for file in ("model.safetensors", "samples.parquet", "issues.csv", "trace.bin"):
            found[f"{name}/{file}"] = (folder / file).read_bytes()
        found[f"{name}/history"] = history(folder)
        found[f"{name}/checkpoints"] = sorted(path.name for path in (folder / "checkpoint").iterdir())
        found[f"{name}/weights"] = [
            (path / "model.safetensors").read_bytes() for path in sorted((folder / "checkpoint").iterdir())
        ]
        found[f"{name}/files"] = sorted(path.name for path in folder.iterdir())
    ledger = run.with_name(f"{run.name}.ledger.npz")
    if ledger.exists():
        found["ledger"] = ledger.read_bytes()
    assert not list(run.rglob(f"{TEMPORARY}*"))
    return found


@pytest.fixture(scope="module")
def whole(server, tmp_path_factory) -> dict[str, Any]:
    """An uninterrupted run with data workers, and how long it took."""
    folder = tmp_path_factory.mktemp("whole")
    seconds = server.do(folder, run=str(folder / "run"), workers=2)["seconds"]
    return {"outcome": outcome(folder / "run"), "seconds": seconds}


def test_uninterrupted_runs_are_the_same_run(server, whole, tmp_path):
    server.do(tmp_path, run=str(tmp_path / "run"), workers=2)
    assert outcome(tmp_path / "run") == whole["outcome"]
    assert "ledger" in whole["outcome"]


# Shares of a run's length, in no particular order.
MOMENTS = (0.61, 0.12, 0.85, 0.37, 0.94, 0.25, 0.72, 0.48, 0.05, 0.55, 0.31, 0.79, 0.19, 0.67, 0.43)


def test_killed_at_random_moments_and_resumed_it_ends_the_same(server, whole, tmp_path):
    kills, pace, number = 0, whole["seconds"], 0
    while kills < len(MOMENTS):
        number += 1
        folder = tmp_path / str(number)
        folder.mkdir()
        # Twice each, so that a resumed run is killed too.
        for moment in (MOMENTS[kills], MOMENTS[-1 - kills] / 2):
            killed = server.do(folder, run=str(folder / "run"), workers=2, delay=pace * moment)["code"] == KILLED
            kills += killed
            if not killed:
                pace *= 0.7  # the machine has become faster than it was
                break
            if kills == len(MOMENTS):
                break
        assert server.do(folder, run=str(folder / "run"), workers=2)["code"] == 0
        assert outcome(folder / "run") == whole["outcome"], number


def test_a_run_that_is_killed_over_and_over_gets_there_all_the_same(server, whole, tmp_path):
    run, attempts = tmp_path / "run", 0
    while (
        # The first time before it does anything: a machine may have become any faster than it was.
        server.do(tmp_path, run=str(run), workers=2, delay=(whole["seconds"] * 0.15 + 0.05) * attempts)["code"]
        == KILLED
    ):
        attempts += 1
    assert attempts >= 1
    server.do(tmp_path, run=str(run), workers=2)
    assert outcome(run) == whole["outcome"]


def test_killed_at_whatever_it_does_to_a_file_it_ends_the_same(server, tmp_path):
    whole = tmp_path / "whole"
    whole.mkdir()
    events = server.do(whole, run=str(whole / "run"), epochs=3, kill={"folder": str(whole / "run")})["events"]
    assert events > 100
    expected = outcome(whole / "run")
    left_behind = set()
    for at in range(1, events + 1, events // 60):
        folder = tmp_path / str(at)
        folder.mkdir()
        job = {"run": str(folder / "run"), "epochs": 3}
        kill = {"folder": str(folder / "run"), "at": at}
        assert server.do(folder, **job, kill=kill)["code"] == KILLED
        left_behind.update(path.name for path in (folder / "run").rglob("*") if path.name.startswith(TEMPORARY))
        # Killed once more, soon after it took up its work.
        server.do(folder, **job, kill=kill | {"at": 2 + at % 23})
        assert server.do(folder, **job)["code"] == 0
        assert outcome(folder / "run") == expected, at
    assert len(left_behind) > 10


@pytest.mark.parametrize("left", [1, 2, 30])
@pytest.mark.parametrize("file", ["history.jsonl", "trace.bin"])
def test_a_torn_line_is_repaired(server, tmp_path, file, left):
    server.do(tmp_path, run=str(tmp_path / "whole"), epochs=3)
    run = tmp_path / "run"
    job = {"run": str(run), "epochs": 3}
    assert server.do(tmp_path, **job, tear={"path": str(run / file), "at": 2, "left": left})["code"] == KILLED
    assert len(Run(run).history) in (1, 2)
    assert server.do(tmp_path, **job)["code"] == 0
    assert outcome(run) == outcome(tmp_path / "whole")


def test_a_cold_process_killed_with_its_workers_is_resumed_by_another(server, script, tmp_path):
    server.do(tmp_path, run=str(tmp_path / "whole"), workers=2, epochs=12)
    run = tmp_path / "run"
    command = [sys.executable, str(script), str(run), "12"]
    for last in ("1", "5"):
        killed = subprocess.run([*command, last], env=environment(), start_new_session=True, timeout=300)
        assert killed.returncode == KILLED
    subprocess.run([*command, "0"], env=environment(), check=True, timeout=300)
    assert outcome(run) == outcome(tmp_path / "whole")


# ---------------------------------------------------------------------------------------------------------------
# The command line

# In the order in which they come; each kill is on the verge of the file taking its place.
LANDMARKS = (
    "run/checkpoint/epoch-00000",
    "run/checkpoint/epoch-00003",
    "run/issues.csv",
    "run/summary.json",
    "run/compare/plain/config.json",
    "run/compare/plain/checkpoint/epoch-00000",
    "run/compare/plain/checkpoint/epoch-00006",
    "run/compare/plain/summary.json",
    "run/compare/oracle/samples.parquet",
    "run/report.html",
)


def test_the_command_killed_again_and_again_and_resumed_ends_the_same(server, tmp_path):
    command = ["clean", "digits", "--epochs", "6", "--quiet", "--out"]
    server.do(tmp_path, command=[*command, str(tmp_path / "whole" / "run")])
    expected = outcome(tmp_path / "whole" / "run")
    assert expected.keys() > {"compare/plain/trace.bin", "compare/oracle/trace.bin"}

    run = tmp_path / "run"
    kill = {"folder": str(run), "at": 1}
    # Before its configuration is there, nothing is left to resume, and nothing in the way of starting again.
    assert server.do(tmp_path, command=[*command, str(run)], kill=kill | {"name": "run/config.json"})["code"] == KILLED
    start = [*command, str(run)]
    for landmark in LANDMARKS:
        assert server.do(tmp_path, command=start, kill=kill | {"name": landmark})["code"] == KILLED, landmark
        start = ["clean", "--quiet", "--resume", str(run)]
    server.do(tmp_path, command=start)
    assert outcome(run) == expected
    assert (run / "report.html").exists()
    assert (tmp_path / "log").read_text() == f"{tmp_path / 'whole' / 'run'}\n{run}\n"


def test_the_command_in_a_cold_process_is_resumed_after_a_kill(server, tmp_path):
    words = ["clean", "digits", "--epochs", "8", "--no-compare", "--quiet", "--out"]
    server.do(tmp_path, command=[*words, str(tmp_path / "whole")])
    run = tmp_path / "run"
    options = {"env": environment(), "stdout": subprocess.DEVNULL}
    killed = subprocess.run([sys.executable, "-c", signalled(signal.SIGKILL), *words, str(run)], timeout=300, **options)
    assert killed.returncode == KILLED
    assert len(Run(run).history) == 2
    resume = [sys.executable, "-m", "stepe", "clean", "--resume", str(run), "--quiet"]
    subprocess.run(resume, check=True, timeout=300, **options)
    assert outcome(run) == outcome(tmp_path / "whole")
