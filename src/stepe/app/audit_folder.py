"""The run folder of an audit, written as the rounds end, so that a killed one goes on where it was."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import numpy.typing as npt

from stepe.audit.rounds import ROUNDS, Round
from stepe.errors import InputError, RunError
from stepe.files import TEMPORARY, inside, plain, replacing, reporting, sweep, write_json, write_text
from stepe.judges.base import Floats, View
from stepe.run.lock import LOCK, OWNER
from stepe.run.paths import remember
from stepe.run.record import Config, Fit
from stepe.run.trace import Trace

Labels = npt.NDArray[np.int64]
CHECKPOINT = "checkpoint"


class AuditFolder:
    """What an audit leaves behind while it lasts: its configuration, rounds, history and trace."""

    def __init__(self, path: Path, labels: Labels, learned: int):
        self.path, self._labels, self._learned = path, labels, learned
        self._trace = Trace(inside(path, "trace.bin"), learned)

    def begin(self, config: Config, files: dict[str, str], *, resume: bool) -> list[Round]:
        """Start the folder, or return the rounds that an interrupted audit has made."""
        with reporting(self.path):
            names = [entry.name for entry in self.path.iterdir()]
        occupied = not all(name.startswith(TEMPORARY) or name in (LOCK, OWNER) for name in names)
        if occupied and not resume:
            raise InputError(f"{self.path} is not empty; choose another folder, or resume the run that is in it")
        sweep(self.path)
        if (inside(self.path, "config.json")).exists():
            saved = Config.read(self.path)
            saved.check_resumable(self.path)
            _check_same(saved.fit, config.fit, self.path)
        elif occupied:
            raise RunError(f"{self.path} holds no run (no config.json); nothing to resume")
        else:
            write_json(inside(self.path, "config.json"), config.to_json(), indent=1)
            remember(self.path)
        for name, content in files.items():
            write_text(inside(self.path, name), content)
        done = self._rounds()
        write_text(inside(self.path, "history.jsonl"), "")
        self._trace.truncate(0)
        for number, each in enumerate(done):
            self._tell(number, each)
        return done

    def add(self, number: int, made: Round) -> None:
        """Save a round: first all that it takes to go on from it, then its line of the history."""
        with reporting(self.path):
            inside(self.path, CHECKPOINT).mkdir(exist_ok=True)
        with replacing(inside(self.path, CHECKPOINT, f"round-{number}.npz")) as temporary:
            np.savez(
                temporary,
                probability=made.view.probability,
                settings=np.array(json.dumps(dict(made.view.settings))),
                kept=made.kept,
                learned=made.learned,
                rate=made.rate,
            )
        self._tell(number, made)

    def end(self, p_right: Floats, suggestion: Labels) -> None:
        """Tell the trace what is believed in the end, and drop what only a resumed audit would need."""
        self._append(np.zeros(self._learned, dtype=np.bool_), p_right, suggestion)

    def forget_rounds(self) -> None:
        """Remove the saved rounds of an audit that is finished."""
        folder = inside(self.path, CHECKPOINT)
        for path in folder.glob("round-*.npz"):
            path.unlink()
        if folder.is_dir():
            folder.rmdir()

    def _rounds(self) -> list[Round]:
        found: list[Round] = []
        while (path := inside(self.path, CHECKPOINT, f"round-{len(found)}.npz")).exists():
            try:
                with np.load(path, allow_pickle=False) as saved:
                    view = View(saved["probability"], json.loads(str(saved["settings"])))
                    found.append(Round(view, saved["kept"], saved["learned"], float(saved["rate"])))
            except (OSError, ValueError, KeyError, EOFError, BadZipFile) as error:
                raise RunError(f"{path} cannot be read ({error}); remove it, and the round is made again") from error
        return found

    def _tell(self, number: int, made: Round) -> None:
        line = json.dumps(plain(made.row(number)), allow_nan=False)
        path = inside(self.path, "history.jsonl")
        with reporting(path), path.open("a", encoding="utf-8") as file:
            file.write(f"{line}\n")
        own = made.view.probability[np.arange(len(self._labels)), self._labels]
        self._append((made.learned & ~made.kept)[: self._learned], own, made.view.probability.argmax(1))

    def _append(self, dropped: npt.NDArray[np.bool_], likely: Floats, prediction: Labels) -> None:
        if self._trace.fits(ROUNDS):
            n = self._learned
            loss = -np.log(np.maximum(likely[:n].astype(np.float64), np.finfo(np.float32).tiny))
            self._trace.append(dropped, loss, prediction[:n])


def digest(*arrays: Any) -> str:
    """Return a short name for the content of some arrays: other data is noticed."""
    found = hashlib.sha256()
    for array in arrays:
        if array is not None:
            whole = np.ascontiguousarray(array)
        found.update(whole.data.cast("B") if whole.size else b"")
    return found.hexdigest()[:16]


def _check_same(saved: Fit, now: Fit, path: Path) -> None:
    before, after = plain(asdict(saved)), plain(asdict(now))
    different: Sequence[str] = [
        f"{key} was {before[key]!r} and is now {after[key]!r}" for key in sorted(after) if before[key] != after[key]
    ]
    if different:
        raise RunError(
            f"{path} was started with another configuration: {'; '.join(different)}. "
            "Resume it as it was, or start a new run in another folder"
        )
