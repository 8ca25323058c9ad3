"""What a label is, and what outputs say about it.

*Classes* are integers. *Marks* are several labels at once, each yes or no: a row of 0 and 1 per sample, and a row of
logits as output. *Numbers* are what a regression learns: one per sample, or a row of them.
"""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from stepe.errors import InputError
from stepe.loop.kinds import LabelKind
from stepe.loop.ledger import Observation
from stepe.loop.probe import read_logits

Read = Callable[[Tensor, Tensor | None, bool], dict[str, Tensor]]
"""(outputs, given labels, whether probabilities are wanted) -> columns of an observation"""

LARGE = 3.0
"""robust standard deviations beyond which a residual contradicts the given number"""
DEVIATION = 1.4826
"""times the median of normal residuals' sizes is their standard deviation"""


def kind_of(labels: Tensor) -> LabelKind:
    """Tell what labels are, by type, shape and values.

    >>> kind_of(torch.tensor([0, 2])), kind_of(torch.tensor([0.5, 2])), kind_of(torch.tensor([[0.0, 1.0]]))
    ('classes', 'numbers', 'marks')
    """
    if not labels.is_floating_point():
        return "classes"
    return "marks" if labels.ndim == 2 and bool(((labels == 0) | (labels == 1)).all()) else "numbers"


def read_marks(logits: Tensor, marks: Tensor | None, probabilities: bool = False) -> dict[str, Tensor]:
    """Read the mark that the logits disagree with most: its number, how sure they are, and by which margin."""
    if marks is None:
        return {}
    agreeing = _shaped(logits, marks) * (2 * marks - 1)
    margin, worst = agreeing.min(1)
    return {
        "prediction": worst,
        "confidence": torch.sigmoid(-margin),
        "margin": margin,
        "given_probability": torch.sigmoid(margin),
    }


def read_numbers(outputs: Tensor, numbers: Tensor | None, probabilities: bool = False) -> dict[str, Tensor]:
    """Read the predicted numbers; how far off they are shows only beside all others, see :func:`with_residuals`."""
    return {} if numbers is None else {"output": _shaped(outputs, numbers)}


def _shaped(outputs: Tensor, labels: Tensor) -> Tensor:
    if outputs.numel() != labels.numel():
        raise InputError(
            f"the outputs have shape {tuple(outputs.shape)} and the labels {tuple(labels.shape)}; give one output per "
            "number or mark of a label, or the losses alone"
        )
    return outputs.detach().to(torch.float32).reshape(labels.shape)


READERS: dict[LabelKind, Read] = {"classes": read_logits, "marks": read_marks, "numbers": read_numbers}


def with_residuals(seen: Observation, labels: Tensor) -> Observation:
    """Contradict given numbers, by a negative margin, where the residual is large beside the usual one.

    The usual size is that of the median, which wrong numbers hardly move as long as they are fewer than half.
    """
    if seen.output is None:
        return seen
    residual = (seen.output - labels.to(seen.output)).abs().reshape(len(labels), -1)
    usual = DEVIATION * residual.nanmedian(0).values
    return replace(seen, margin=LARGE - (residual / usual.clamp(min=torch.finfo(torch.float32).tiny)).amax(1))
