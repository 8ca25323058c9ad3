"""The methods by name: each a file, named after its paper, and a line in ``METHODS``.

To add one, write the file and the line; the contract suite picks it up. May import ``loop``, ``samples``, ``models``,
``beliefs``, ``evidence`` and ``options``; a method knows no engine and no file.
"""

from typing import Any

from stepe.errors import InputError
from stepe.loop.task import Batch, Criterion, Forward, Task, View
from stepe.methods.base import Method
from stepe.methods.co_teaching import CoTeaching
from stepe.methods.elr import EarlyLearning
from stepe.methods.gce import GeneralisedCrossEntropy
from stepe.methods.label_smoothing import LabelSmoothing
from stepe.methods.margins import Margins
from stepe.methods.mixup import Mixup
from stepe.methods.one_shot import OneShot
from stepe.methods.oracle import Oracle
from stepe.methods.plain import Plain
from stepe.methods.pruned import Pruned
from stepe.methods.sce import SymmetricCrossEntropy
from stepe.methods.self_paced import SelfPaced
from stepe.methods.step_e import StepwiseElimination
from stepe.methods.step_e_plus.method import StepEPlus
from stepe.methods.truncation import Truncation

METHODS: dict[str, type[Method]] = {
    method.name: method
    for method in (
        StepwiseElimination,
        StepEPlus,
        Plain,
        Oracle,
        OneShot,
        SelfPaced,
        Truncation,
        LabelSmoothing,
        GeneralisedCrossEntropy,
        SymmetricCrossEntropy,
        Mixup,
        EarlyLearning,
        CoTeaching,
        Margins,
    )
}
"""what :func:`stepe.fit` trains by"""
RECIPES: dict[str, type[Method]] = {Pruned.name: Pruned}
"""what takes several trainings, one after the other (:mod:`stepe.training.prune`)"""
EVERY_METHOD = METHODS | RECIPES

__all__ = [
    "EVERY_METHOD",
    "METHODS",
    "RECIPES",
    "Batch",
    "Criterion",
    "Forward",
    "Method",
    "Task",
    "View",
    "make_method",
    "method_class",
]


def method_class(name: str) -> type[Method]:
    """The class of a method, by name."""
    if name not in EVERY_METHOD:
        raise InputError(f"unknown method {name!r}; choose one of {', '.join(EVERY_METHOD)}")
    return EVERY_METHOD[name]


def make_method(method: str | Method, **options: Any) -> Method:
    """A method from its name and options, or a ready one as it is."""
    if isinstance(method, Method):
        if options:
            raise InputError(f"the options {sorted(options)} belong into the {method.name!r} method you made yourself")
        return method
    kind = method_class(method)
    if unknown := options.keys() - set(kind.options()):
        known = ", ".join(kind.options()) or "none"
        raise InputError(f"method {method!r} has no option {', '.join(sorted(unknown))}; it takes: {known}")
    return kind(**options)
