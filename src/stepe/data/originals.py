"""Samples as they were found, before they were encoded: what people are shown."""

import os
import warnings
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stepe.data.images import Picture, thumbnail
from stepe.run.previews import CELL, CELLS, SIDE, TEXT, Preview, encoded, shortened
from stepe.tables.cells import as_text

if TYPE_CHECKING:
    import pandas as pd

HELD_BYTES = 1 << 30
"""bytes of pictures in memory; more of them are not kept for the sake of a thumbnail"""


@dataclass(frozen=True)
class Originals:
    """Pictures, texts or a table, by the kind of data; each is indexed by row."""

    pictures: Sequence[Picture] | None = None
    texts: Sequence[str] | None = None
    table: "pd.DataFrame | None" = None

    @classmethod
    def of_pictures(cls, pictures: Sequence[Picture]) -> "Originals":
        """Keep the paths of pictures, or their contents, unless these take too much memory."""
        held = sum(len(picture) for picture in pictures if isinstance(picture, bytes))
        return cls(pictures=pictures if held <= HELD_BYTES else None)

    def show(self, rows: Sequence[int]) -> list[Preview]:
        """Make previews of some samples."""
        # Whatever is odd about a picture was said when it was read.
        with warnings.catch_warnings(action="ignore"), ThreadPoolExecutor(os.cpu_count()) as pool:
            return list(pool.map(self._show, rows))

    def _show(self, row: int) -> Preview:
        return Preview(
            row,
            picture=None if self.pictures is None else _thumbnail(self.pictures[row]),
            text=None if self.texts is None else shortened(self.texts[row], TEXT),
            cells=None if self.table is None else _cells(self.table, row),
        )


def _thumbnail(picture: Picture) -> bytes | None:
    """Make a small version of a picture, if it is still there."""
    try:
        return encoded(thumbnail(picture, SIDE))
    except Exception:  # decoders raise whatever they stumble over
        return None


def _cells(table: "pd.DataFrame", row: int) -> dict[str, str]:
    shown = table.columns[:CELLS]
    return {
        shortened(column, CELL): shortened(as_text(cell), CELL)
        for column, cell in zip(shown, table.iloc[row, :CELLS], strict=True)
    }
