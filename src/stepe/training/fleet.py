"""A fleet: several runs at once on one GPU, each on a stream of its own.

A single small network leaves most of a large GPU idle; its graphs and those of other runs fill it together. The runs
take turns on the host: each launches a step and yields; one that needs results yields an event and is passed over
until that has happened. Nothing is shared but the data, so a run in a fleet computes what it computes alone.
"""

import contextlib
import time
from collections.abc import Sequence

import torch

from stepe.engine.steps import Awaitable, Steps
from stepe.errors import InputError
from stepe.loop.processes import Ranks
from stepe.loop.randomness import preserved
from stepe.training.building import Result, determinism
from stepe.training.fit import Job

PATIENCE = 1e-4
"""seconds to sleep when every run waits for the GPU"""


def run_together(jobs: Sequence[Job], at_once: int | None = None) -> list[Result]:
    """Carry out several jobs in turns, all or so many ``at_once``; the results are in their order."""
    if at_once is not None and at_once < 1:
        raise InputError(f"at_once is {at_once}; at least one run has to be carried out at a time")
    if not jobs:
        return []
    if Ranks.current().world > 1:
        raise InputError("a fleet runs in one process; give each process a fleet of its own, without a process group")
    device = jobs[0].device
    with preserved(device), determinism(any(job.deterministic for job in jobs)):
        if device.type == "cuda":
            torch.cuda.synchronize(device)  # what the jobs share was put there by the default stream
        turns = [_Turn(job.steps, device) for job in jobs]
        while unfinished := [turn for turn in turns if turn.result is None]:
            if not sum(turn.take() for turn in unfinished[:at_once]):
                time.sleep(PATIENCE)
    return [turn.result for turn in turns if turn.result is not None]


class _Turn:
    """One run of a fleet."""

    def __init__(self, steps: Steps[Result], device: torch.device):
        self.steps = steps
        self.result: Result | None = None
        self._awaited: Awaitable | None = None
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]

    def take(self) -> bool:
        """Launch a step unless something is still awaited; says whether it did."""
        if self._awaited is not None and not self._awaited.query():
            return False
        with torch.cuda.stream(self._stream) if self._stream is not None else contextlib.nullcontext():
            try:
                self._awaited = next(self.steps)
            except StopIteration as done:
                self.result = done.value
        return True
