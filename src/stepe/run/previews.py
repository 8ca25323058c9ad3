"""What a sample looks like to a person, kept in the run folder: the source may have moved when somebody looks."""

import base64
import io
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from stepe.errors import RunError
from stepe.files import inside, replacing

if TYPE_CHECKING:
    import pandas as pd
    from PIL.Image import Image

FILE = "exhibits.parquet"
SIDE = 160
"""pixels of a picture's longer side, at most"""
LOSSLESS = 32
"""pictures up to this many pixels wide are kept as they are; in larger ones nobody misses a detail"""
TEXT, CELL, CELLS = 2_000, 300, 30
"""characters of a text and of a cell, and cells of a row, that are kept"""
PICTURED, WRITTEN, NEXT, EXAMPLES, ALL_EXAMPLES = 2_000, 20_000, 60, 6, 3_000
"""suspects with a picture and with a text or cells; next in line; clean examples of a class, and of all classes"""


@dataclass(frozen=True)
class Preview:
    """A sample as it is shown; features have nothing to show but their row."""

    row: int
    """position in the source the sample was read from"""
    picture: bytes | None = None
    """PNG or WebP"""
    text: str | None = None
    cells: dict[str, str] | None = None
    """a table's row, by column"""

    @property
    def empty(self) -> bool:
        """Whether there is nothing to look at."""
        return self.picture is None and self.text is None and self.cells is None


def shortened(text: str, most: int) -> str:
    """Cut a text to at most so many characters, and to such as can be written down.

    >>> shortened("a long story", 6)
    'a lon…'
    """
    cut = text if len(text) <= most else f"{text[: most - 1]}…"
    return cut.encode("utf-8", "replace").decode("utf-8")


def encoded(image: "Image", side: int = SIDE, quality: int = 80) -> bytes:
    """Make a picture the bytes of a small file."""
    buffer = io.BytesIO()
    if max(image.size) > side:
        image.thumbnail((side, side))
    if max(image.size) <= LOSSLESS:
        image.save(buffer, "PNG", optimize=True)
    else:
        image.save(buffer, "WEBP", quality=quality, method=4)
    return buffer.getvalue()


def media_type(picture: bytes) -> str:
    """Return what a browser is told about a picture's bytes."""
    return "image/png" if picture.startswith(b"\x89PNG") else "image/webp"


def data_uri(picture: bytes) -> str:
    """Write a picture inside a page or a file of tasks."""
    return f"data:{media_type(picture)};base64,{base64.b64encode(picture).decode()}"


def clean_examples(samples: "pd.DataFrame") -> "pd.DataFrame":
    """Choose the few training samples of each class whose labels can be trusted most, those first."""
    relabelled = samples["status"].isin(["accepted", "relabelled"])
    kept = samples[(samples["split"] == "train") & ~samples["dropped"] & ~samples["flagged"] & ~relabelled]
    by_class = kept.sort_values("suspicion", kind="stable").groupby("given_label", sort=False)
    return by_class.head(max(1, min(EXAMPLES, ALL_EXAMPLES // max(1, by_class.ngroups))))


def worth_showing(samples: "pd.DataFrame", *, pictured: bool) -> list[int]:
    """Choose training samples to show to people, by index: suspects, the next in line, and clean examples."""
    training = samples[samples["split"] == "train"].sort_values("rank")
    flagged = training["flagged"]
    chosen = [
        *training[flagged].head(PICTURED if pictured else WRITTEN).index,
        *training[~flagged].head(NEXT).index,
        *clean_examples(samples).index,
    ]
    return list(dict.fromkeys(int(index) for index in chosen))


def write_previews(folder: Path, previews: Iterable[Preview]) -> None:
    """Store previews in a run folder, unless there is nothing to see."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    seen = [preview for preview in previews if not preview.empty]
    if not seen:
        return
    table = pa.table(
        {
            "row": pa.array([preview.row for preview in seen], pa.int64()),
            "picture": pa.array([preview.picture for preview in seen], pa.binary()),
            "text": pa.array([preview.text for preview in seen], pa.string()),
            "cells": pa.array([_json(preview.cells) for preview in seen], pa.string()),
        }
    )
    with replacing(inside(folder, FILE)) as temporary:
        pq.write_table(table, temporary, compression="zstd")


def read_previews(folder: Path) -> dict[int, Preview]:
    """Read the previews of a run folder, by row; data that have none give none."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = inside(folder, FILE)
    if not path.exists():
        return {}
    try:
        with path.open("rb") as file:
            rows = pq.read_table(file).to_pylist()
    except (OSError, pa.ArrowException) as error:
        raise RunError(f"{path} cannot be read ({error}); make the run again") from error
    for row in rows:
        row["cells"] = None if row["cells"] is None else json.loads(row["cells"])
    return {row["row"]: Preview(**row) for row in rows}


def _json(cells: dict[str, str] | None) -> str | None:
    return None if cells is None else json.dumps(cells, ensure_ascii=False)
