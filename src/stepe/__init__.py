"""stepe: train on labels you cannot trust, and get back the ones that are probably wrong.

``import stepe`` loads torch and numpy only; what needs more is imported when it is first used.
"""

from typing import TYPE_CHECKING, Any

from stepe.errors import InputError, RunError, StepeError
from stepe.fit import fit
from stepe.metrics import Truth
from stepe.training import Result

if TYPE_CHECKING:
    from stepe.integrations.sklearn import StepEClassifier
    from stepe.integrations.torch import StepE
    from stepe.recipes.clean import clean
    from stepe.run import Run

__version__ = "0.1.0"
__all__ = ["InputError", "Result", "Run", "RunError", "StepE", "StepEClassifier", "StepeError", "Truth", "clean", "fit"]

_LAZY = {
    "StepE": "stepe.integrations.torch",
    "StepEClassifier": "stepe.integrations.sklearn",
    "Run": "stepe.run",
    "clean": "stepe.recipes.clean",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'stepe' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_LAZY[name]), name)


def __dir__() -> list[str]:
    return __all__
