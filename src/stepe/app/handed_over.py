"""The model that an audit hands over: what one of its judges learned from the labels that were kept, for new rows.

Its arrays lie in ``model.safetensors``, without pickle; ``preprocessing.json`` says how rows become numbers.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError
from safetensors.numpy import load_file, save

from stepe.data.encoders import Encoder, ImageEncoder, read_encoder
from stepe.data.encoders.numbers import numbers
from stepe.errors import InputError, RunError
from stepe.files import replacing
from stepe.judges.ridge_model import RidgeModel
from stepe.run.folder import RunFolder
from stepe.run.record import PREPROCESSING

RIDGE = "ridge"
IDF = "idf"
MODEL = "model.safetensors"
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class HandedOver:
    """How inputs become numbers, and what is said of these."""

    encoder: Encoder
    idf: Floats | None
    """the weights of the n-grams of texts"""
    model: RidgeModel

    @property
    def size(self) -> int | None:
        """The side of the pictures that it takes."""
        return self.encoder.size if isinstance(self.encoder, ImageEncoder) else None

    def predict(self, inputs: Any) -> Floats:
        """Return how likely each class is for raw inputs."""
        return self.model.predict(numbers(self.encoder, self.encoder.encode(inputs), self.idf)[0])

    def write(self, folder: RunFolder) -> None:
        """Write the arrays into a run folder."""
        arrays = {name: _stored(array) for name, array in self.model.arrays().items()}
        if self.idf is not None:
            arrays[IDF] = np.asarray(self.idf)
        with replacing(folder.file(MODEL)) as temporary:
            Path(temporary).write_bytes(save(arrays))


def is_handed_over(saved: Any) -> bool:
    """Say whether a preprocessing is that of a judge's model."""
    return isinstance(saved, dict) and saved.get("model") == {"name": RIDGE}


def read_handed_over(folder: RunFolder) -> HandedOver:
    """Read the model of an audit from its run folder."""
    try:
        saved = json.loads(folder.file(PREPROCESSING).read_text(encoding="utf-8"))
        arrays = load_file(folder.file(MODEL))
        idf = arrays.pop(IDF, None)
        return HandedOver(read_encoder(saved["encoder"]), idf, RidgeModel.from_arrays(arrays))
    except FileNotFoundError as error:
        missing = Path(error.filename or MODEL).name
        raise RunError(f"{folder.path} cannot predict: it has no {missing}; make the run again") from error
    except (OSError, KeyError, TypeError, ValueError, InputError, SafetensorError) as error:
        if isinstance(error, RunError):
            raise
        raise RunError(f"{folder.path} cannot predict: its {MODEL} or {PREPROCESSING} is damaged ({error})") from error


def _stored(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Store large arrays in single precision: of texts, axes would take hundreds of megabytes."""
    return np.ascontiguousarray(array.astype(np.float32) if array.size > 1 << 20 else array)
