"""What becomes of each row of the input: marks, drops and new labels, by what a run found and people decided."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from stepe.errors import RunError
from stepe.run.folder import RunFolder
from stepe.tables.cells import same_label
from stepe.tables.edit import Edit

if TYPE_CHECKING:
    import pandas as pd

Mode = Literal["mark", "drop", "relabel"]
MODES: tuple[Mode, ...] = ("mark", "drop", "relabel")
MARKS: dict[str, type] = {"stepe_flagged": bool, "stepe_suggested": str, "stepe_suspicion": float}
"""the columns that marking adds, and what is in them"""


MIN_CONFIDENCE = 0.9
"""suggestions that are right with less than this probability correct nothing by themselves"""


def verdicts(samples: "pd.DataFrame", min_confidence: float = MIN_CONFIDENCE) -> "pd.DataFrame":
    """Say what becomes of each sample: ``row``, ``action`` and ``label``.

    ``keep`` leaves the row alone; ``suspect`` is advice, which a mode marks, drops or relabels; ``relabel`` was decided
    by a person in a review, and is carried out in every mode. A review also clears a suspect (``kept``); one that
    people are not sure about stays one. The label of a suspect changes only where the suggestion is right with
    probability ``min_confidence`` at least; what a person has decided needs no such proof.
    """
    import pandas as pd

    given, suggested = _text(samples["given_label"]), _text(samples["suggested_label"])
    reviewed = _text(samples["reviewed_label"]) if "reviewed_label" in samples else pd.Series("", samples.index)
    status = samples["status"]
    settled = status.isin(["accepted", "relabelled"])
    suspect = samples["flagged"].astype(bool) & ~settled & (status != "kept")
    action = pd.Series("keep", samples.index).mask(suspect, "suspect").mask(settled, "relabel")
    better = suggested.mask(settled & (reviewed != ""), reviewed)
    # Nothing is sure that is not known (NaN), nor surer than that the label is wrong.
    surest = samples[["suggestion_confidence", "suspicion"]].astype(float).min(axis=1, skipna=False)
    sure = surest >= min_confidence
    # Without a prediction there is nothing to suggest: the label stays.
    label = given.mask(((suspect & sure) | settled) & (better != ""), better)
    return pd.DataFrame({"row": samples["row"], "action": action, "label": label})


def _text(column: "pd.Series[Any]") -> "pd.Series[str]":
    return column.astype(object).where(column.notna(), "").astype(str)


def own_samples(run: RunFolder, top: int | None = None, min_suspicion: float | None = None) -> "pd.DataFrame":
    """Return the samples of the input itself: held-out ones may come from another file, with rows of its own.

    Flagged are those of the run, or those that a person's cut flags.
    """
    samples = run.samples.assign(flagged=run.flags(top, min_suspicion))
    if run.request.test or samples["row"].duplicated().any():
        samples = samples[samples["split"] != "test"]
    return samples.sort_values("row", kind="stable").reset_index(drop=True)


class _Row(NamedTuple):
    given: str
    action: str
    label: str
    suggested: str
    suspicion: float


class Edits:
    """What happens to the rows of the input (``tables.edit.Edits``); refuses one that is not the run's.

    Args:
        run: a finished run.
        mode: what happens to suspects.
        path: the input; ``None`` if the labels are in no file.
        column: the column of the labels.
        min_confidence: how likely a suggestion has to be right to correct a label.
        top: so many are suspects, where a person decides that.
        min_suspicion: suspects are at least so suspicious, where a person decides that.
    """

    def __init__(
        self,
        run: RunFolder,
        mode: Mode,
        path: Path | None = None,
        column: str = "label",
        *,
        min_confidence: float = MIN_CONFIDENCE,
        top: int | None = None,
        min_suspicion: float | None = None,
    ):
        self.mode, self.path, self.column = mode, path, column
        arrays = path is not None and path.suffix.lower() == ".npz"
        marks = {name.removeprefix("stepe_") if arrays else name: kind for name, kind in MARKS.items()}
        self.added = marks if mode == "mark" else {}
        self._asked = 0
        samples = own_samples(run, top, min_suspicion)
        found = verdicts(samples, min_confidence)
        given = _text(samples["given_label"])
        self.samples = samples.assign(given_label=given)
        changes = found["label"] != given
        self.corrected = int(changes.sum())
        """how many labels become others, where suspects are relabelled"""
        self.left = int((samples["flagged"].astype(bool) & ~changes).sum())
        """how many flagged labels then stay: nobody is sure of another, or somebody of this one"""
        suspicion = samples["suspicion"].astype(float).round(6)
        # A row without a label is no suspect, but what it might be is worth saying.
        suggested = _text(samples["suggested_label"])
        told = ((found["action"] == "suspect") & (suggested != given)) | (given == "")
        suggested = suggested.where(told, "")
        columns = (given, found["action"], found["label"], suggested, suspicion)
        rows = zip(*columns, strict=True)
        self._rows = {row: _Row(*values) for row, values in zip(found["row"].tolist(), rows, strict=True)}

    def of(self, row: int, found: object) -> Edit:
        """Say what happens to a row in which that label was found."""
        self._asked = row + 1
        known = self._rows.get(row)
        if known is None:
            return Edit(added=(None, "", None) if self.added else ())
        if known.given and not same_label(found, known.given):
            raise self.changed(f"row {row} (counted from 0) has the label {str(found)!r} and had {known.given!r}")
        suspect = known.action == "suspect"
        if suspect and self.mode == "drop":
            return Edit(dropped=True)
        suspicion = None if math.isnan(known.suspicion) else float(known.suspicion)
        return Edit(
            label=None if (suspect and self.mode == "mark") or known.label == known.given else known.label,
            added=(suspect, known.suggested, suspicion) if self.added else (),
        )

    def check_complete(self) -> None:
        """Refuse an input that had no more rows than were asked for, if the run had."""
        if self._rows and self._asked <= (last := max(self._rows)):
            raise self.changed(f"it has {self._asked} rows and had at least {last + 1}")

    def changed(self, what: str) -> RunError:
        """Make the error that says that the input is another one by now."""
        return RunError(f"{self.path} has changed since the run: {what}. Put the old file back, or clean the new one")
