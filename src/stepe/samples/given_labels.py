"""The labels that people hand over, alone or inside a data set: read, checked, and made tensors."""

from collections.abc import Sized
from contextlib import suppress
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import TensorDataset

from stepe.errors import InputError
from stepe.loop.randomness import Stream, seeded

SPOT_CHECKS = 20
"""samples whose stored label is compared with the one that the data set returns"""


def read_labels(dataset: Any) -> Any:
    """Read the labels of a dataset: its ``tensors``, ``targets`` or ``labels``, or what it returns, one by one."""
    if type(dataset) is TensorDataset and len(dataset.tensors) > 1:
        return dataset.tensors[1]
    # torchvision's stored targets are the ones before target_transform.
    stored = ("targets", "labels") if getattr(dataset, "target_transform", None) is None else ()
    for name in stored:
        found = getattr(dataset, name, None)
        if isinstance(found, Sized) and len(found) == len(dataset):
            check_returned(dataset, found, f"its own {name}")
            return found
    with seeded(Stream.named(0, "labels")):
        return [_label_of(dataset[i], i) for i in range(len(dataset))]


def check_returned(dataset: Any, labels: Any, source: str) -> None:
    """Compare labels with some that the data set returns: a wrapper may return others than it stores."""
    n = len(dataset)
    with seeded(Stream.named(0, "labels")):
        for index in sorted({0, n - 1, *range(0, n, max(1, n // SPOT_CHECKS))}) if n else ():
            item = dataset[index]
            if isinstance(item, tuple | list) and len(item) > 1 and not _same(_label_of(item, index), labels[index]):
                raise InputError(
                    f"sample {index} of the data set comes with the label {_label_of(item, index)!r}, but {source} "
                    f"say {_plain(labels[index])!r}; pass the labels to train on as labels=, and have the data set "
                    "return the same ones"
                )


def _plain(label: Any) -> Any:
    return label.tolist() if isinstance(label, Tensor | np.ndarray | np.generic) else label


def _same(one: Any, other: Any) -> bool:
    """Compare two labels; numbers may have been rounded to another precision."""
    one, other = _plain(one), _plain(other)
    if isinstance(one, float | list):
        return np.shape(one) == np.shape(other) and np.allclose(one, other, rtol=1e-5)
    return bool(one == other)


def _label_of(item: Any, index: int) -> Any:
    if not isinstance(item, tuple | list) or len(item) < 2:
        raise InputError(
            f"sample {index} of the data set is a {type(item).__name__}, not (input, label); pass labels= separately"
        )
    return item[1].tolist() if isinstance(item[1], Tensor) else item[1]


def as_tensor(values: Any) -> Tensor:
    """Make a tensor of anything array-like; it is a copy, for torch shares no array that is read-only or reversed."""
    return values.detach() if isinstance(values, Tensor) else torch.from_numpy(np.array(values))


def check_labels(labels: Any, n: int, *, any_kind: bool = False) -> Tensor:
    """Check labels, and return them as int64; see :func:`label_tensor` for ``any_kind``."""
    if n == 0:
        raise InputError("the data set is empty; there is nothing to train on")
    found = label_tensor(labels, n, any_kind=any_kind)
    if found.is_floating_point():
        return found
    low = int(found.min())
    if int(found.max()) == low:
        raise InputError(f"all {n} labels are {low}; at least two classes are needed")
    return found


def label_tensor(labels: Any, n: int, *, any_kind: bool = False) -> Tensor:
    """Make a tensor of integer labels; with ``any_kind``, also of numbers and of rows of 0 and 1, as floats."""
    if any_kind:
        with suppress(TypeError, ValueError, RuntimeError):
            labels = as_tensor(labels)
        if isinstance(labels, Tensor) and (labels.is_floating_point() or labels.ndim == 2):
            return _targets(labels, n)
    return integer_labels(labels, n)


def _targets(found: Tensor, n: int) -> Tensor:
    if found.ndim not in (1, 2) or len(found) != n or found.numel() == 0:
        raise InputError(
            f"labels have shape {tuple(found.shape)} for {n} samples; give one number, or one row, a sample"
        )
    if not found.is_floating_point() and not bool(((found == 0) | (found == 1)).all()):
        raise InputError(
            "rows of integers as labels must hold 0 and 1 alone (which labels apply); give floats otherwise"
        )
    targets = found.to(torch.float32).cpu()
    if not bool((finite := torch.isfinite(targets).reshape(n, -1).all(1)).all()):
        raise InputError(f"the label of sample {int(finite.int().argmin())} is NaN or infinite; fill or remove it")
    return targets


def integer_labels(labels: Any, n: int) -> Tensor:
    """Make labels int64: one per sample, none negative."""
    try:
        found = as_tensor(labels)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(
            "labels must be integers 0..classes-1; map names to numbers first, "
            "for example with numpy.unique(names, return_inverse=True)"
        ) from error
    if found.ndim != 1:
        raise InputError(f"labels have shape {tuple(found.shape)}; one integer per sample is needed")
    if len(found) != n:
        raise InputError(f"there are {len(found)} labels for {n} samples; give one per sample")
    if found.is_floating_point() or found.is_complex() or found.dtype == torch.bool:
        raise InputError(
            f"labels are {found.dtype}; they must be integers 0..classes-1 (convert them first), or give criterion= "
            "for labels of another kind"
        )
    found = found.to(torch.int64).cpu()
    where = int(found.argmin())
    if found[where] < 0:
        raise InputError(f"label {int(found[where])} of sample {where} is negative; labels must be 0..classes-1")
    return found
