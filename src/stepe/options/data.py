"""Options about people's data: where things lie in it, how it is read, and what is held out."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from stepe.options.layout import MOST_HELD_OUT
from stepe.options.option import Option

if TYPE_CHECKING:
    import numpy.typing as npt
    import pandas as pd

PANEL = "Your data"


def names(columns: str | Sequence[str]) -> list[str] | None:
    """Return names from a list, or from one text with commas between them."""
    found = columns.split(",") if isinstance(columns, str) else columns
    return [name.strip() for name in found] or None


HF_PREFIX = "hf:"


def array_files(data: str) -> list[str]:
    """Return one path, or the two of a pair with a comma between; a file whose own name has a comma wins."""
    first, comma, second = data.partition(".npy,")
    return [f"{first}.npy", second] if comma and not Path(data).exists() else [data]


def resolved(data: str | Path) -> str:
    """Name the same data from any folder."""
    text = str(data)
    return text if text.startswith(HF_PREFIX) else ",".join(str(Path(part).resolve()) for part in array_files(text))


Data = Annotated[
    "str | Path | tuple[npt.ArrayLike, npt.ArrayLike] | pd.DataFrame",
    Option(
        "A folder with a subfolder of pictures per class; a .csv, .tsv, .jsonl, .parquet or .xlsx file; an .npz file "
        "with the arrays features and labels, or a pair x.npy,y.npy; a saved Hugging Face data set, or hf:NAME; digits "
        "(bundled, with planted noise); cifar100n, cifar10n:worst and the like (real human noise). In Python also a "
        "DataFrame, or a pair (features, labels).",
        PANEL,
        metavar="DATA",
        read=lambda data: str(data) if isinstance(data, str | Path) else None,
        free=True,
    ),
]
Label = Annotated[
    str | None, Option("Column that holds the labels; rows without one are predicted.", PANEL, metavar="COL")
]
Text = Annotated[str | None, Option("Learn from this column of texts.", PANEL, metavar="COL")]
Image = Annotated[
    str | None,
    Option(
        "Learn from the pictures whose paths this column holds; they lie below the folder of the table.",
        PANEL,
        metavar="COL",
    ),
]
Features = Annotated[
    str | Sequence[str] | None,
    Option(
        "Learn from these columns of numbers: a comma list of names or patterns, as in emb_*.",
        PANEL,
        metavar="COLS",
        default="without text, image and features, all columns: numbers, categories and dates",
        read=names,
    ),
]
Id = Annotated[str | None, Option("Column that names the rows.", PANEL, metavar="COL")]
Trusted = Annotated[
    str | None,
    Option("Column that says whose label was checked (true, 1, yes): it is never dropped.", PANEL, metavar="COL"),
]
Group = Annotated[
    str | None,
    Option("Column whose values `min_keep` protects.", PANEL, metavar="COL", default="the classes"),
]
SplitBy = Annotated[
    str | None,
    Option(
        "Column whose values (patients, users) are held out, or left out by who judges them, as a whole or not at all.",
        PANEL,
        metavar="COL",
    ),
]
Holdout = Annotated[
    float,
    Option(
        "Share of each class that is held out, to measure the accuracy; 0 is none.",
        PANEL,
        metavar="SHARE",
        default="0; 0.2 where a network judges",
        min=0,
        max=MOST_HELD_OUT,
    ),
]
Test = Annotated[
    str | Path | None,
    Option("Data of the same form to hold out instead of a share.", PANEL, metavar="DATA", read=resolved),
]
Encoding = Annotated[str, Option("Encoding of a text file.", PANEL)]
ImageSize = Annotated[
    int | None,
    Option(
        "Side of the square to which pictures are resized.",
        PANEL,
        metavar="PIXELS",
        min=8,
        default="by size and device",
    ),
]
DataDir = Annotated[
    str | Path | None,
    Option(
        "Folder of CIFAR-N.",
        PANEL,
        metavar="PATH",
        default="$STEPE_DATA, else a cache, else it is downloaded",
        read=lambda path: str(Path(path).resolve()),
        free=True,
    ),
]
