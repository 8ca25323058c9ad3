"""Encoders: from raw inputs to the one tensor a network takes.

An encoder is fitted on the training part alone and is plain JSON, stored beside the model, so that whatever is
predicted later is encoded the same way.
"""

import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from stepe.errors import InputError, RunError
from stepe.tables.cells import as_text

if TYPE_CHECKING:
    import pandas as pd

Kind = str
"""of data: images, text, table or features"""


class Encoder(Protocol):
    """Turns raw inputs of one kind into a tensor, a sample a row."""

    @property
    def kind(self) -> Kind:
        """What kind of data it encodes."""
        ...

    def encode(self, inputs: Any) -> Tensor:
        """The inputs as a network takes them."""
        ...

    def to_json(self) -> dict[str, Any]:
        """What makes the same encoder again."""
        ...


# ---------------------------------------------------------------------------------------------------------------
# Features


@dataclass(frozen=True)
class FeatureEncoder:
    """Numbers, shifted and scaled column by column."""

    kind: ClassVar[Kind] = "features"
    center: list[float]
    scale: list[float]

    @classmethod
    def fit(cls, features: npt.NDArray[np.float64]) -> "FeatureEncoder":
        """Mean 0 and deviation 1; a constant column becomes zero."""
        scale = features.std(0)
        return cls(features.mean(0).tolist(), np.where(scale > 0, scale, 1).tolist())

    @classmethod
    def identity(cls, width: int) -> "FeatureEncoder":
        """Numbers as they are."""
        return cls([0.0] * width, [1.0] * width)

    def encode(self, inputs: npt.NDArray[np.float64]) -> Tensor:
        """Standardised rows."""
        if inputs.ndim != 2 or inputs.shape[1] != len(self.center):
            raise InputError(
                f"the features have shape {inputs.shape}; the model was trained on {len(self.center)} columns"
            )
        return torch.tensor((inputs - np.asarray(self.center)) / np.asarray(self.scale), dtype=torch.float32)

    def to_json(self) -> dict[str, Any]:
        """Centres and scales."""
        return asdict(self)


# ---------------------------------------------------------------------------------------------------------------
# Images


@dataclass(frozen=True)
class ImageEncoder:
    """Pictures are bytes already; a network wants to know their size, means and deviations."""

    kind: ClassVar[Kind] = "images"
    size: int
    mean: list[float]
    std: list[float]

    @classmethod
    def fit(cls, pictures: Tensor) -> "ImageEncoder":
        """Per channel, of the bytes as numbers in [0, 1]."""
        # Sums of whole numbers, exact in any order: a float copy of all pictures would be large.
        count = pictures[:, 0].numel()
        total = pictures.sum((0, 2, 3)).double()
        squares = sum(part.to(torch.int64).square().sum((0, 2, 3)) for part in torch.split(pictures, 1024))
        assert isinstance(squares, Tensor)
        mean = total / count
        std = (squares.double() / count - mean.square()).clamp(min=1).sqrt()
        return cls(pictures.shape[-1], (mean / 255).tolist(), (std / 255).tolist())

    def encode(self, inputs: Tensor) -> Tensor:
        """The bytes; who trains or predicts normalises batch by batch."""
        return inputs

    def to_json(self) -> dict[str, Any]:
        """Size, means and deviations."""
        return asdict(self)


# ---------------------------------------------------------------------------------------------------------------
# Text

TEXT_LIMIT = 20_000
"""characters of a text that are read"""
CHUNK = 1 << 20
"""characters hashed at once"""
BUCKETS = 1 << 20
VOCABULARY = 1 << 15
LONGEST = 512
PIECES = (3, 4, 5)
"""characters in a piece of a word"""
IN_PIECES = 512
"""characters of a text that are cut into pieces: in longer texts the words say enough"""
_BASE = 0x9E3779B97F4A7C15
_INVERSE = pow(_BASE, -1, 1 << 64)
_MIX = np.uint64(0xBF58476D1CE4E5B9)


@dataclass(frozen=True)
class TextEncoder:
    """Words, pairs of words and pieces of 3 to 5 characters, as numbers; 0 pads.

    Each n-gram falls into one of a million buckets by its hash, which no alphabet or language can exceed; the buckets
    seen in more than one training text, the most frequent first, are numbered.
    """

    kind: ClassVar[Kind] = "text"
    buckets: list[int]
    """bucket i has the number i + 1"""
    length: int
    """n-grams of a text at most; words go before pieces, among equals the hash decides"""

    @classmethod
    def fit(cls, texts: Sequence[str]) -> "TextEncoder":
        """Number the n-grams of the training texts."""
        frequency = np.zeros(BUCKETS, dtype=np.int64)
        lengths: list[npt.NDArray[np.int64]] = []
        for size, text, bucket in _grams(texts):
            np.add.at(frequency, bucket, 1)
            lengths.append(np.bincount(text, minlength=size))
        common = np.flatnonzero(frequency > min(1, frequency.max() - 1)) if frequency.any() else np.zeros(1, np.int64)
        order = np.lexsort((common, -frequency[common]))[:VOCABULARY]
        typical = int(np.quantile(np.concatenate(lengths), 0.98)) if lengths else 1
        return cls(common[order].tolist(), max(1, min(LONGEST, typical)))

    @property
    def vocabulary(self) -> int:
        """Numbers in use, padding included."""
        return len(self.buckets) + 1

    def encode(self, inputs: Sequence[str]) -> Tensor:
        """One row of n-gram numbers a text."""
        number = np.zeros(BUCKETS, dtype=np.int32)
        number[self.buckets] = np.arange(1, self.vocabulary)
        encoded = np.zeros((len(inputs), self.length), dtype=np.int32)
        start = 0
        for size, text, bucket in _grams(inputs):
            known = number[bucket] > 0
            text, bucket = text[known], bucket[known]
            place = np.arange(len(text)) - np.searchsorted(text, text)
            fits = place < self.length
            encoded[start + text[fits], place[fits]] = number[bucket[fits]]
            start += size
        return torch.from_numpy(encoded)

    def to_json(self) -> dict[str, Any]:
        """The buckets and the length."""
        return asdict(self)


def _grams(texts: Sequence[str]) -> Iterator[tuple[int, npt.NDArray[np.int64], npt.NDArray[np.int64]]]:
    """(number of texts, text of each n-gram, its bucket), a chunk of texts at a time; sorted by text, words first."""
    chunk: list[str] = []
    characters = 0
    for text in texts:
        tidy = " ".join(unicodedata.normalize("NFKC", text[:TEXT_LIMIT]).lower().split())
        chunk.append(tidy)
        characters += len(tidy)
        if characters > CHUNK:
            yield (len(chunk), *_hash_chunk(chunk))
            chunk, characters = [], 0
    if chunk:
        yield (len(chunk), *_hash_chunk(chunk))


def _hash_chunk(texts: list[str]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """All n-grams of some texts at once.

    With base b, sums[i] = sum of code[j] b**j below i: the hash of characters i to k is (sums[k] - sums[i]) / b**i, all
    modulo 2**64, where an odd b can be divided by.
    """
    joined = "".join(f" {text} \n" for text in texts)  # no tidy text holds a line feed
    code = np.frombuffer(joined.encode("utf-32-le", "surrogatepass"), dtype="<u4")
    letters = code.view("<U1")
    ends = code == ord("\n")
    line = np.cumsum(ends) - ends
    begin = np.concatenate([[0], np.flatnonzero(ends) + 1])
    power = np.cumprod(np.full(len(code), _BASE, dtype=np.uint64))
    inverse = np.cumprod(np.full(len(code), _INVERSE, dtype=np.uint64))
    sums = np.concatenate([np.zeros(1, dtype=np.uint64), np.cumsum(code.astype(np.uint64) * power)])

    def hashed(first: npt.NDArray[np.int64], last: npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]:
        found: npt.NDArray[np.uint64] = (sums[last] - sums[first]) * inverse[first]
        return found

    inside = np.concatenate([[False], np.char.isalnum(letters), [False]]).astype(np.int8)
    edge = np.diff(inside)
    first, last = np.flatnonzero(edge == 1), np.flatnonzero(edge == -1)
    word, owner = hashed(first, last), line[first]
    found = [(owner, word, 0)]
    together = owner[1:] == owner[:-1]
    found.append((owner[1:][together], (word[:-1] * np.uint64(3) + word[1:])[together], 0))
    early = np.flatnonzero(np.arange(len(code)) - begin[line] < IN_PIECES)
    for n in PIECES:
        first = early[early < len(code) - n]
        first = first[(line[first] == line[first + n - 1]) & ~ends[first + n - 1]]
        found.append((line[first], hashed(first, first + n) + np.uint64(n), 1))
    text = np.concatenate([owner for owner, _, _ in found]).astype(np.int64)
    kind = np.concatenate([np.full(len(owner), kind) for owner, _, kind in found])
    mixed = np.concatenate([values for _, values, _ in found])
    mixed = (mixed ^ (mixed >> np.uint64(30))) * _MIX
    bucket = ((mixed ^ (mixed >> np.uint64(31))) % np.uint64(BUCKETS)).astype(np.int64)
    key = np.sort((2 * text + kind) * BUCKETS + bucket)
    key = key[np.diff(key, prepend=-1) != 0]  # each once; numpy's own unique is far slower here
    return key // (2 * BUCKETS), key % BUCKETS


@dataclass(frozen=True)
class TokenEncoder:
    """Tokens of a pretrained language model, by the package ``transformers``; 0 pads."""

    kind: ClassVar[Kind] = "text"
    model: str
    """``hf:NAME``"""
    length: int

    @classmethod
    def fit(cls, texts: Sequence[str], model: str) -> "TokenEncoder":
        """As long as nearly all training texts need, within what the model takes."""
        longest = max(1, int(np.quantile([len(text.split()) for text in texts], 0.98) * 1.5) + 2)
        return cls(model, min(LONGEST, longest))

    def encode(self, inputs: Sequence[str]) -> Tensor:
        """Token numbers, shifted by one so that 0 is padding whatever the model pads with."""
        from stepe.models.pretrained import tokenizer

        read = tokenizer(self.model)(
            [text[:TEXT_LIMIT] for text in inputs],
            truncation=True,
            max_length=self.length,
            padding="max_length",
            return_tensors="pt",
        )
        shifted: Tensor = (read["input_ids"] + 1) * read["attention_mask"]
        return shifted

    def to_json(self) -> dict[str, Any]:
        """The model and the length."""
        return asdict(self)


# ---------------------------------------------------------------------------------------------------------------
# What a pretrained network sees


@dataclass(frozen=True)
class FrozenEncoder:
    """Features of pictures or texts from a pretrained network that is not trained itself.

    They are computed once, so that a CPU can do it; what is trained is a small network on top.
    """

    kind: Kind
    model: str
    """``timm:NAME`` or ``hf:NAME``"""
    inputs: "ImageEncoder | TokenEncoder"
    """what the network takes"""
    outputs: FeatureEncoder
    """what becomes of its features"""

    @classmethod
    def fit(cls, inputs: Any, encoder: "ImageEncoder | TokenEncoder", model: str) -> "FrozenEncoder":
        """Standardised over the training inputs."""
        seen = cls(encoder.kind, model, encoder, FeatureEncoder.identity(0))._see(inputs)
        return cls(encoder.kind, model, encoder, FeatureEncoder.fit(seen))

    def encode(self, inputs: Any) -> Tensor:
        """Standardised features."""
        return self.outputs.encode(self._see(inputs))

    def _see(self, inputs: Any) -> npt.NDArray[np.float64]:
        from stepe.models.pretrained import features

        return features(self.model, self.inputs.encode(inputs)).double().numpy()

    def to_json(self) -> dict[str, Any]:
        """Its parts."""
        return {
            "kind": self.kind,
            "model": self.model,
            "inputs": write_encoder(self.inputs),
            "outputs": write_encoder(self.outputs),
        }


# ---------------------------------------------------------------------------------------------------------------
# Tables

MISSING = frozenset({"", "na", "n/a", "nan", "null", "none", "?", "-", "nat"})
"""what people write into a cell that has no value"""
CATEGORIES = 1000
QUANTILES = 101
DATE_LIKE = r"\d{4}-\d{1,2}-\d{1,2}(?:[T ].*)?|\d{1,2}[/.]\d{1,2}[/.]\d{4}(?: .*)?|\d{4}/\d{1,2}/\d{1,2}(?: .*)?"
DATE_PARTS = ("day", "month", "weekday", "hour")


@dataclass(frozen=True)
class Column:
    """How a column of a table is encoded."""

    name: str
    type: str
    """number, date or category"""
    quantiles: list[list[float]]
    """of a number, or of each part of a date, in the training part"""
    gaps: bool
    """whether values were missing there: then a missing value is said beside the one that stands in for it"""
    categories: list[str]
    """category i has the code i + 1; 0 is anything else"""

    @property
    def width(self) -> int:
        """Numbers it becomes, its code not counted."""
        return len(self.quantiles) + self.gaps


@dataclass(frozen=True)
class TableEncoder:
    """Numbers and dates by their place among the training values, then the codes of the categories.

    A place among others is in [-1, 1] whatever the unit, and no outlier can blow it up.
    """

    kind: ClassVar[Kind] = "table"
    columns: list[Column]

    @classmethod
    def fit(cls, table: "pd.DataFrame") -> "TableEncoder":
        """Find out what each column holds; columns with nothing to tell are left out."""
        columns = [_fit_column(str(name), table[name]) for name in table.columns]
        return cls([column for column in columns if column is not None])

    @property
    def numbers(self) -> int:
        """Columns of numbers; the codes come after them."""
        return sum(column.width for column in self.columns)

    @property
    def codes(self) -> list[int]:
        """How many codes each categorical column has."""
        return [len(column.categories) + 1 for column in self.columns if column.type == "category"]

    def encode(self, inputs: "pd.DataFrame") -> Tensor:
        """One row of floats a row; codes are whole numbers, exact in a float."""
        if missing := [column.name for column in self.columns if column.name not in inputs.columns]:
            raise InputError(f"the table has no column {', '.join(map(repr, missing))}, which the model was trained on")
        numbers: list[npt.NDArray[np.float32]] = []
        codes: list[npt.NDArray[np.float32]] = []
        for column in self.columns:
            values = inputs[column.name]
            if column.type == "category":
                code = {category: i + 1 for i, category in enumerate(column.categories)}
                codes.append(np.array([code.get(text, 0) for text in cells(values)], dtype=np.float32))
                continue
            parts = date_parts(values) if column.type == "date" else [numbers_of(values)]
            for part, quantiles in zip(parts, column.quantiles, strict=True):
                place = np.interp(part, quantiles, np.linspace(-1, 1, len(quantiles)))
                numbers.append(np.where(np.isnan(part), 0, place).astype(np.float32))
            if column.gaps:
                numbers.append(np.isnan(parts[0]).astype(np.float32))
        if not numbers and not codes:
            return torch.zeros(len(inputs), 0)
        return torch.from_numpy(np.stack([*numbers, *codes], axis=1))

    def to_json(self) -> dict[str, Any]:
        """All columns."""
        return asdict(self)


def _fit_column(name: str, values: "pd.Series[Any]") -> Column | None:
    type_ = column_type(values)
    if type_ == "category":
        texts = np.array([text for text in cells(values) if text], dtype=object)
        found, counts = np.unique(texts, return_counts=True) if len(texts) else (texts, np.zeros(0, np.int64))
        if len(found) < 2 and len(texts) == len(values):
            return None
        order = np.argsort(-counts, kind="stable")[:CATEGORIES]
        return Column(name, type_, [], False, [str(found[i]) for i in order]) if len(found) else None
    parts = date_parts(values) if type_ == "date" else [numbers_of(values)]
    gaps = bool(np.isnan(parts[0]).any())
    steps = np.linspace(0, 1, QUANTILES)
    quantiles = [np.quantile(part[~np.isnan(part)], steps).tolist() for part in parts if not np.isnan(part).all()]
    if len(quantiles) < len(parts) or (not gaps and all(q[0] == q[-1] for q in quantiles)):
        return None
    return Column(name, type_, quantiles, gaps, [])


def column_type(values: "pd.Series[Any]") -> str:
    """Whether a column holds numbers, dates or categories, by all of its values."""
    import pandas as pd

    if pd.api.types.is_datetime64_any_dtype(values):
        return "date"
    if pd.api.types.is_numeric_dtype(values):
        return "number"
    texts = pd.Series([text for text in cells(values) if text], dtype=object)
    if not len(texts):
        return "category"
    if pd.to_numeric(texts, errors="coerce").notna().all():
        return "number"
    if texts.str.fullmatch(DATE_LIKE).all() and _dates(texts).notna().all():
        return "date"
    return "category"


def cells(values: "pd.Series[Any]") -> list[str]:
    """Cells as text, whatever they are; empty where there is no value."""
    return ["" if text.strip().lower() in MISSING else text for text in map(as_text, values)]


def numbers_of(values: "pd.Series[Any]") -> npt.NDArray[np.float64]:
    """Cells as numbers; NaN where there is none, and for infinity, which no network can use."""
    import pandas as pd

    if pd.api.types.is_numeric_dtype(values):
        found = pd.to_numeric(values).to_numpy(dtype=np.float64, na_value=np.nan)
    else:
        found = pd.to_numeric(pd.Series(cells(values), dtype=object), errors="coerce").to_numpy(dtype=np.float64)
    return np.where(np.isfinite(found), found, np.nan)


def date_parts(values: "pd.Series[Any]") -> list[npt.NDArray[np.float64]]:
    """Days since 1970, month, weekday and hour; NaN where there is no date."""
    import pandas as pd

    dates = _dates(values if pd.api.types.is_datetime64_any_dtype(values) else pd.Series(cells(values), dtype=object))
    days = (dates - pd.Timestamp(0, tz="UTC")) / pd.Timedelta(days=1)
    parts = (days, dates.dt.month, dates.dt.day_of_week, dates.dt.hour)
    return [np.asarray(part.to_numpy(dtype=np.float64, na_value=np.nan)) for part in parts]


def _dates(values: "pd.Series[Any]") -> "pd.Series[Any]":
    import pandas as pd

    return pd.to_datetime(values, errors="coerce", format="mixed", utc=True)


ENCODERS: dict[str, Any] = {
    kind.__name__: kind
    for kind in (FeatureEncoder, ImageEncoder, TextEncoder, TokenEncoder, FrozenEncoder, TableEncoder)
}


def write_encoder(encoder: Encoder) -> dict[str, Any]:
    """An encoder as JSON."""
    return {"name": type(encoder).__name__, **encoder.to_json()}


def read_encoder(saved: dict[str, Any]) -> Encoder:
    """An encoder from its JSON."""
    options = {name: value for name, value in saved.items() if name != "name"}
    try:
        if saved["name"] == TableEncoder.__name__:
            options["columns"] = [Column(**column) for column in options["columns"]]
        if saved["name"] == FrozenEncoder.__name__:
            options |= {name: read_encoder(options[name]) for name in ("inputs", "outputs")}
        encoder: Encoder = ENCODERS[saved["name"]](**options)
    except (KeyError, TypeError) as error:
        raise RunError(f"the preprocessing of the run cannot be read: {error!r}; train it again") from error
    return encoder
