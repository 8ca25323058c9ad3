"""``fit`` spread over several processes: the same kept sets, gradients and files as in one."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.utils.data import Dataset

import stepe
from stepe import InputError
from stepe.methods import METHODS, CoTeaching, Method, StepwiseElimination
from stepe.training.building import Silent
from stepe.training.fit import begin
from stepe.training.fleet import run_together

PRIME = 101
EPOCHS, BATCH = 4, 16
ROOT = Path(__file__).parents[2]


class Fetched(Dataset[tuple[Tensor, int]]):
    """Remembers what was fetched since it was last asked."""

    def __init__(self, x: Tensor, y: Tensor):
        self.x, self.y = x, y
        self.fetched: list[int] = []

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        self.fetched.append(index)
        return self.x[index], int(self.y[index])


class Kept(Silent):
    """The kept set and the weights of every epoch."""

    def __init__(self) -> None:
        self.kept: list[list[bool]] = []
        self.weights: list[Tensor] = []

    def epoch_ended(self, training, row) -> None:
        self.kept.append((~training.ledger["dropped"]).tolist())
        self.weights.append(nn.utils.parameters_to_vector(training.model.parameters()).detach().clone())


class Interrupted(Silent):
    """Stops a run after an epoch."""

    def __init__(self, after: int):
        self.after = after

    def epoch_ended(self, training, row) -> None:
        if training.epoch == self.after:
            raise KeyboardInterrupt


def clouds(n: int) -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(1)
    clean = torch.arange(n) % 3
    x = (2 * torch.randn(3, 6, generator=draw))[clean] + torch.randn(n, 6, generator=draw)
    wrong = torch.rand(n, generator=draw) < 0.25
    return x.double(), torch.where(wrong, (clean + 1) % 3, clean)


def network(norm: bool = False) -> nn.Module:
    # Other weights on each rank: those of the first count.
    torch.manual_seed(dist.get_rank() if dist.is_initialized() else 0)
    middle = [nn.BatchNorm1d(16)] if norm else []
    return nn.Sequential(nn.Linear(6, 16), *middle, nn.ReLU(), nn.Linear(16, 3)).double()


def fitted(n: int = PRIME, norm: bool = False, **options: Any) -> dict[str, Any]:
    """One run; whatever a test may ask about it."""
    seen = Kept()
    options = {"epochs": EPOCHS, "batch_size": BATCH, "rho_max": 0.4, "device": "cpu", "learning_rate": 0.05} | options
    method = options.get("method", "step-e")
    if isinstance(method, Method) or "rho_max" not in METHODS[method].options():
        del options["rho_max"]
    x, y = clouds(n)
    result = stepe.fit(network(norm), x, y, observers=(seen, *options.pop("observers", ())), **options)
    return {
        "kept": seen.kept,
        "weights": seen.weights,
        "ledger": result.ledger.state_dict(),
        "history": result.history,
        "last": nn.utils.parameters_to_vector(result.model.parameters()).detach().clone(),
        "buffers": [buffer.clone() for buffer in result.model.buffers()],
        "summary": result.summary,
    }


def assert_same_run(runs: list[dict[str, Any]], alone: dict[str, Any]) -> None:
    """The kept sets of one process, its weights to 1e-6 in float64, and on every rank the same to the bit."""
    assert runs[0]["kept"] == alone["kept"]
    for here, there in zip(runs[0]["weights"], alone["weights"], strict=True):
        torch.testing.assert_close(here, there, rtol=0, atol=1e-6)
    for run in runs:
        assert torch.equal(run["last"], runs[0]["last"])
        for name, column in run["ledger"].items():
            assert torch.equal(column.nan_to_num(-1), runs[0]["ledger"][name].nan_to_num(-1)), name
        assert [row["train_loss"] for row in run["history"]] == pytest.approx(
            [row["train_loss"] for row in alone["history"]]
        )


# ---------------------------------------------------------------------------------------------------------------
# The same run


@pytest.mark.parametrize("world", [1, 2, 3, 4])
@pytest.mark.parametrize(
    ("n", "options"),
    [
        (PRIME, {}),
        (67, {"rho_max": 0.02}),  # 66 kept: a tail of 2
        (7, {"rho_max": 0.8, "warmup": 1, "ramp_end": 2, "batch_size": 7}),  # 2 kept, fewer than ranks
        (PRIME, {"softness": 0.3}),
        (PRIME, {"engine": "resident"}),
        (PRIME, {"engine": "resident", "softness": 0.3}),
        (7, {"rho_max": 0.8, "warmup": 1, "ramp_end": 2, "batch_size": 7, "engine": "resident"}),
        (PRIME, {"method": "elr"}),
        (PRIME, {"method": "margins", "engine": "resident"}),
    ],
    ids=[
        "prime",
        "tail",
        "fewer than ranks",
        "weights",
        "resident",
        "resident weights",
        "resident fewer than ranks",
        "predictions remembered in steps",
        "margins remembered in steps",
    ],
)
def test_any_number_of_processes_trains_as_one(processes, world, n, options):
    runs = processes.run(world, _fit, n, options)
    assert_same_run(runs, fitted(n, **options))


def _fit(n: int, options: dict[str, Any]) -> dict[str, Any]:
    return fitted(n, **options)


def _fetch(n: int, options: dict[str, Any]) -> tuple[list[list[int]], list[int]]:
    """What this rank fetched for training in each epoch, and how many steps it took."""
    x, y = clouds(n)
    training, probed = Fetched(x, y), Fetched(x, y)
    fetched, steps = [], []
    batch_size = options.pop("batch_size")
    job = begin(
        network(),
        training,
        y,
        method=StepwiseElimination(view="plain", **options),
        plain_view=probed,
        epochs=EPOCHS,
        batch_size=batch_size,
        device="cpu",
        learning_rate=0.05,
    )
    training.fetched.clear()
    engine = job.steps.gi_frame.f_locals["training"].engine
    step = engine.step
    engine.step = lambda *args: (steps.append(1), step(*args))[1]

    trained = engine.train_steps

    def train_steps(plan, method):
        training.fetched.clear()
        loss = yield from trained(plan, method)
        fetched.append(list(training.fetched))
        return loss

    engine.train_steps = train_steps
    job.finish()
    return fetched, steps


@pytest.mark.parametrize(
    ("world", "n", "options", "fillers"),
    [
        (1, PRIME, {"batch_size": BATCH, "rho_max": 0.4}, 0),
        (3, PRIME, {"batch_size": BATCH, "rho_max": 0.4}, 0),
        (4, 67, {"batch_size": BATCH, "rho_max": 0.02}, 0),
        (4, 7, {"batch_size": 7, "rho_max": 0.8, "warmup": 1, "ramp_end": 2}, 2),
    ],
)
def test_every_kept_sample_trains_on_one_rank_and_all_take_equally_many_steps(processes, world, n, options, fillers):
    alone = fitted(n, **options)
    ranks = processes.run(world, _fetch, n, options)
    assert len({len(steps) for _, steps in ranks}) == 1
    for epoch, kept in enumerate(alone["kept"]):
        fetched = sorted(index for by_epoch, _ in ranks for index in by_epoch[epoch])
        expected = [index for index in range(n) if kept[index]]
        assert sorted(set(fetched)) == expected
        assert len(fetched) - len(expected) == (fillers if len(expected) < world else 0)


def _crossed(options: dict[str, Any]) -> dict[str, Any]:
    return fitted(**options)


def test_a_cross_fitted_probe_is_the_same_too(processes):
    options = {"probe": "cross:2", "epochs": 3, "warmup": 1}
    assert_same_run(processes.run(2, _crossed, options), fitted(**options))


def test_found_out_rates_agree_on_every_rank(processes):
    options = {"rho_max": "auto", "warmup": 2, "epochs": 5}
    runs = processes.run(2, _crossed, options)
    assert_same_run(runs, fitted(**options))
    assert runs[0]["summary"].noise_rate == runs[1]["summary"].noise_rate


def test_batch_statistics_differ_between_ranks_but_the_models_do_not(processes):
    runs = processes.run(2, _crossed, {"norm": True})
    for here, there in zip(runs[0]["buffers"], runs[1]["buffers"], strict=True):
        assert torch.equal(here, there)
    assert torch.equal(runs[0]["last"], runs[1]["last"])
    assert not torch.equal(runs[0]["last"], fitted(norm=True)["last"])


@pytest.mark.parametrize(
    "options",
    [{}, {"engine": "resident"}, {"n": 7, "batch_size": 7, "weight": torch.rand(7)}],
    ids=["eager", "resident", "uneven"],
)
def test_two_networks_that_choose_in_each_processs_share_stay_the_same_on_all(processes, options):
    options = {"method": CoTeaching(rho_max=0.4, ramp=1)} | options
    runs, alone = processes.run(3, _crossed, options), fitted(**options)
    for run in runs:
        assert torch.equal(run["last"], runs[0]["last"])
    assert torch.isfinite(runs[0]["last"]).all()
    # Where everybody is chosen, there is nothing to choose differently from one process.
    torch.testing.assert_close(runs[0]["weights"][0], alone["weights"][0], rtol=0, atol=1e-6)


def _dropout_masks() -> list[float]:
    drawn: list[float] = []

    class Drawn(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(6, 3).double()

        def forward(self, x: Tensor) -> Tensor:
            if self.training:
                drawn.append(float(torch.rand(())))
            return self.inner(x)

    x, y = clouds(40)
    stepe.fit(Drawn(), x, y, epochs=2, batch_size=16, method="plain", device="cpu")
    return drawn


def test_each_rank_draws_its_own_dropout(processes):
    first, second = processes.run(2, _dropout_masks)
    (alone,) = processes.run(1, _dropout_masks)
    assert first == alone
    assert not set(first) & set(second)


def _judged() -> float:
    x, y = clouds(53)
    return fitted(test=(x, y))["history"][-1]["test_accuracy"]


def test_held_out_samples_are_judged_together(processes):
    alone = fitted(test=clouds(53))["history"][-1]["test_accuracy"]
    assert processes.run(3, _judged) == [alone] * 3


# ---------------------------------------------------------------------------------------------------------------
# Files, resume


def _into_folder(folder: str, stop: int | None, resume: bool) -> dict[str, Any] | None:
    own = Path(folder) if dist.get_rank() == 0 else Path(folder, "of", "nobody")  # no file system is shared
    observers = (Interrupted(stop),) if stop is not None and dist.get_rank() == 0 else ()
    try:
        return fitted(run=own, resume=resume, observers=observers)
    except (KeyboardInterrupt, RuntimeError):  # the others lose the first rank
        if stop is None:
            raise
        return None


@pytest.mark.parametrize(("before", "after"), [(2, 3), (1, 2)])
def test_a_run_resumes_at_another_number_of_processes(processes, tmp_path, before, after):
    folder = tmp_path / "run"
    processes.run(before, _into_folder, str(folder), 2, False)
    assert len((folder / "history.jsonl").read_text().splitlines()) == 2
    runs = processes.run(after, _into_folder, str(folder), None, True)
    alone = fitted()
    assert runs[0]["kept"] == alone["kept"][2:]
    torch.testing.assert_close(runs[0]["last"], alone["last"], rtol=0, atol=1e-6)
    assert all(torch.equal(run["last"], runs[0]["last"]) for run in runs)
    assert [len(run["history"]) for run in runs] == [EPOCHS] * after
    rows = [json.loads(line) for line in (folder / "history.jsonl").read_text().splitlines()]
    assert [row["epoch"] for row in rows] == list(range(EPOCHS))
    assert not (folder / "of").exists()
    assert stepe.Run(folder).finished


# ---------------------------------------------------------------------------------------------------------------
# What goes wrong


def _small_batch() -> str:
    try:
        fitted(batch_size=1)
    except InputError as error:
        return str(error)
    return ""


def test_a_batch_smaller_than_the_number_of_processes_is_refused(processes):
    for told in processes.run(2, _small_batch):
        assert "a batch has 1 samples for 2 processes; batch_size counts those of all processes together" in told


def _fleet() -> str:
    x, y = clouds(20)
    try:
        run_together([begin(network(), x, y, method=StepwiseElimination(rho_max=0.1), epochs=1, device="cpu")])
    except InputError as error:
        return str(error)
    return ""


def test_a_fleet_is_refused(processes):
    assert all("a fleet runs in one process" in told for told in processes.run(2, _fleet))


DIES = """
import os, sys, torch, torch.distributed as dist, stepe
dist.init_process_group("gloo")
rank = dist.get_rank()

def forward(model, x):
    forward.calls += 1
    if rank == 1 and forward.calls == 20:
        {how}
    return model(x)

forward.calls = 0
x, y = torch.randn(101, 4), torch.arange(101) % 2
stepe.fit(torch.nn.Linear(4, 2), x, y, epochs=50, rho_max=0.3, batch_size=16, device="cpu", forward=forward)
print("finished")
"""


@pytest.mark.parametrize(
    ("how", "told"),
    [("os._exit(7)", "exitcode  : 7"), ("raise RuntimeError('a sample broke')", "a sample broke")],
    ids=["killed", "raised"],
)
def test_a_rank_that_dies_ends_the_job(tmp_path, how, told):
    script = tmp_path / "dies.py"
    script.write_text(DIES.format(how=how))
    done = torchrun(2, script)
    assert done.returncode != 0
    assert told in done.stderr
    assert "finished" not in done.stdout


def torchrun(world: int, script: Path) -> subprocess.CompletedProcess[str]:
    """Run a script in several processes; a job that hangs is an error after five minutes."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={world}", str(script)]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment, check=False)
