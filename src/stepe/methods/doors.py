"""Which method each door of stepe takes where nobody chose one: one table for all of them."""

import logging
from collections.abc import Callable
from typing import Literal

from stepe.methods.base import Method

Door = Literal["fit", "StepE", "clean", "StepEClassifier", "StepEClassifier(estimator)"]
DEFAULT_METHOD: dict[Door, str] = {
    # Here the loss is somebody else's, or may be: Step-E, which only chooses samples, leaves it as it is.
    "fit": "step-e",
    "StepE": "step-e",
    "StepEClassifier(estimator)": "step-e",
    # Here the network and its loss are ours: Step-E+ also trains on what the probes tell.
    "clean": "step-e-plus",
    "StepEClassifier": "step-e-plus",
}
LOG = logging.getLogger("stepe")


def announce_method(door: Door, method: str | Method, say: Callable[[str], None] = LOG.info) -> None:
    """Say by which method a door trains; by default to the logger ``stepe``."""
    name = method if isinstance(method, str) else method.name
    say(f"{door}: method {name}{', the default' if name == DEFAULT_METHOD[door] else ''}")
