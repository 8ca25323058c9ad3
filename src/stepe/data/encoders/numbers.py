"""What encoded rows are to judges: numbers, each column as it is."""

from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import issparse, vstack

from stepe.data.encoders.base import Array, Encoder
from stepe.data.encoders.table import TableEncoder
from stepe.data.encoders.text import TextEncoder

Floats = npt.NDArray[np.float64]
BYTES = 255


def numbers(encoder: Encoder, encoded: Array, idf: Floats | None = None) -> tuple[Any, Floats | None]:
    """Return encoded rows as numbers, which are sparse for texts, and the weights of the n-grams of texts.

    ``idf`` are these weights, where they are known; by default they are those of these texts.
    """
    if isinstance(encoder, TextEncoder):
        return encoder.weighted(encoded, idf)
    if isinstance(encoder, TableEncoder):
        return encoder.spread(encoded), None
    flat = encoded.reshape(len(encoded), -1).astype(np.float64)
    return (flat / BYTES if encoded.dtype == np.uint8 else flat), None


def stacked(parts: list[Any]) -> Any:
    """Put rows below each other."""
    return vstack(parts, format="csr") if any(issparse(part) for part in parts) else np.concatenate(parts)
