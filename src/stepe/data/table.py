"""Tables for pandas: files of every format, Hugging Face data sets, and which of their columns are learned from."""

import fnmatch
import importlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from stepe.data.columns import cells, column_type, numbers_of
from stepe.errors import InputError
from stepe.options.data import HF_PREFIX
from stepe.tables.batches import to_pandas
from stepe.tables.formats import read

if TYPE_CHECKING:
    import pandas as pd

FEW = 10
"""rows in which values may all differ by chance"""


def read_table(path: Path, encoding: str = "utf-8") -> "pd.DataFrame":
    """Read a file of rows, cell by cell as they were written."""
    import pyarrow as pa

    batches = list(read(path, encoding))
    if not sum(batch.num_rows for batch in batches):
        raise InputError(f"{path} has no rows; there is nothing to train on")
    return to_pandas(pa.Table.from_batches(batches))


# ---------------------------------------------------------------------------------------------------------------
# Hugging Face data sets


def is_hf_folder(path: Path) -> bool:
    """Say whether ``datasets`` saved a data set (or several splits) here."""
    return path.is_dir() and any((path / name).is_file() for name in ("state.json", "dataset_dict.json"))


def read_hf_folder(path: Path) -> "pd.DataFrame":
    """Read a data set as ``save_to_disk`` wrote it: Arrow files, with the names of the classes beside them."""
    import pandas as pd
    import pyarrow as pa

    if (path / "dataset_dict.json").is_file():
        splits = ", ".join(sorted(child.name for child in path.iterdir() if child.is_dir()))
        raise InputError(f"{path} holds several splits ({splits}); name one, as in {path / 'train'}")
    try:
        state = json.loads((path / "state.json").read_text(encoding="utf-8"))
        info = json.loads((path / "dataset_info.json").read_text(encoding="utf-8"))
        names = [Path(entry["filename"]).name for entry in state["_data_files"]]
        if state.get("_indices_data_files"):
            raise InputError(f"{path} is a selection of rows; save it with dataset.flatten_indices().save_to_disk(...)")
        parts = []
        for name in names:
            with pa.memory_map(str(path / name)) as file:
                parts.append(to_pandas(pa.ipc.open_stream(file).read_all()))
    except (OSError, KeyError, TypeError, ValueError, pa.ArrowException) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path} is no data set that `datasets` saved ({error}); save it again") from error
    table = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()
    return _name_classes(table, {name: (feature or {}).get("names") for name, feature in info["features"].items()})


def read_hf_hub(name: str) -> "pd.DataFrame":
    """Read ``hf:NAME`` or ``hf:NAME:SPLIT``, through the package ``datasets``."""
    dataset, _, split = name.removeprefix(HF_PREFIX).partition(":")
    try:
        datasets = importlib.import_module("datasets")
    except ImportError as error:
        raise InputError(f"{name} needs the package datasets; install it with: pip install 'stepe[hf]'") from error
    try:
        loaded = datasets.load_dataset(dataset, split=split or "train", trust_remote_code=False)
    except Exception as error:  # whatever the hub, the network or the data set's own code raises
        why = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise InputError(f"{name} cannot be loaded: {why}; check the name, the split and the connection") from error
    features = {column: getattr(feature, "names", None) for column, feature in loaded.features.items()}
    return _name_classes(to_pandas(loaded.with_format("arrow")[:]), features)


def _name_classes(table: "pd.DataFrame", names: dict[str, list[str] | None]) -> "pd.DataFrame":
    """Replace class numbers by the names they stand for; -1, as the hub has it, is no label."""
    for column, classes in names.items():
        if classes and column in table.columns:
            table[column] = [
                classes[int(value)] if value is not None and 0 <= int(value) < len(classes) else ""
                for value in table[column]
            ]
    return table


# ---------------------------------------------------------------------------------------------------------------
# Columns


def check_column(table: "pd.DataFrame", column: str, option: str, name: str) -> None:
    """Refuse a column that is not there, naming those that are."""
    if column in table.columns:
        return
    there = [str(found) for found in table.columns]
    listed = ", ".join(there[:20]) + (", ..." if len(there) > 20 else "")
    raise InputError(f"{name} has no column {column!r} for {option}; it has {listed}")


def expand_features(table: "pd.DataFrame", wanted: Sequence[str], name: str) -> list[str]:
    """Find columns by name or pattern, as in ``embedding_*``."""
    found: list[str] = []
    for pattern in wanted:
        matching = [pattern] if pattern in table.columns else fnmatch.filter(map(str, table.columns), pattern)
        if not matching:
            check_column(table, pattern, "--features", name)
        found += [column for column in matching if column not in found]
    return found


def feature_matrix(table: "pd.DataFrame", columns: Sequence[str], name: str) -> npt.NDArray[np.float64]:
    """Make a matrix of numeric columns, or of one column of vectors."""
    if len(columns) == 1 and len(table) and isinstance(table[columns[0]].iloc[0], list | tuple | np.ndarray):
        try:
            return np.stack([np.asarray(cell, dtype=np.float64) for cell in table[columns[0]]])
        except (TypeError, ValueError) as error:
            raise InputError(f"the vectors in column {columns[0]!r} of {name} differ in length: {error}") from error
    for column in columns:
        if column_type(table[column]) != "number":
            value = next((text for text in cells(table[column]) if text), "")
            raise InputError(
                f"column {column!r} of {name} is not numeric (it holds {value[:40]!r}); leave it out of --features, or "
                "leave --features away to have every kind of column handled"
            )
    return np.stack([numbers_of(table[column]) for column in columns], axis=1)


def without_ids_and_leaks(table: "pd.DataFrame", labels: Sequence[str]) -> tuple["pd.DataFrame", list[str]]:
    """Choose the columns to learn from, and say in a sentence each which are left out."""
    dropped, told = [], []
    for column in table.columns:
        texts = cells(table[column])
        if _one_to_one(texts, labels):
            told.append(f"column {column!r} says the same as the labels in other words and is left out")
        elif not _is_id(column, table[column], texts):
            continue
        elif _is_prose(texts):
            told.append(f"column {column!r} looks like text and is left out; to learn from it, say --text {column}")
        else:
            told.append(f"column {column!r} looks like an id (hardly two values are alike) and is left out")
        dropped.append(column)
    return table.drop(columns=dropped), told


def _one_to_one(texts: Sequence[str], labels: Sequence[str]) -> bool:
    there = [(text, label) for text, label in zip(texts, labels, strict=True) if label]
    pairs = set(there)
    # Where no label comes twice, every column of different values would do.
    return len(there) > len(pairs) == len({text for text, _ in pairs}) == len({label for _, label in pairs}) > 1


def _is_id(name: str, values: "pd.Series[Any]", texts: Sequence[str]) -> bool:
    """Recognise words that hardly repeat; of numbers, which may all differ, those that count up or are called ids."""
    there = [text for text in texts if text]
    different = len(set(there))
    type_ = column_type(values)
    if len(there) < FEW or type_ == "date":
        return False
    if type_ == "category":
        return 2 * different > len(there)
    numbers = numbers_of(values)
    if different < len(texts) or not bool((numbers == np.floor(numbers)).all()):
        return False
    counts_up = numbers.max() - numbers.min() == len(numbers) - 1
    return bool(counts_up) or name.lower().rpartition("_")[2] in ("id", "uuid", "key", "index")


def _is_prose(texts: Sequence[str]) -> bool:
    return float(np.mean([" " in text.strip() for text in texts if text])) > 0.5
