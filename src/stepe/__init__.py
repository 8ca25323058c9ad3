"""stepe: train on labels you cannot trust, and get back the ones that are probably wrong.

``import stepe`` loads neither torch nor scikit-learn: each name is imported when it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from stepe.errors import InputError, RunError, StepeError

if TYPE_CHECKING:
    from stepe.app.clean import clean
    from stepe.app.run import Run
    from stepe.integrations.sklearn import StepEClassifier
    from stepe.integrations.torch import StepE
    from stepe.loop.metrics import Truth
    from stepe.training.building import Result
    from stepe.training.fit import fit

__version__ = "0.1.0"
__all__ = ["InputError", "Result", "Run", "RunError", "StepE", "StepEClassifier", "StepeError", "Truth", "clean", "fit"]

_LAZY = {
    "Result": "stepe.training.building",
    "Run": "stepe.app.run",
    "StepE": "stepe.integrations.torch",
    "StepEClassifier": "stepe.integrations.sklearn",
    "Truth": "stepe.loop.metrics",
    "clean": "stepe.app.clean",
    "fit": "stepe.training.fit",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'stepe' has no attribute {name!r}")
    return getattr(import_module(_LAZY[name]), name)


def __dir__() -> list[str]:
    return __all__
