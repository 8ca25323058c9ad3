"""The map from rows of numbers to the columns of a ridge regression: steps one after another."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_matrix, issparse

from stepe.beliefs.parts import in_parts
from stepe.errors import InputError
from stepe.judges.axes import OnAxes, as_numbers
from stepe.judges.base import Floats
from stepe.judges.maps import OfLengthOne, Ranked, Standardised, Step, WithCosines

Arrays = Mapping[str, npt.NDArray[Any]]

STEPS: dict[str, type[Any]] = {step.name: step for step in (OnAxes, OfLengthOne, Standardised, Ranked, WithCosines)}


@dataclass(frozen=True)
class RowMap:
    """Steps one after another, and a constant column beside what they make."""

    steps: Sequence[Step]

    @property
    def gives(self) -> int:
        """How many columns it makes."""
        return self.steps[-1].gives + 1

    def __call__(self, rows: Any) -> Floats:
        """Turn rows, which may be sparse, into the columns of a ridge regression."""
        rows = csr_matrix(rows) if issparse(rows) else np.asarray(rows)
        if rows.ndim != 2 or rows.shape[1] != self.steps[0].takes:
            raise InputError(f"rows are of shape {rows.shape}; the judge looked at {self.steps[0].takes} columns")
        made = np.ones((rows.shape[0], self.gives))
        for part in in_parts(rows.shape[0], max(rows.shape[1], self.gives)):
            some = rows[part]
            for step in self.steps:
                some = step(some)
            made[part, :-1] = as_numbers(some)
        return made

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Return all that the steps hold, by names that say which step holds it."""
        return {
            f"{number}.{step.name}.{name}": np.ascontiguousarray(getattr(step, name))
            for number, step in enumerate(self.steps)
            for name in step.shapes
        }

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> Self:
        """Make the map of :meth:`arrays` again; refuse arrays that do not fit together."""
        of_steps: dict[tuple[int, str], dict[str, npt.NDArray[Any]]] = {}
        for name, array in arrays.items():
            number, kind, field = _parsed(name)
            of_steps.setdefault((number, kind), {})[field] = array
        in_order = sorted(of_steps)
        if not in_order or [number for number, _ in in_order] != list(range(len(in_order))):
            raise InputError(f"the steps of the map are {[number for number, _ in in_order]}; they count from 0 on")
        steps = [_step(kind, of_steps[number, kind]) for number, kind in in_order]
        for one, following in pairwise(steps):
            if one.gives != following.takes:
                raise InputError(
                    f"{one.name!r} makes {one.gives} columns, but {following.name!r} after it takes {following.takes}"
                )
        return cls(steps)


def _parsed(name: str) -> tuple[int, str, str]:
    number, kind, field = (*name.split("."), "", "")[:3]
    if not number.isdecimal() or kind not in STEPS or field not in STEPS[kind].shapes:
        raise InputError(f"no step of a map has {name!r}; the steps are {', '.join(STEPS)}")
    return int(number), kind, field


def _step(kind: str, arrays: Arrays) -> Step:
    """Make a step of its arrays, whose shapes agree."""
    shapes = STEPS[kind].shapes
    if missing := [name for name in shapes if name not in arrays]:
        raise InputError(f"{kind!r} lacks its {missing[0]}")
    sizes: dict[str, int] = {}
    for name, words in shapes.items():
        shape = arrays[name].shape
        agree = len(shape) == len(words)
        if not agree or any(sizes.setdefault(word, size) != size for word, size in zip(words, shape, strict=True)):
            raise InputError(f"{name} of {kind!r} is of shape {shape}; it has to be {' x '.join(words)}, with {sizes}")
    step: Step = STEPS[kind](**arrays)
    return step
