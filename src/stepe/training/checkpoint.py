"""Checkpoints: a folder an epoch, whole or not there, checked against its own digests before it is used.

``model.safetensors``, ``ledger.npz``, ``state.pt`` (optimizer, rate, method and judges, read back with
``weights_only``), ``state.json`` (the epoch and the history so far) and ``manifest.json`` with the SHA-256 of each.
Random states are not among it: draws are functions of their names, not of earlier draws.
"""

import hashlib
import io
import json
import pickle
import shutil
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import nn

from stepe.errors import RunError
from stepe.files import inside, plain, replacing_folder, reporting, sweep
from stepe.training.building import Training

KEPT = 2
FILES = {"model.safetensors", "ledger.npz", "state.pt", "state.json"}
MANIFEST = "manifest.json"
PARTS = ("engine", "method", "prober")


def save(folder: Path, training: Training) -> None:
    """Write the checkpoint of ``training.epoch`` and let go of all but the last two."""
    with reporting(folder):
        folder.mkdir(exist_ok=True)
    with replacing_folder(inside(folder, f"epoch-{training.epoch:05d}")) as new:
        save_weights(training.model, new / "model.safetensors")
        np.savez(new / "ledger.npz", **{name: col.cpu().numpy() for name, col in training.ledger.state_dict().items()})  # type: ignore[arg-type]
        # Through memory: on a full disk, torch's own writer says nothing that helps.
        content = io.BytesIO()
        parts = {name: getattr(training, name).state_dict() for name in PARTS}
        torch.save(plain(parts), content)
        (new / "state.pt").write_bytes(content.getbuffer())
        state = plain({"epoch": training.epoch, "history": training.history})
        (new / "state.json").write_text(json.dumps(state), encoding="utf-8")
        digests = {file.name: _digest(file) for file in sorted(new.iterdir())}
        (new / MANIFEST).write_text(json.dumps(digests, indent=1), encoding="utf-8")
    _let_go(folder)


def save_weights(model: nn.Module, path: Path) -> None:
    """Write a model's weights; what the disk refuses is an ``OSError``, as everywhere else."""
    try:
        safetensors.torch.save_model(model, str(path))
    except SafetensorError as error:
        raise OSError(str(error)) from error


def restore(folder: Path, training: Training) -> bool:
    """Take up the newest whole checkpoint; ``False`` if none was ever written."""
    saved = _saved(folder)
    for path in reversed(saved):
        if (problem := _damage(path)) is None:
            try:
                _load(path, training)
            except (pickle.UnpicklingError, SafetensorError, KeyError, ValueError) as error:
                raise RunError(f"checkpoint {path} was not written by this version of stepe: {error}") from error
            _let_go(folder)
            return True
        warnings.warn(f"checkpoint {path} is damaged ({problem}); going back to the one before", stacklevel=2)
    if saved:
        raise RunError(f"every checkpoint in {folder} is damaged; start the run again in a new folder")
    return False


def _let_go(folder: Path) -> None:
    for old in _saved(folder)[:-KEPT]:
        shutil.rmtree(old, ignore_errors=True)


def _load(path: Path, training: Training) -> None:
    safetensors.torch.load_model(training.model, str(path / "model.safetensors"))
    with np.load(path / "ledger.npz", allow_pickle=False) as arrays:
        training.ledger.load_state_dict({name: torch.from_numpy(arrays[name]) for name in arrays.files})
    state: dict[str, Any] = torch.load(path / "state.pt", weights_only=True, map_location="cpu")
    for name in PARTS:
        getattr(training, name).load_state_dict(state[name])
    progress = json.loads((path / "state.json").read_text(encoding="utf-8"))
    training.session.history = progress["history"]


def _saved(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    sweep(folder)
    found = [inside(folder, path.name) for path in folder.glob("epoch-*")]
    return sorted(found, key=lambda path: (len(path.name), path.name))


def _damage(path: Path) -> str | None:
    """Say what is wrong with a checkpoint, if anything."""
    try:
        digests = json.loads(inside(path, MANIFEST).read_text(encoding="utf-8"))
        if digests.keys() != FILES:
            return f"{MANIFEST} lists {', '.join(digests) or 'nothing'}"
        return next(
            (f"{name} has changed" for name, digest in digests.items() if _digest(inside(path, name)) != digest), None
        )
    except (OSError, ValueError, AttributeError) as error:
        return str(error) or type(error).__name__


def _digest(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()
