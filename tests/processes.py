"""Real processes for tests of runs that are spread over several of them."""

import multiprocessing
import os
import pickle
import socket
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

TIMEOUT = timedelta(seconds=300)
END = Path(__file__).with_name("to_its_end.py")
SOURCE = Path(__file__).parents[1] / "src"


def printed_by(script: Path, folder: Path, processes: int = 0) -> str:
    """What a script prints, by itself or in so many processes of torchrun; it must end well."""
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={processes}"] if processes else []
    done = subprocess.run(
        [sys.executable, *launcher, *([str(END)] if processes else []), str(script)],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1", "MASTER_PORT": str(own_port())},
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    return done.stdout


def leave_group() -> None:
    """How a script of several processes ends, so that none of them takes the others down."""
    dist.barrier()  # whoever leaves first would take the other's connection along
    dist.destroy_process_group()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # gloo clears up in a thread of its own, which aborts the process if Python is gone by then


def own_port() -> int:
    """A free port among those that the system gives to nobody who asks for any, so that it stays free."""
    for port in range(20_000 + os.getpid() % 10_000, 32_000):
        try:
            with socket.create_server(("127.0.0.1", port)):
                return port
        except OSError:
            continue
    raise AssertionError("no port is free")


def signalled(number: int, line: int = 3) -> str:
    """Code that runs the command line, and signals its own process when it is about to write an epoch or round down."""
    return (
        "import os, sys; from stepe.cli import main; seen = []\n"
        "def watch(event, args):\n"
        "    if event == 'open' and str(args[0]).endswith('history.jsonl') and args[1] == 'a':\n"
        "        seen.append(event)\n"
        f"        if len(seen) == {line}: os.kill(os.getpid(), {int(number)})\n"
        "sys.addaudithook(watch); sys.argv[0] = 'stepe'; main()"
    )


class Processes:
    """Processes that are started once and join a process group, of any size, for each call."""

    def __init__(self) -> None:
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(["torch", "stepe"])
        self._folder = tempfile.TemporaryDirectory()
        self._calls = 0
        self._workers: list[tuple[Any, Any]] = []

    def run(self, world: int, function: Callable[..., Any], *args: Any) -> list[Any]:
        """Call a function of a test module on every rank of a group; returns what each of them returned."""
        while len(self._workers) < world:
            here, there = self._context.Pipe()
            process = self._context.Process(target=_serve, args=(there,), daemon=True)
            process.start()
            self._workers.append((process, here))
        self._calls += 1
        meeting = str(Path(self._folder.name) / str(self._calls))
        for rank in range(world):
            self._workers[rank][1].send_bytes(pickle.dumps((rank, world, meeting, function, args)))
        answers = [pickle.loads(self._workers[rank][1].recv_bytes()) for rank in range(world)]
        for failed, answer in answers:
            assert not failed, answer
        return [answer for _, answer in answers]

    def close(self) -> None:
        """End the processes."""
        for process, connection in self._workers:
            connection.close()
            process.join(10)
        self._folder.cleanup()


def _serve(connection: Any) -> None:
    torch.set_num_threads(1)
    while True:
        try:
            rank, world, meeting, function, args = pickle.loads(connection.recv_bytes())
        except EOFError:
            return
        dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=world, timeout=TIMEOUT)
        dist.barrier()  # who is done at once must not leave while others still connect
        try:
            answer = False, function(*args)
        except Exception:
            answer = True, traceback.format_exc()
        dist.destroy_process_group()
        connection.send_bytes(pickle.dumps(answer))
