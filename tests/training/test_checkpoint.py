"""A checkpoint is whole or not there, is checked before it is used, and brings everything back."""

import errno
import json
import os
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from torch import nn
from torch.optim import lr_scheduler

import stepe
from interrupted import StopHereError, Stopper
from stepe import RunError
from stepe.files import TEMPORARY
from stepe.training import checkpoint
from stepe.training.building import Result

EPOCHS, STOP = 6, 4


@pytest.fixture
def train(blobs, make_model):
    """Train blobs in a folder; ``stop`` interrupts after so many epochs."""

    def train(run: Path, stop: int | None = None, model: nn.Module | None = None, **options) -> Result | None:
        settings = {"epochs": EPOCHS, "batch_size": 16, "device": "cpu", "rho_max": 0.3, "resume": True} | options
        observers = () if stop is None else (Stopper(stop),)
        try:
            return stepe.fit(model or make_model(), blobs.x, blobs.given, run=run, observers=observers, **settings)
        except StopHereError:
            return None

    return train


@pytest.fixture
def outcome(bits):
    """Everything a run leaves that must not depend on interruptions."""

    def read(run: Path, result: Result) -> dict[str, object]:
        ledger = {name: column.numpy().tobytes() for name, column in result.ledger.state_dict().items()}
        history = [
            {key: value for key, value in json.loads(line).items() if not key.endswith("seconds")}
            for line in (run / "history.jsonl").read_text().splitlines()
        ]
        files = {name: (run / name).read_bytes() for name in ("model.safetensors", "samples.parquet", "issues.csv")}
        return {"bits": bits(result.model), "history": history, **ledger, **files}

    return read


_once: dict[str, Any] = {}


@pytest.fixture
def uninterrupted(train, outcome, tmp_path_factory) -> dict[str, object]:
    if "outcome" not in _once:
        run = tmp_path_factory.mktemp("uninterrupted") / "run"
        _once["outcome"] = outcome(run, train(run))
    return _once["outcome"]


@pytest.fixture
def stopped(train, tmp_path, tmp_path_factory) -> Path:
    """A run that was interrupted after ``STOP`` epochs."""
    if "run" not in _once:
        _once["run"] = tmp_path_factory.mktemp("stopped") / "run"
        train(_once["run"], stop=STOP)
    return shutil.copytree(_once["run"], tmp_path / "run")


def folders(run: Path) -> list[str]:
    return sorted(entry.name for entry in (run / "checkpoint").iterdir())


def newest(run: Path) -> Path:
    return max((run / "checkpoint").iterdir())


def truncate(file: Path) -> None:
    os.truncate(file, file.stat().st_size // 2)


def empty(file: Path) -> None:
    os.truncate(file, 0)


def flip_a_byte(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


FILES = ("model.safetensors", "ledger.npz", "state.pt", "state.json", "manifest.json")


def test_the_last_two_are_kept(train, tmp_path):
    train(tmp_path / "run")
    assert folders(tmp_path / "run") == ["epoch-00005", "epoch-00006"]
    assert sorted(entry.name for entry in newest(tmp_path / "run").iterdir()) == sorted(FILES)


def test_a_run_has_a_checkpoint_before_its_first_epoch(train, tmp_path):
    train(tmp_path / "run", stop=1)
    assert folders(tmp_path / "run") == ["epoch-00000", "epoch-00001"]


def test_checkpoints_come_every_k_epochs_and_at_the_end(train, tmp_path, outcome, uninterrupted):
    run = tmp_path / "run"
    train(run, stop=5, checkpoint_every=4)
    assert folders(run) == ["epoch-00000", "epoch-00004"]
    assert len((run / "history.jsonl").read_text().splitlines()) == 5
    result = train(run, checkpoint_every=4)
    assert folders(run) == ["epoch-00004", "epoch-00006"]
    assert outcome(run, result) == uninterrupted


def test_a_checkpoint_brings_everything_back(train, stopped, make_model, outcome, uninterrupted):
    resumed = train(stopped, model=make_model(seed=9))
    assert outcome(stopped, resumed) == uninterrupted


SCHEDULERS = {
    "MultiStepLR": lambda optimizer: lr_scheduler.MultiStepLR(optimizer, [2, 5]),
    "OneCycleLR": lambda optimizer: lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=EPOCHS),
    "LambdaLR": lambda optimizer: lr_scheduler.LambdaLR(optimizer, lambda epoch: 0.8**epoch),
    "SequentialLR": lambda optimizer: lr_scheduler.SequentialLR(
        optimizer,
        [lr_scheduler.ConstantLR(optimizer, 0.1, 2), lr_scheduler.ExponentialLR(optimizer, 0.9)],
        milestones=[2],
    ),
}
STATES = {
    "Adam": {"optimizer": partial(torch.optim.Adam, lr=0.01)},
    "Adafactor": {"optimizer": partial(torch.optim.Adafactor, lr=0.01)},
    "rate in numpy's numbers": {"rate_shape": lambda progress: np.cos(progress), "learning_rate": np.float64(0.1)},
    "options in numpy's numbers": {"noise_rate": np.float32(0.3), "seed": np.int64(3), "rho_max": None},
    "truncation": {"method": "truncation"},
    "sticky, with memory": {"sticky": True, "memory": 0.5},
    **{name: {"scheduler": scheduler} for name, scheduler in SCHEDULERS.items()},
}


@pytest.mark.parametrize("options", STATES.values(), ids=STATES.keys())
def test_whatever_has_a_state_is_resumed_bit_by_bit(train, tmp_path, make_model, outcome, options):
    whole = outcome(tmp_path / "whole", train(tmp_path / "whole", **options))
    train(tmp_path / "run", stop=STOP, **options)
    resumed = train(tmp_path / "run", model=make_model(seed=9), **options)
    assert outcome(tmp_path / "run", resumed) == whole


def test_tied_weights_are_saved_once_and_stay_tied(train, blobs, tmp_path, bits):
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.embed, self.head = nn.Linear(6, 6), nn.Linear(6, 6)
            self.head.weight = self.embed.weight

        def forward(self, x):
            return self.head(torch.relu(self.embed(x)))

    whole = train(tmp_path / "whole", model=Tied())
    train(tmp_path / "run", stop=STOP, model=Tied())
    resumed = train(tmp_path / "run", model=Tied())
    assert resumed.model.head.weight is resumed.model.embed.weight
    assert bits(resumed.model) == bits(whole.model)


@pytest.mark.parametrize("damage", [truncate, empty, flip_a_byte, Path.unlink])
@pytest.mark.parametrize("name", FILES)
def test_a_damaged_checkpoint_falls_back_to_the_one_before(
    train, stopped, make_model, outcome, uninterrupted, name, damage
):
    damage(newest(stopped) / name)
    with pytest.warns(UserWarning, match=r"checkpoint .*epoch-00004 is damaged .*; going back to the one before"):
        resumed = train(stopped, model=make_model(seed=9))
    assert outcome(stopped, resumed) == uninterrupted
    assert folders(stopped) == ["epoch-00005", "epoch-00006"]


def test_an_empty_checkpoint_folder_falls_back_too(train, stopped, outcome, uninterrupted):
    for file in newest(stopped).iterdir():
        file.unlink()
    with pytest.warns(UserWarning, match="damaged"):
        resumed = train(stopped)
    assert outcome(stopped, resumed) == uninterrupted


def test_a_manifest_that_lists_nothing_vouches_for_nothing(train, stopped, outcome, uninterrupted):
    (newest(stopped) / "manifest.json").write_text("{}")
    truncate(newest(stopped) / "model.safetensors")
    with pytest.warns(UserWarning, match="damaged"):
        resumed = train(stopped)
    assert outcome(stopped, resumed) == uninterrupted


def test_when_every_checkpoint_is_damaged_the_error_says_what_to_do(train, stopped):
    for folder in (stopped / "checkpoint").iterdir():
        truncate(folder / "state.pt")
    before = (stopped / "history.jsonl").read_bytes()
    with (
        pytest.warns(UserWarning, match="damaged"),
        pytest.raises(RunError, match=r"every checkpoint in .*checkpoint is damaged; start the run again in a new"),
    ):
        train(stopped)
    assert (stopped / "history.jsonl").read_bytes() == before


def test_a_run_killed_before_its_first_checkpoint_starts_anew(train, tmp_path, outcome, uninterrupted):
    run = tmp_path / "run"
    train(run, stop=1)
    shutil.rmtree(run / "checkpoint")
    resumed = train(run)
    assert outcome(run, resumed) == uninterrupted


def test_half_written_checkpoints_are_swept_away(train, stopped):
    shutil.copytree(newest(stopped), stopped / "checkpoint" / f"{TEMPORARY}abc")
    (stopped / "checkpoint" / f"{TEMPORARY}abc" / "manifest.json").unlink()
    train(stopped)
    assert folders(stopped) == ["epoch-00005", "epoch-00006"]


def test_weights_are_readable_without_stepe(train, tmp_path):
    result = train(tmp_path / "run")
    weights = safetensors.torch.load_file(newest(tmp_path / "run") / "model.safetensors")
    assert weights.keys() == result.model.state_dict().keys()


def test_nothing_in_a_checkpoint_is_a_pickle_that_runs_code(train, stopped, tmp_path):
    class Payload:
        def __reduce__(self):
            return (Path.touch, (tmp_path / "owned",))

    torch.save({"engine": Payload(), "method": {}}, newest(stopped) / "state.pt")
    digests = json.loads((newest(stopped) / "manifest.json").read_text())
    digests["state.pt"] = checkpoint._digest(newest(stopped) / "state.pt")
    (newest(stopped) / "manifest.json").write_text(json.dumps(digests))
    with pytest.raises(RunError, match="was not written by this version of stepe"):
        train(stopped)
    assert not (tmp_path / "owned").exists()


@pytest.mark.parametrize(
    "writer",
    [
        "stepe.training.checkpoint.np.savez",
        "stepe.training.checkpoint.save_weights",
        "os.fsync",
        "pathlib.Path.write_bytes",
    ],
)
def test_a_full_disk_names_the_checkpoint_and_leaves_the_last_one_whole(train, stopped, monkeypatch, writer):
    def refuse(*args, **kwargs):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    kept = folders(stopped)
    with monkeypatch.context() as patched:
        patched.setattr(writer, refuse)
        with pytest.raises(RunError, match=r"cannot write .*: No space left on device"):
            train(stopped)
    assert folders(stopped) == kept
    assert not list(stopped.rglob(f"{TEMPORARY}*"))
    assert train(stopped).training.epoch == EPOCHS


def test_weights_the_disk_refuses_are_an_operating_system_error(tmp_path):
    with pytest.raises(OSError, match="directory"):
        checkpoint.save_weights(nn.Linear(2, 2), tmp_path / "missing" / "model.safetensors")
