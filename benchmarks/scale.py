"""What an epoch costs beyond training, from 10^5 to 10^7 samples in two processes: time, memory and bytes sent.

Every process has judged its half of the samples. Measured is what follows: the halves come together (`gather`), are
written down (`record`), the samples are chosen (`select`), and the epoch's batches are cut (`plan`). Times are the best
of several, of the slower process; memory is how far a process rises above one that holds its half of a probe.

    python benchmarks/scale.py
"""

import argparse
import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from stepe.loop.ledger import Ledger, Observation
from stepe.loop.plan import Plan
from stepe.loop.processes import Ranks
from stepe.loop.selection import select
from stepe.training.environment import describe_environment

SEED, WORLD, DROP, PROBE_BATCH, BATCH = 0, 2, 0.4, 512, 1024
SIZES = (100_000, 1_000_000, 10_000_000)
GOAL = 1_000_000_000
STAGES = ("gather", "record", "select", "plan")


class Counted:
    """Counts the bytes that this process hands to the process group."""

    def __init__(self) -> None:
        self.sent = 0
        self._all_gather = dist.all_gather

    def __call__(self, everyone: list[torch.Tensor], mine: torch.Tensor) -> None:
        self.sent += mine.nbytes
        self._all_gather(everyone, mine)


def peak_memory() -> int:
    """The most bytes this process ever held."""
    return int(re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())[1]) * 1024


def timed(work: Callable[..., Any], *args: Any) -> tuple[float, Any]:
    dist.barrier()
    started = time.perf_counter()
    result = work(*args)
    return time.perf_counter() - started, result


def measure_here(n: int, repeats: int) -> dict[str, Any]:
    """One process's part of an epoch's bookkeeping."""
    dist.init_process_group("gloo")
    ranks = Ranks.current()
    positions = torch.split(torch.arange(n), PROBE_BATCH)
    mine = sum(map(len, ranks.deal(positions)))
    draw = torch.Generator().manual_seed(ranks.rank)
    seen = Observation(
        torch.rand(mine, generator=draw),
        prediction=torch.randint(10, (mine,), generator=draw),
        confidence=torch.rand(mine, generator=draw),
        given_probability=torch.rand(mine, generator=draw),
        margin=torch.randn(mine, generator=draw),
    )
    counted = Counted()
    dist.all_gather = counted  # type: ignore[assignment]
    before = peak_memory()
    best = dict.fromkeys(STAGES, float("inf"))
    for _ in range(repeats):
        ledger, counted.sent = Ledger(n), 0
        gather, whole = timed(ranks.assemble, seen, positions)
        record, _ = timed(ledger.record_probe, whole)
        choose, chosen = timed(select, ledger["score"], DROP)
        plan = Plan(1, 2, chosen.kept, SEED)
        cut, _ = timed(partial(plan.batches, BATCH, rank=ranks.rank, world=ranks.world))
        for name, seconds in zip(STAGES, (gather, record, choose, cut), strict=True):
            best[name] = min(best[name], seconds)
    dist.barrier()  # whoever leaves first would take the other's connection along
    dist.destroy_process_group()
    time.sleep(0.5)  # gloo clears up in a thread of its own, which aborts the process if Python is gone by then
    return {"seconds": best, "memory": peak_memory() - before, "sent": counted.sent}


def measure(n: int, repeats: int) -> dict[str, Any]:
    """Both processes, afresh, so that memory is that of this size alone."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = os.environ | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(WORLD)}
    command = [sys.executable, __file__, "--measure", str(n), "--repeats", str(repeats)]
    started = [
        subprocess.Popen(command, env=shared | {"RANK": str(rank)}, stdout=subprocess.PIPE, text=True)
        for rank in range(WORLD)
    ]
    found = [json.loads(process.communicate()[0]) for process in started]
    seconds = {stage: max(each["seconds"][stage] for each in found) for stage in STAGES}
    return {
        "samples": n,
        "processes": WORLD,
        "repeats": repeats,
        **{f"{stage}_seconds": round(seconds[stage], 4) for stage in STAGES},
        "memory_bytes_per_sample": round(max(each["memory"] for each in found) / n, 1),
        "sent_bytes_per_sample": round(sum(each["sent"] for each in found) / n, 2),
    }


def table(rows: list[dict[str, Any]]) -> str:
    """As docs/scale.md shows it; the last line carries the largest measurement on, in proportion."""
    lines = ["| samples | gather | record | select | plan | together | memory of a process | sent by all |"]
    lines.append("|---:|---:|---:|---:|---:|---:|---:|---:|")
    lines += [_line(row, row["samples"]) for row in rows]
    lines.append(_line(rows[-1], GOAL).replace(f"{GOAL:,}", f"*{GOAL:,}, not measured*"))
    return "\n".join(lines)


def _line(row: dict[str, Any], n: int) -> str:
    factor = n / row["samples"]
    seconds = [row[f"{stage}_seconds"] * factor for stage in STAGES]
    times = " | ".join(f"{each:,.3f} s" if each < 1 else f"{each:,.1f} s" for each in (*seconds, sum(seconds)))
    memory, sent = (row[f"{name}_bytes_per_sample"] * n / 1e6 for name in ("memory", "sent"))
    return f"| {n:,} | {times} | {memory:,.0f} MB | {sent:,.1f} MB |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path("results/scale.json"))
    parser.add_argument("--measure", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.measure:
        print(json.dumps(measure_here(options.measure, options.repeats)))
        return
    rows = [measure(n, options.repeats) for n in SIZES]
    print(table(rows))
    options.out.parent.mkdir(parents=True, exist_ok=True)
    result = {"rows": rows, "environment": describe_environment(seed=SEED)}
    options.out.write_text(json.dumps(result, indent=2) + "\n")
    print(f"written to {options.out}")


if __name__ == "__main__":
    main()
