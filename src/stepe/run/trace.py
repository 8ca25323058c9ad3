"""The trace: every sample's loss, prediction and whether it was dropped, probe by probe, for ``stepe explain``.

One fixed-size row an epoch, appended to a file, so that one sample's column can be read without the rest.
"""

import os
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from stepe.files import reporting

ENTRY = np.dtype([("loss", "<f2"), ("prediction", "<i4"), ("dropped", "?")])
# A trace is a convenience; past this size it would be a burden.
LARGEST = 2**30


class Trace:
    """The trace file of a run of ``n`` samples."""

    def __init__(self, path: Path, n: int):
        self.path, self.n = path, n

    def fits(self, epochs: int) -> bool:
        """Say whether a whole run's trace stays within bounds."""
        return self.n * (epochs + 1) * ENTRY.itemsize <= LARGEST

    def append(
        self,
        dropped: npt.NDArray[np.bool_],
        loss: npt.NDArray[np.floating[Any]] | None = None,
        prediction: npt.NDArray[np.integer[Any]] | None = None,
    ) -> None:
        """Add an epoch; without a fresh probe there is no loss and no prediction to tell of."""
        row = np.empty(self.n, ENTRY)
        largest = np.finfo(np.float16).max
        row["loss"] = np.nan if loss is None else np.clip(loss, -largest, largest)
        row["prediction"] = -1 if prediction is None else prediction
        row["dropped"] = dropped
        with reporting(self.path), self.path.open("ab") as file:
            file.write(row.tobytes())
            file.flush()
            os.fsync(file.fileno())

    def truncate(self, epochs: int) -> None:
        """Forget everything after the first ``epochs`` rows."""
        size = epochs * self.n * ENTRY.itemsize
        if self.path.exists() and self.path.stat().st_size > size:
            with reporting(self.path):
                os.truncate(self.path, size)

    def sample(self, index: int) -> npt.NDArray[np.void]:
        """Read one sample's entries, one an epoch; none at all where there is no trace."""
        rows = self._rows()
        if rows == 0:
            return np.empty(0, ENTRY)
        table = np.memmap(self.path, dtype=ENTRY, mode="r", shape=(rows, self.n))
        return np.array(table[:, index])

    def last(self) -> npt.NDArray[np.void]:
        """Read every sample's latest entry; none at all where there is no trace."""
        rows = self._rows()
        if rows == 0:
            return np.empty(0, ENTRY)
        return np.fromfile(self.path, ENTRY, count=self.n, offset=(rows - 1) * self.n * ENTRY.itemsize)

    def _rows(self) -> int:
        return self.path.stat().st_size // (self.n * ENTRY.itemsize) if self.path.exists() else 0
