"""Encodes texts."""

import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import numpy.typing as npt

from stepe.data.encoders.base import Array
from stepe.options.layout import DataKind

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

Floats = npt.NDArray[np.float64]

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
    """Turns a text into the numbers of its words, pairs of words and pieces of 3 to 5 characters; 0 pads.

    Each n-gram falls into one of a million buckets by its hash, which no alphabet or language can exceed; the buckets
    seen in more than one training text, the most frequent first, are numbered.
    """

    kind: ClassVar[DataKind] = "text"
    buckets: list[int]
    """bucket i has the number i + 1"""
    length: int
    """how many n-grams of a text are kept at most; words go before pieces, and among equals the hash decides"""

    @classmethod
    def fit(cls, texts: Sequence[str]) -> "TextEncoder":
        """Give numbers to the n-grams of the training texts."""
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
        """How many numbers are in use, with that of the padding."""
        return len(self.buckets) + 1

    def encode(self, inputs: Sequence[str]) -> Array:
        """Encode each text as a row of n-gram numbers."""
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
        return encoded

    def weighted(self, encoded: Array, idf: Floats | None = None) -> "tuple[csr_matrix, Floats]":
        """Turn encoded texts into sparse rows of length 1, a column for each n-gram, rare ones weighing more (TF-IDF).

        ``idf`` are the weights; by default, and returned, those of these texts.
        """
        from scipy.sparse import csr_matrix

        text, place = np.nonzero(encoded)
        number = encoded[text, place] - 1
        if idf is None:
            idf = np.log((1 + len(encoded)) / (1 + np.bincount(number, minlength=len(self.buckets)))) + 1
        values = idf[number]
        length = np.sqrt(np.bincount(text, weights=values * values, minlength=len(encoded)))
        shape = (len(encoded), len(self.buckets))
        return csr_matrix((values / length[text], (text, number)), shape=shape), idf


def _grams(texts: Sequence[str]) -> Iterator[tuple[int, npt.NDArray[np.int64], npt.NDArray[np.int64]]]:
    """Give (number of texts, text of each n-gram, its bucket), a chunk of texts at a time; by text, words first."""
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
    """Hash all n-grams of some texts at once.

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
