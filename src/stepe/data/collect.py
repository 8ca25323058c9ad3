"""People's own data, collected as raw samples with their labels, names and groups."""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from stepe.beliefs.names import Names
from stepe.data import arrays, images, table
from stepe.data.columns import cells
from stepe.data.originals import Originals
from stepe.errors import InputError
from stepe.files import UNWRITABLE, check_writable, text_of_name
from stepe.options.data import HF_PREFIX, resolved
from stepe.options.layout import DataKind, Layout
from stepe.tables import delimited, spreadsheet
from stepe.tables.cells import as_text, escape
from stepe.tables.edit import Cell
from stepe.tables.formats import format_of

if TYPE_CHECKING:
    import pandas as pd

Say = Callable[[str], None]
SizeFor = Callable[[Sequence[images.Picture]], int]
"""pictures -> the side that they are resized to"""
YES = frozenset({"true", "t", "1", "1.0", "yes", "y"})
NO = frozenset({"false", "f", "0", "0.0", "no", "n", "", "nan", "none", "null"})
OUR_MARKS = re.compile(r"stepe_(flagged|suggested|suspicion)(_\d+)?")
MEASURED = 20
"""so many different labels with fractions are no classes but measurements"""


@dataclass(frozen=True)
class Collection:
    """Raw samples as they were found."""

    name: str
    kind: DataKind
    inputs: Any
    """texts, a table, a matrix of numbers, or pictures as bytes"""
    ids: list[str]
    rows: list[int]
    keys: list[Any]
    """one per sample, equal where the inputs are"""
    labels: list[str]
    """an empty one is no label"""
    reference: str | None = None
    """what it is found by; ``None``: an object, which cannot be found again"""
    trusted: list[bool] | None = None
    groups: list[str] | None = None
    together: list[str] | None = None
    skipped: dict[str, str] | None = None
    """inputs that could not be read, and why"""
    originals: Originals | None = None
    """what people are shown, by row"""

    def __post_init__(self) -> None:
        """Refuse what the files of a run cannot hold, before anything is trained."""
        named = {"id": self.ids, "label": self.labels, "--group": self.groups, "--split-by": self.together}
        for what, texts in named.items():
            if texts is not None and UNWRITABLE.search("".join(texts)):
                for row, text in zip(self.rows, texts, strict=True):
                    check_writable(f"the {what} of row {row} (counted from 0) of {self.name}", text)

    def __len__(self) -> int:
        return len(self.ids)

    def take(self, index: npt.NDArray[np.int64]) -> Any:
        """Return some of the inputs."""
        if isinstance(self.inputs, list):
            return [self.inputs[i] for i in index]
        if isinstance(self.inputs, np.ndarray):
            return self.inputs[index]
        return self.inputs.iloc[index]

    def names(self, index: npt.NDArray[np.int64], split: str) -> Names:
        """Return what some of the samples are called."""
        groups = None if self.groups is None else [self.groups[i] for i in index]
        return Names([self.ids[i] for i in index], [self.rows[i] for i in index], split, groups)


# ---------------------------------------------------------------------------------------------------------------
# Collecting


def collect(
    data: Any, layout: Layout, say: Say, *, size_for: SizeFor = images.image_size_for, labelled: bool = True
) -> Collection:
    """Collect raw samples from a path, a reference or an object; without labels where they are to be predicted."""
    if not isinstance(data, str | Path):
        return from_frame(data, "table", layout, say, size_for=size_for, labelled=labelled)
    text, path = str(data), Path(data)
    check_writable("the path of the data", str(path.absolute()))
    if text.startswith(HF_PREFIX):
        name = text.removeprefix(HF_PREFIX).replace("/", "-").replace(":", "-")
        found = from_frame(table.read_hf_hub(text), name, layout, say, size_for=size_for, labelled=labelled)
        return replace(found, reference=text)
    if arrays.is_array_file(text):
        layout.check_no_columns(text)
        features, labels = arrays.read_arrays(text, labelled=labelled)
        return replace(from_matrix(features, labels, arrays.name_of(text)), reference=resolved(text))
    if table.is_hf_folder(path):
        found = from_frame(table.read_hf_folder(path), path.name, layout, say, size_for=size_for, labelled=labelled)
    elif path.is_dir():
        found = from_folder(path, layout, say, size_for=size_for, labelled=labelled)
    else:
        if path.suffix.lower() in spreadsheet.SUFFIXES and len(sheets := spreadsheet.sheets(path)) > 1:
            say(f"{path} has {len(sheets)} sheets; the first, {sheets[0]!r}, is read")
        frame = table.read_table(path, layout.encoding)
        found = from_frame(frame, path.stem, layout, say, size_for=size_for, labelled=labelled, folder=path.parent)
    return replace(found, reference=str(path.resolve()))


def can_collect(data: str) -> bool:
    """Say whether the name of a path says that it can be read."""
    path = Path(data)
    return path.is_dir() or format_of(path) is not None or arrays.is_array_file(data)


def from_matrix(features: npt.ArrayLike, labels: npt.ArrayLike | None, name: str) -> Collection:
    """Collect features (n x d) and labels, which may be strings."""
    x = arrays.check_features(features, name)
    given = [""] * len(x) if labels is None else arrays.check_labels(labels, len(x), name)
    rows = list(range(len(x)))
    keys = [row.tobytes() for row in x]
    return Collection(name, "features", x, [str(row) for row in rows], rows, keys, given)


def from_folder(path: Path, layout: Layout, say: Say, *, size_for: SizeFor, labelled: bool) -> Collection:
    """Collect pictures, in a folder per class where labels are wanted."""
    layout.check_no_columns(str(path))
    if labelled:
        classes = images.class_folders(path)
    if others := images.other_pictures(path):
        some = ", ".join(f"{count} {ending}" for ending, count in sorted(others.items()))
        say(f"{path} also holds {some}, which are left out; files must end in {', '.join(images.SUFFIXES)}")
    files = images.find_images(path)
    ids = [text_of_name(file.relative_to(path).as_posix()) for file in files]
    if labelled:  # what lies beside the class folders has no class
        inside = [i for i, name in enumerate(ids) if "/" in name]
        files, ids = [files[i] for i in inside], [ids[i] for i in inside]
        if empty := sorted(set(map(text_of_name, classes)) - {name.partition("/")[0] for name in ids}):
            say(f"no pictures in {', '.join(empty[:5])}; {_plural(len(empty), 'folder')} left out")
    if not files:
        raise InputError(f"{path} holds no pictures; files must end in {', '.join(images.SUFFIXES)}")
    labels = [name.partition("/")[0] if labelled else "" for name in ids]
    return _with_pictures(path.resolve().name, files, ids, labels, layout, say, size_for=size_for)


def _with_pictures(
    name: str,
    files: Sequence[images.Picture],
    ids: list[str],
    labels: list[str],
    layout: Layout,
    say: Say,
    *,
    size_for: SizeFor,
) -> Collection:
    usual = images.LARGE if layout.model is not None else size_for(files)
    size = layout.image_size or usual
    read = images.read_pictures(files, ids, size, say)
    return Collection(
        name=name,
        kind="images",
        inputs=read.x,
        ids=[ids[i] for i in read.kept],
        rows=read.kept,
        keys=read.digests,
        labels=[labels[i] for i in read.kept],
        skipped={ids[i]: why for i, why in read.skipped.items()},
        originals=Originals.of_pictures(files),
    )


def from_frame(
    frame: "pd.DataFrame",
    name: str,
    layout: Layout,
    say: Say,
    *,
    size_for: SizeFor = images.image_size_for,
    labelled: bool = True,
    folder: Path | None = None,
) -> Collection:
    """Collect the rows of a table, in which named columns are the labels and the inputs."""
    _check_names(frame, name)
    frame = frame.rename(columns=str)
    _check_frame(frame, name, layout, labelled=labelled)
    kind = layout.inputs_kind
    labels = _column(frame, layout.label) if labelled else None
    given = ["" if not label.strip() else label for label in labels] if labels else [""] * len(frame)
    ids = _ids(frame, layout, name)
    if kind == "images":
        assert layout.image is not None
        files = _picture_cells(frame[layout.image], folder, name)
        found = _with_pictures(name, files, ids, given, layout, say, size_for=size_for)
    else:
        inputs, keys = _inputs(frame, kind, layout, given, name, say, labelled=labelled)
        found = Collection(name, kind, inputs, ids, list(range(len(frame))), keys, given)
        found = replace(found, originals=_originals(frame, found, layout))
    trusted, groups, together = (
        _column(frame, column) if labelled else None for column in (layout.trusted, layout.group, layout.split_by)
    )
    kept = found.rows
    return replace(
        found,
        trusted=None if trusted is None else _trusted([trusted[row] for row in kept], layout, name, say),
        groups=None if groups is None else [groups[row] for row in kept],
        together=None if together is None else [together[row] for row in kept],
    )


def _trusted(cells: list[str], layout: Layout, name: str, say: Say) -> list[bool]:
    """Say which rows were checked; words that mean neither yes nor no do not pass in silence."""
    words = [cell.strip().lower() for cell in cells]
    unknown = sorted({cell for cell, word in zip(cells, words, strict=True) if word not in YES | NO})
    some = ", ".join(map(repr, unknown[:5]))
    if unknown and not any(word in YES for word in words):
        raise InputError(
            f"column {layout.trusted!r} of {name} says {some}; write true, 1 or yes where a label was checked"
        )
    if unknown:
        say(f"column {layout.trusted!r} of {name} says {some}, which is taken as not trusted; yes is true, 1 or yes")
    return [word in YES for word in words]


def _check_names(frame: "pd.DataFrame", name: str) -> None:
    if frame.columns.nlevels > 1:
        raise InputError(f"the columns of {name} have {frame.columns.nlevels} names each; give each one, as text")
    names = [str(column) for column in frame.columns]
    for column in names:
        check_writable(f"a column of {name}", column)
    if twice := [column for column, count in Counter(names).items() if count > 1]:
        raise InputError(f"{name} has more than one column {twice[0]!r}; give each a name of its own")


def _check_frame(frame: "pd.DataFrame", name: str, layout: Layout, *, labelled: bool) -> None:
    if not len(frame):
        raise InputError(f"{name} has no rows; there is nothing to train on")
    if labelled and layout.label is None:
        there = ", ".join(frame.columns[:20])
        raise InputError(f"say which column of {name} holds the labels, with --label; it has {there}")
    for option, column in {"--text": layout.text, "--image": layout.image, "--trusted": layout.trusted}.items():
        if labelled and column is not None and column == layout.label:
            raise InputError(f"column {column!r} holds the labels; {option} needs another one")
    needed = {"--text": layout.text, "--image": layout.image}
    for option, column in (layout.columns if labelled else needed).items():
        if column is not None:
            table.check_column(frame, column, option, name)


def _column(frame: "pd.DataFrame", column: str | None) -> list[str] | None:
    return None if column is None else [as_text(cell) for cell in frame[column]]


def _ids(frame: "pd.DataFrame", layout: Layout, name: str) -> list[str]:
    import pandas as pd

    ids = _column(frame, layout.id) if layout.id in frame.columns else None
    if ids is None:
        own = None if isinstance(frame.index, pd.RangeIndex) else [str(key) for key in frame.index]
        return own if own is not None and len(set(own)) == len(own) else [str(row) for row in range(len(frame))]
    if repeated := [key for key, count in Counter(ids).items() if count > 1]:
        some = ", ".join(map(repr, repeated[:5]))
        raise InputError(
            f"column {layout.id!r} of {name} gives {_plural(len(repeated), 'id')} to more than one row ({some}); "
            "make them differ, or leave --id out to count rows"
        )
    return ids


def _inputs(
    frame: "pd.DataFrame", kind: DataKind, layout: Layout, labels: list[str], name: str, say: Say, *, labelled: bool
) -> tuple[Any, list[Any]]:
    """Return the inputs, and keys that are equal where the inputs are."""
    if kind == "text":
        texts = _column(frame, layout.text)
        assert texts is not None
        if not any(text.strip() for text in texts):
            raise InputError(f"all texts in column {layout.text!r} of {name} are empty; choose another column")
        if empty := sum(not text.strip() for text in texts):
            say(f"{_plural(empty, 'text')} of {len(texts)} are empty; nothing can be learned from them")
        return texts, [text.strip() or row for row, text in enumerate(texts)]
    if kind == "features":
        assert layout.features is not None
        matrix = table.feature_matrix(frame, table.expand_features(frame, layout.features, name), name)
        matrix = arrays.check_features(matrix, name)
        return matrix, [row.tobytes() for row in matrix]
    if not labelled:
        return frame, list(range(len(frame)))
    roles = (layout.label, layout.id, layout.trusted, layout.split_by)
    marks = [column for column in frame.columns if OUR_MARKS.fullmatch(column)]
    if marks:
        say(f"columns {', '.join(marks)} are marks of an earlier run and are left out")
    inputs = frame.drop(columns=[*(column for column in roles if column is not None), *marks])
    inputs, told = table.without_ids_and_leaks(inputs, labels)
    for sentence in told:
        say(sentence)
    if not len(inputs.columns):
        number_labels(labels, name)  # if they are no classes, that is what to know first
        raise InputError(f"{name} has no column to learn from besides the labels and ids; name one with --text")
    return inputs, list(zip(*(cells(inputs[column]) for column in inputs.columns), strict=True))


def _originals(frame: "pd.DataFrame", found: Collection, layout: Layout) -> Originals | None:
    """Keep texts as they are; of other tables every cell that is no label, id or feature, learned from or not."""
    if found.kind == "text":
        return Originals(texts=found.inputs)
    hidden = {layout.label, layout.id, *(column for column in frame.columns if OUR_MARKS.fullmatch(column))}
    if found.kind == "features":
        hidden |= set(table.expand_features(frame, layout.features or (), found.name))
    shown = [column for column in frame.columns if column not in hidden]
    return Originals(table=frame[shown]) if shown else None


def _picture_cells(values: "pd.Series[Any]", folder: Path | None, name: str) -> list[images.Picture]:
    """Find pictures by path, below the folder of the table, or by content, as Hugging Face data sets hold them."""
    root = Path() if folder is None else folder
    found: list[images.Picture] = []
    for row, cell in enumerate(values):
        content = cell.get("bytes") if isinstance(cell, dict) else cell
        if isinstance(content, bytes):
            found.append(content)
            continue
        path = root / as_text(cell.get("path") if isinstance(cell, dict) else cell)
        if not path.resolve().is_relative_to(root.resolve()):
            raise InputError(
                f"the picture {as_text(cell)!r} in row {row} of {name} lies outside {root.resolve()}; "
                "paths must stay below the folder of the table"
            )
        found.append(path)
    return found


# ---------------------------------------------------------------------------------------------------------------
# Labels


def number_labels(labels: Sequence[str], name: str) -> tuple[list[str], npt.NDArray[np.int64]]:
    """Name the classes in order, and give each label its number (-1: none); refuse what cannot be classes."""
    counts = Counter(label for label in labels if label)
    if not counts:
        raise InputError(f"no row of {name} has a label; at least two classes are needed")
    classes = sorted(counts)
    if all(_is_integer(label) for label in classes):
        classes.sort(key=int)
    n = sum(counts.values())
    if len(classes) < 2:
        raise InputError(f"all labels of {name} are {classes[0]!r}; at least two classes are needed")
    if len(classes) > MEASURED and all(_is_number(label) for label in classes) and any("." in c for c in classes):
        some = ", ".join(classes[:3])
        raise InputError(
            f"the labels of {name} look like measurements ({some}, ...), not classes; sort them into a few bins first, "
            "for example with pandas.cut"
        )
    if len(classes) == n:
        raise InputError(
            f"all {n} labels of {name} are different: that is an id, not a class; choose another column for --label"
        )
    number = {label: i for i, label in enumerate(classes)}
    return classes, np.array([number.get(label, -1) for label in labels], dtype=np.int64)


def _is_integer(label: str) -> bool:
    return label.removeprefix("-").isdecimal()


def _is_number(label: str) -> bool:
    try:
        float(label)
    except ValueError:
        return False
    return True


# ---------------------------------------------------------------------------------------------------------------
# Duplicates


def conflicting_duplicates(collection: Collection) -> list[tuple[str, int, str, int]]:
    """Find inputs that also stand under another label, as (id, row, given label, group): one must be wrong."""
    together: dict[Any, list[int]] = {}
    for i, (key, label) in enumerate(zip(collection.keys, collection.labels, strict=True)):
        if label:
            together.setdefault(key, []).append(i)
    groups = [members for members in together.values() if len({collection.labels[i] for i in members}) > 1]
    return [
        (collection.ids[i], collection.rows[i], collection.labels[i], group)
        for group, members in enumerate(groups, start=1)
        for i in members
    ]


def csv_text(columns: Sequence[str], rows: Sequence[Sequence[Cell]]) -> str:
    """Write a small table as the text of a CSV file that a spreadsheet shows and does not run."""
    escaped = ([escape(cell) if isinstance(cell, str) else cell for cell in row] for row in rows)
    return "".join(delimited.lines([columns, *escaped]))


def group_numbers(groups: Sequence[str]) -> npt.NDArray[np.int64]:
    """Give groups numbers, in the order of their names."""
    return np.unique(np.asarray(groups, dtype=str), return_inverse=True)[1].astype(np.int64)


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
