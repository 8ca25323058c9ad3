"""A finished run without a training: the few files that a review needs."""

import io
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
from PIL import Image

from stepe import Run
from stepe.run.previews import Preview, write_previews

NASTY = ("<img src=x onerror=alert(1)>", "=1+1", "שלום עולם", "very long " * 12)
CLASSES = ["cat", "dog", "cow", *NASTY, *map(str, range(7))]


def make_run(
    folder: Path,
    suspects: int = 60,
    *,
    kind: str = "images",
    classes: list[str] | None = None,
    ids: Callable[[int], str] = "item-{}".format,
    seed: int = 0,
) -> Run:
    """``suspects`` flagged samples, as many that are not, ten held out; every third of the flags is of one pair."""
    classes = CLASSES if classes is None else classes
    folder.mkdir(parents=True)
    n = 2 * suspects + 10
    draw = np.random.default_rng(seed)
    given = draw.integers(0, len(classes), n)
    suggested = (given + draw.integers(1, len(classes), n)) % len(classes)
    given[:suspects:3], suggested[:suspects:3] = 0, 1
    flagged = np.arange(n) < suspects
    samples = pd.DataFrame(
        {
            "rank": np.arange(1, n + 1),
            "id": [ids(row) for row in range(n)],
            "row": np.arange(n),
            "split": ["train"] * (n - 10) + ["test"] * 10,
            "given_label": np.array(classes, dtype=object)[given],
            "suggested_label": np.array(classes, dtype=object)[np.where(flagged, suggested, given)],
            "suspicion": np.linspace(1, 0, n),
            "suggestion_confidence": 0.9,
            "dropped": flagged,
            "flagged": flagged,
            "dropped_share": flagged.astype(float),
            "margin": 0.0,
            "reason": [f"dropped in 90% of the epochs; the model says {classes[number]} (90%)" for number in suggested],
            "status": "open",
        }
    )
    samples.to_parquet(folder / "samples.parquet", index=False)
    config = {
        "format": 1,
        "request": {"name": "made", "data": None, "kind": kind},
        "fit": {"method": "step-e", "samples": n - 10, "seed": 0},
        "class_names": classes,
        "environment": {},
    }
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "summary.json").write_text(json.dumps({"flagged": suspects, "samples": n - 10}))
    write_previews(folder, [_preview(row, kind, draw) for row in range(n - 10)])
    return Run(folder)


def _preview(row: int, kind: str, draw: np.random.Generator) -> Preview:
    if kind == "images":
        buffer = io.BytesIO()
        Image.fromarray(draw.integers(0, 255, (24, 24, 3), dtype=np.uint8)).save(buffer, "PNG")
        return Preview(row, picture=buffer.getvalue())
    if kind == "text":
        return Preview(row, text=f"<script>alert({row})</script> " * 3)
    return Preview(row, cells={"colour": "red", "<b>size</b>": str(row)})
