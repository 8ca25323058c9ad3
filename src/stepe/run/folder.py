"""The run folder, read: what a run left on disk.

``config.json``, ``history.jsonl`` (a line an epoch), ``checkpoint/``, ``trace.bin``, and at the end
``samples.parquet`` (every row), ``belief.npz``, ``issues.csv`` (the flagged ones, ranked), ``model.safetensors`` and
``summary.json``, whose presence says that the run is finished. ``report.html`` is made from these. What people decide
about the labels goes to ``decisions.sqlite``.
"""

import hashlib
import json
import shlex
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from stepe.beliefs.belief import Belief
from stepe.beliefs.cut import cut
from stepe.beliefs.names import class_name
from stepe.errors import RunError
from stepe.files import inside
from stepe.run.decisions import Decisions, Key
from stepe.run.previews import Preview, clean_examples, read_previews
from stepe.run.record import Config, Request, Summary
from stepe.run.saved_belief import belief_of_tables, read_belief
from stepe.run.trace import Trace

if TYPE_CHECKING:
    import pandas as pd

RUNS = Path("runs")
Row = dict[str, Any]
"""one line of the history"""


class RunFolder:
    """A run on disk, to be read; :class:`stepe.Run` can also predict and write its report."""

    def __init__(self, path: str | Path):
        self.path = Path(path)
        self.config = Config.read(self.path)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.path)!r})"

    def file(self, *names: str) -> Path:
        """Return the path of something in the folder, to be read or written; a link that leads out of it is refused."""
        return inside(self.path, *names)

    @property
    def finished(self) -> bool:
        """Whether the run came to its end."""
        return self.file("summary.json").exists()

    @property
    def digest(self) -> str:
        """What tells this run from any other, wherever its folder lies: browsers keep decisions under it."""
        return hashlib.sha256(self.file("config.json").read_bytes()).hexdigest()[:16]

    @property
    def request(self) -> Request:
        """What was asked for; of a run that ``stepe clean`` did not make, the defaults."""
        return self.config.request or Request()

    @property
    def method(self) -> str:
        """The name of the method."""
        return self.config.fit.method

    @property
    def method_summary(self) -> str:
        """The method in a line; nothing for one that nobody described."""
        return self.config.method.summary

    @property
    def knows_clean_labels(self) -> bool:
        """Whether the method trained on the clean labels, so that its losses do not tell where given ones are wrong."""
        return self.config.method.trains_on == "clean" or self.method == "oracle"

    @property
    def class_names(self) -> list[str]:
        """The names of the classes, in the order of the model's outputs."""
        return self.config.class_names

    @cached_property
    def history(self) -> list[Row]:
        """One row an epoch; a line torn by a kill is left out."""
        path = self.file("history.jsonl")
        rows = []
        for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
            try:
                rows.append(json.loads(line))
            except ValueError:
                break
        return rows

    @cached_property
    def summary(self) -> Summary:
        """The run in a few numbers."""
        self.check_finished()
        return Summary.read(self.path)

    @cached_property
    def samples(self) -> "pd.DataFrame":
        """Every sample, in the order of the source's splits.

        What people have decided by the time it is read stands in ``status`` and ``reviewed_label``.
        """
        import pandas as pd

        self.check_finished()
        try:
            with self.file("samples.parquet").open("rb") as file:  # a folder of that name could hold links
                samples = pd.read_parquet(file)
        except (OSError, ValueError) as error:  # pyarrow's own errors are ValueErrors
            raise RunError(f"{self.path / 'samples.parquet'} cannot be read ({error}); make the run again") from error
        decided = self.decisions.current()
        if not decided:
            return samples
        found = [decided.get(Key(*key)) for key in zip(samples["split"], samples["row"].tolist(), strict=True)]
        return samples.assign(
            status=[
                before if each is None else each.verdict for before, each in zip(samples["status"], found, strict=True)
            ],
            reviewed_label=["" if each is None else each.label or "" for each in found],
        )

    @cached_property
    def belief(self) -> Belief:
        """What the run holds of the training labels; rows follow their samples."""
        self.check_finished()
        return read_belief(self.path) or belief_of_tables(self.config, self.summary, self.samples)

    @property
    def decisions(self) -> Decisions:
        """What people have decided about the labels."""
        return Decisions(self.path)

    @property
    def issues(self) -> "pd.DataFrame":
        """The flagged samples, most suspicious first."""
        flagged = self.samples[self.samples["flagged"]]
        return flagged.sort_values("rank").reset_index(drop=True)

    def flags(self, top: int | None = None, min_suspicion: float | None = None) -> "pd.Series[bool]":
        """Say of every sample whether it is flagged: by the run or, where a person cuts elsewhere, by that.

        Held-out samples never are by such a cut, and nor is a label that was checked, which is not suspicious at all.
        """
        samples = self.samples
        if top is None and min_suspicion is None:
            return samples["flagged"].astype(bool)
        judged = samples["suspicion"].where((samples["split"] == "train") & (samples["suspicion"] > 0))
        return judged.notna() & cut(judged, top=top, min_suspicion=min_suspicion)

    def suspects(self, top: int | None = None, min_suspicion: float | None = None) -> "pd.DataFrame":
        """Return the samples that are suspects if a person cuts elsewhere (:func:`stepe.beliefs.cut.cut`).

        Most suspicious first, with the columns of :attr:`issues`; without a number, these are the suspects.
        """
        if top is None and min_suspicion is None:
            return self.issues
        chosen = self.samples[self.flags(top, min_suspicion)].assign(flagged=True)
        ranked = chosen.sort_values("suspicion", ascending=False, kind="stable").reset_index(drop=True)
        return ranked.assign(rank=range(1, len(ranked) + 1))

    @property
    def others(self) -> list[Self]:
        """The runs this one was compared with."""
        folder = self.file("compare")
        paths = [self.file("compare", path.name) for path in sorted(folder.iterdir())] if folder.is_dir() else []
        return [type(self)(path) for path in paths if (path / "summary.json").exists()]

    @cached_property
    def previews(self) -> dict[int, Preview]:
        """What people are shown of the suspects and of clean examples, by row of the training data."""
        return read_previews(self.path)

    @cached_property
    def _clean_examples(self) -> dict[str, list[int]]:
        found = clean_examples(self.samples).groupby("given_label", sort=False)["row"]
        return {str(name): [int(row) for row in rows] for name, rows in found}

    def examples(self, class_name: str) -> list[int]:
        """Return the rows of a few training samples of a class whose labels can be trusted most, those first."""
        return self._clean_examples.get(class_name, [])

    def trace(self, index: int) -> list[Row]:
        """Tell what happened to one training sample: loss, prediction and whether it was dropped, an entry an epoch."""
        class_names = self.class_names
        entries = Trace(self.file("trace.bin"), self.config.fit.samples).sample(index)
        return [
            {
                "epoch": epoch,
                "loss": None if entry["loss"] != entry["loss"] else float(entry["loss"]),
                "prediction": class_name(int(entry["prediction"]), class_names) or None,
                "dropped": bool(entry["dropped"]),
            }
            for epoch, entry in enumerate(entries)
        ]

    def check_finished(self) -> None:
        """Refuse a run that did not come to its end, and say how to continue it."""
        if not self.finished:
            command = f"stepe clean --resume {shlex.quote(str(self.path))}"
            raise RunError(f"{self.path} is not finished; continue it with `{command}`")


def latest_run(runs: Path = RUNS) -> Path:
    """Find the run that was started last."""
    found = [path.parent for path in runs.glob("*/config.json")]
    if not found:
        raise RunError(f"there is no run under {runs}/ yet; make one with `stepe clean digits`, or name a run folder")
    return max(found, key=lambda path: (path / "config.json").stat().st_mtime)
