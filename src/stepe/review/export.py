"""Suspects for other people's tools: tasks for Label Studio, samples for FiftyOne. Neither has to be installed."""

import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote
from xml.sax.saxutils import quoteattr

from stepe.errors import InputError, RunError
from stepe.files import inside, name_of_text, replacing, reporting, write_json, write_text
from stepe.review.cleaned import Origin, Say, find_origin
from stepe.review.edits import own_samples
from stepe.run.folder import RunFolder
from stepe.run.paths import Trust
from stepe.run.previews import data_uri, media_type
from stepe.tables.cells import same_label
from stepe.tables.formats import FORMATS, read_rows

if TYPE_CHECKING:
    import pandas as pd

Item = dict[str, Any]


def export(
    run: RunFolder | str | Path,
    to: str,
    *,
    out: str | Path | None = None,
    everything: bool = False,
    trust_paths: Trust = False,
    say: Say = lambda message: None,
) -> Path:
    """Write the suspects of a finished run for another tool, most suspicious first; returns the path.

    Args:
        run: a finished run, or its folder.
        to: ``"label-studio"``: a JSON file of tasks to import, with the labelling configuration beside it (``.xml``);
            or ``"fiftyone"``: a folder for ``fiftyone.Dataset.from_dir(..., fiftyone.types.FiftyOneDataset)``.
        out: the file, or the folder; by default ``label-studio.json`` or ``fiftyone`` in the run folder.
        everything: all samples, not only the flagged ones.
        trust_paths: whether the input is read wherever the run folder says that it lies, though somebody else made it.
        say: is told how to go on in the other tool.
    """
    if to not in TOOLS:
        raise InputError(f"there is no export to {to!r}; choose {' or '.join(TOOLS)}")
    run = run if isinstance(run, RunFolder) else RunFolder(run)
    write, default = TOOLS[to]
    target = run.file(default) if out is None else Path(out)
    if not target.parent.is_dir():
        raise InputError(f"there is no folder {target.parent}; make it first, or choose another path")
    samples = own_samples(run).sort_values("rank", kind="stable")
    chosen = samples if everything else samples[samples["flagged"].astype(bool)]
    if chosen.empty:
        raise InputError(f"{run.path} has no suspects to export; all its samples can be had with --all")
    write(run, chosen, _contents(run, chosen, find_origin(run, trust_paths)), target, say)
    return target


# ---------------------------------------------------------------------------------------------------------------
# What a sample is


def _contents(run: RunFolder, samples: "pd.DataFrame", origin: Origin | None) -> list[Item]:
    """Return each sample as what a person can look at: ``image`` (a file or its content), ``text``, or ``row``."""
    if origin is not None and origin.path.is_dir():
        return [{"image": _file(origin.path, name_of_text(name))} for name in samples["id"]]
    if origin is not None and origin.format not in (None, FORMATS[".npz"]):
        rows = _rows(origin, samples)
        if column := run.request.image:
            return [{"image": _file(origin.path.parent, str(row[column]))} for row in rows]
        if column := run.request.text:
            return [{"text": str(row[column])} for row in rows]
        return [{"row": {key: value for key, value in row.items() if key != origin.label}} for row in rows]
    pictures = {row: preview.picture for row, preview in run.previews.items() if preview.picture is not None}
    return [{"image": pictures[row]} if row in pictures else {} for row in samples["row"].tolist()]


def _file(folder: Path, name: str) -> Path:
    # Not resolved: a link is known by its own name.
    path = Path(os.path.abspath(folder / name))  # noqa: PTH100
    is_below = path.is_relative_to(os.path.abspath(folder))  # noqa: PTH100
    if not (is_below and path.resolve().is_relative_to(folder.resolve())):
        raise RunError(f"the picture {name!r} lies outside of {folder}; paths must stay below the folder of the input")
    if not path.is_file():
        raise RunError(f"there is no file {path} any more; put it back, or clean the new data")
    return path


def _rows(origin: Origin, samples: "pd.DataFrame") -> list[Item]:
    """Read the rows of the input that the samples are."""
    wanted = dict(zip(samples["row"].tolist(), samples["given_label"].fillna(""), strict=True))
    found: dict[int, Item] = {}
    for number, row in enumerate(read_rows(origin.path, origin.encoding)):
        if number in wanted:
            if wanted[number] and not same_label(row.get(origin.label), wanted[number]):
                break
            found[number] = row
    if missing := wanted.keys() - found.keys():
        raise RunError(
            f"{origin.path} has changed since the run: row {min(missing)} (counted from 0) is missing or has another "
            "label. Put the old file back, or clean the new one"
        )
    return [found[number] for number in samples["row"].tolist()]


def _items(samples: "pd.DataFrame") -> list[Item]:
    return [{str(key): value for key, value in sample.items()} for sample in samples.to_dict("records")]


def _number(value: float) -> float | None:
    return None if math.isnan(value) else round(float(value), 6)


# ---------------------------------------------------------------------------------------------------------------
# Label Studio

LABEL = "label"
SAMPLE = "sample"


def _write_label_studio(run: RunFolder, samples: "pd.DataFrame", contents: list[Item], target: Path, say: Say) -> None:
    if target.suffix != ".json":
        raise InputError(f"{target} does not end in .json, the form in which Label Studio imports tasks")
    folder = _common_folder(contents)
    # Features have nothing to look at but their id.
    shown = next((key for key in ("image", "text", "row") if any(key in content for content in contents)), "row")
    tasks = []
    for sample, content in zip(_items(samples), contents, strict=True):
        tasks.append(
            {
                "data": {
                    shown: _shown(shown, content, sample, folder),
                    "id": sample["id"],
                    "source_row": int(sample["row"]),
                    "split": sample["split"],
                    "given_label": sample["given_label"],
                    "suggested_label": sample["suggested_label"],
                    "suspicion": _number(sample["suspicion"]),
                },
                "predictions": _predictions(run, sample),
            }
        )
    config = target.with_suffix(".xml")
    write_text(config, labelling_config(shown, run.class_names))
    write_json(target, tasks, indent=1, default=str)
    if folder is not None:
        say(
            f"To show the images, start Label Studio with LABEL_STUDIO_LOCAL_FILES_SERVING_ENABLED=true and "
            f"LABEL_STUDIO_LOCAL_FILES_DOCUMENT_ROOT={folder.parent}, and add the local storage {folder} to the project"
        )
    say(f"In a Label Studio project, paste {config} as the labelling interface, then import {target}")


def _shown(kind: str, content: Item, sample: Item, folder: Path | None) -> Any:
    if kind != "image":
        return content.get(kind) or {"id": sample["id"]}
    image = content.get("image")
    if image is None:
        return ""
    if isinstance(image, Path):
        assert folder is not None
        return f"/data/local-files/?d={quote(os.fsencode(image.relative_to(folder.parent)))}"
    return data_uri(image)


def _predictions(run: RunFolder, sample: Item) -> list[Item]:
    if not sample["suggested_label"]:
        return []
    choice = {
        "from_name": LABEL,
        "to_name": SAMPLE,
        "type": "choices",
        "value": {"choices": [sample["suggested_label"]]},
    }
    score = _number(sample["suggestion_confidence"])
    return [{"model_version": f"stepe {run.method}", "score": score, "result": [choice]}]


def _common_folder(contents: list[Item]) -> Path | None:
    """Find the folder that all images lie under; Label Studio serves it as a part of the folder above it."""
    folders = {str(content["image"].parent) for content in contents if isinstance(content.get("image"), Path)}
    return Path(os.path.commonpath(folders)) if folders else None


def labelling_config(shown: str, class_names: list[str]) -> str:
    """Write Label Studio's labelling interface: the sample, its given label, and a choice of classes."""
    tag = {"image": "Image", "text": "Text", "row": "Table"}[shown]
    choices = "".join(f"    <Choice value={quoteattr(name)}/>\n" for name in class_names)
    return (
        "<View>\n"
        f'  <{tag} name="{SAMPLE}" value="${shown}"/>\n'
        '  <Header value="Given label: $given_label"/>\n'
        f'  <Choices name="{LABEL}" toName="{SAMPLE}" choice="single" showInLine="true">\n'
        f"{choices}"
        "  </Choices>\n"
        "</View>\n"
    )


# ---------------------------------------------------------------------------------------------------------------
# FiftyOne


def _write_fiftyone(run: RunFolder, samples: "pd.DataFrame", contents: list[Item], target: Path, say: Say) -> None:
    """Write ``samples.json`` and ``metadata.json``, in the form without a version that every release reads."""
    if not any("image" in content for content in contents):
        raise InputError(f"FiftyOne shows images, and {run.path} has none; export it to label-studio")
    with reporting(target):
        target.mkdir(exist_ok=True)
    listed = []
    for sample, content in zip(_items(samples), contents, strict=True):
        if (image := content.get("image")) is None:
            continue  # pictures are stored for the top suspects only
        if not isinstance(image, Path):
            image = _store_picture(image, target / "data", sample)
        listed.append(_fiftyone_sample(sample, str(image)))
    info = {"classes": run.class_names, "run": str(run.path.resolve())}
    write_json(target / "metadata.json", {"media_type": "image", "info": info})
    write_json(target / "samples.json", {"samples": listed}, indent=1)
    say(f"In Python: fiftyone.Dataset.from_dir({str(target)!r}, fiftyone.types.FiftyOneDataset)")


def _store_picture(picture: bytes, folder: Path, sample: Item) -> Path:
    with reporting(folder):
        inside(folder.parent, folder.name).mkdir(exist_ok=True)
    path = folder / f"{sample['row']:08}.{media_type(picture).removeprefix('image/')}"
    with replacing(path) as temporary:
        temporary.write_bytes(picture)
    return path.relative_to(folder.parent)  # the importer looks beside samples.json


def _fiftyone_sample(sample: Item, path: str) -> Item:
    found: Item = {
        "filepath": path,
        "tags": [sample["split"]],
        "ground_truth": _classification(sample["given_label"]),
        "stepe_id": sample["id"],
        "stepe_flagged": bool(sample["flagged"]),
    }
    if sample["suggested_label"]:
        confidence = _number(sample["suggestion_confidence"])
        found["suggestion"] = _classification(sample["suggested_label"], confidence)
    if (suspicion := _number(sample["suspicion"])) is not None:
        found["mistakenness"] = suspicion
    return found


def _classification(label: str, confidence: float | None = None) -> Item:
    known = {} if confidence is None else {"confidence": confidence}
    return {"_cls": "Classification", "tags": [], "label": label} | known


TOOLS: dict[str, tuple[Callable[[RunFolder, "pd.DataFrame", list[Item], Path, Say], None], str]] = {
    "label-studio": (_write_label_studio, "label-studio.json"),
    "fiftyone": (_write_fiftyone, "fiftyone"),
}
