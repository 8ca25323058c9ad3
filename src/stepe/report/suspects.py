"""The suspects as the page's script wants them, small enough for a file that can be sent by mail."""

import io
import json
import math
import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from stepe.report.figures import drops
from stepe.review.choices import likely_classes
from stepe.run.previews import LOSSLESS, Preview, data_uri, encoded, shortened

if TYPE_CHECKING:
    from stepe.run.folder import RunFolder

LISTED = 1_000
"""suspects on the page; ``issues.csv`` has all"""
FIRST = 12
"""suspects in plain sight; where fewer are flagged, the next in line fill up"""
BUDGET = 3_800_000
"""bytes for what the suspects look like: the page as a whole stays below 5 MB"""
DETAIL = ((160, 80, 2_000), (128, 70, 1_000), (112, 60, 600), (96, 50, 400), (80, 40, 250), (64, 30, 120))
"""pixels of a picture's longer side, quality, and characters of a text: as much detail as the budget allows"""
TRIED = 60
"""suspects by which the detail is chosen"""

Shown = dict[str, Any]


def suspects(run: "RunFolder") -> list[Shown]:
    """List the top suspects, each as a plain object; classes are numbers of :func:`all_names`."""
    rate = run.belief.found_rate
    if (rate is None and not drops(run)) or (rate is not None and rate.is_unknown):
        return []
    if not run.belief.has_signal and not run.summary.flagged:  # a person may have asked for some all the same
        return []
    training = run.samples[run.samples["split"] == "train"].sort_values("rank")
    chosen = training[training["flagged"]].head(LISTED)
    if len(chosen) < FIRST:
        doubted = ~training["flagged"] & (training["suggested_label"] != "")
        doubted &= training["suggested_label"] != training["given_label"]
        chosen = training[training["flagged"] | doubted].head(FIRST)
    rows = [int(row) for row in chosen["row"]]
    numbers = {name: i for i, name in enumerate(all_names(run))}
    previews = [run.previews.get(row, Preview(row)) for row in rows]
    return [
        {
            "rank": int(issue["rank"]),
            "row": int(issue["row"]),
            "id": str(issue["id"]),
            "split": str(issue["split"]),
            "given": numbers[issue["given_label"]],
            "suggested": numbers.get(issue["suggested_label"], -1),
            "suspicion": None if math.isnan(issue["suspicion"]) else float(issue["suspicion"]),
            "reason": str(issue["reason"]),
            "flagged": bool(issue["flagged"]),
            "likely": [numbers[name] for name in likely],
            **look,
        }
        for issue, likely, look in zip(
            chosen.to_dict("records"), likely_classes(run, rows), looks(previews), strict=True
        )
    ]


def all_names(run: "RunFolder") -> list[str]:
    """Name the classes, and after them whatever else a model suggests that has more outputs than there are classes.

    Labels that are no classes, numbers for instance, are their own names.
    """
    names = run.class_names
    found = set(run.issues["suggested_label"])
    if not names:
        listed = run.samples[run.samples["rank"] <= LISTED]
        found |= {*listed["given_label"], *listed["suggested_label"]}
    return [*names, *sorted(found - set(names) - {""})]


def looks(previews: Sequence[Preview]) -> list[Shown]:
    """Return what each looks like, with as much detail as fits."""
    tried = previews[:: max(1, len(previews) // TRIED)]
    for detail in DETAIL:
        cost = sum(size_of(_look(preview, *detail)) for preview in tried)
        if cost * len(previews) <= 0.95 * BUDGET * max(1, len(tried)):
            break
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(_within_budget(pool.map(lambda preview: _look(preview, *detail), previews)))


def _within_budget(found: Iterable[Shown]) -> Iterator[Shown]:
    """Leave the last without a look, should the samples tried have been the small ones."""
    left = BUDGET
    for look in found:
        left -= size_of(look)
        yield look if left >= 0 else {}


def _look(preview: Preview, side: int, quality: int, characters: int) -> Shown:
    shown: Shown = {}
    if preview.picture is not None:
        content, longest = _smaller(preview.picture, side, quality)
        shown["picture"] = data_uri(content)
        shown["pixels"] = longest
    if preview.text is not None:
        shown["text"] = shortened(preview.text, characters)
    if preview.cells is not None:
        each = max(20, characters // max(1, len(preview.cells)))
        shown["cells"] = [[shortened(name, 60), shortened(cell, each)] for name, cell in preview.cells.items()]
    return shown


def _smaller(picture: bytes, side: int, quality: int) -> tuple[bytes, int]:
    """Return a picture's bytes at some detail, and its longer side."""
    from PIL import Image

    with Image.open(io.BytesIO(picture)) as image:
        longest = max(image.size)
        if longest <= LOSSLESS or (side, quality) == DETAIL[0][:2]:
            return picture, longest
        image.load()
        return encoded(image, side, quality), min(longest, side)


def size_of(value: Any) -> int:
    """Count the bytes of a value inside the page."""
    return len(embedded(value).encode())


def embedded(value: Any) -> str:
    """Write JSON that can stand inside a script element: no text in it can end the element, or begin another."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text
