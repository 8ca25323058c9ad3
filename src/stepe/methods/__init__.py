"""The methods by name: each a file, named after its paper, and a line in ``METHODS``.

To add one, write the file and the line; the contract suite picks it up. May import ``loop``, ``samples``, ``models``,
``beliefs`` and ``options``; a method knows no engine and no file.
"""

from collections.abc import Mapping
from dataclasses import fields
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
from stepe.options.check import check_names, resembling

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
    "OPTIONS_OF_OTHERS",
    "RECIPES",
    "Batch",
    "CoTeaching",
    "Criterion",
    "EarlyLearning",
    "Forward",
    "GeneralisedCrossEntropy",
    "LabelSmoothing",
    "Margins",
    "Method",
    "Mixup",
    "OneShot",
    "Oracle",
    "Plain",
    "Pruned",
    "SelfPaced",
    "StepEPlus",
    "StepwiseElimination",
    "SymmetricCrossEntropy",
    "Task",
    "Truncation",
    "View",
    "make_method",
    "method_class",
    "method_with",
]


def method_class(name: str) -> type[Method]:
    """Find the class of a method by its name."""
    if name not in EVERY_METHOD:
        near = resembling(name, EVERY_METHOD)
        choice = ", ".join(EVERY_METHOD)
        raise InputError(f"unknown method {name!r}; choose one of {choice}{f'; {near}' if near else ''}")
    return EVERY_METHOD[name]


def make_method(method: str | Method, **options: Any) -> Method:
    """Make a method from its name and options; a ready one is returned as it is."""
    if isinstance(method, Method):
        if options:
            raise InputError(
                f"{' and '.join(sorted(options))} beside a {method.name!r} method that is ready; make it with them: "
                f"{type(method).__name__}({', '.join(f'{name}=...' for name in sorted(options))})"
            )
        return method
    kind = method_class(method)
    check_names(options, kind.options(), f"method {method!r}")
    return kind(**options)


def method_with(method: str | Method, options: Mapping[str, Any]) -> Method:
    """Make a method where a signature names the options of Step-E: those left at their defaults were not given."""
    defaults = {option.name: option.default for option in fields(StepwiseElimination)}
    return make_method(method, **{name: value for name, value in options.items() if value != defaults[name]})


OPTIONS_OF_OTHERS = {
    name: f"it is one of method {kind.name!r}: give method={kind.__name__}({name}=...), from stepe.methods"
    for kind in reversed(METHODS.values())
    for name in kind.options()
    if name not in StepwiseElimination.options()
}
"""what to say of an option that only another method has, where a signature names those of Step-E"""
