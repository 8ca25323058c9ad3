"""What to train on where labels are not believed, or not quite: the guess, instead of the label or beside it."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from stepe.errors import InputError


def check_takes_probabilities(
    criterion: Callable[[Tensor, Tensor], Tensor], classes: int, device: torch.device
) -> None:
    """Refuse a criterion for class indices alone: it would fail only when the first label is corrected."""
    outputs, labels = torch.zeros(2, classes, device=device), torch.arange(2, device=device) % classes
    try:
        criterion(outputs, labels)
    except Exception:  # for outputs of another form: nothing can be said before there are some
        return
    try:
        losses = criterion(outputs, F.one_hot(labels, classes).float())
        problem = None if losses.shape == labels.shape else f"its losses then have the shape {tuple(losses.shape)}"
    except Exception as error:
        problem = f"it says: {error}"
    if problem:
        raise InputError(
            "corrected labels are probabilities, one row of them a sample, and the criterion takes class indices alone "
            f"({problem}): give one that takes both, as F.cross_entropy(..., reduction='none') does, or train without "
            "corrections, by correct=False and refine=0"
        )


def corrected(labels: Tensor, kept: Tensor, guess: Tensor, refine: float | Tensor) -> Tensor:
    """One row of class probabilities per sample: a kept label, by ``refine`` replaced by the guess; else the guess.

    >>> guess = torch.tensor([[0.2, 0.8], [0.3, 0.7]])
    >>> corrected(torch.tensor([0, 0]), torch.tensor([True, False]), guess, 0.5)
    tensor([[0.6000, 0.4000],
            [0.3000, 0.7000]])
    """
    given = F.one_hot(labels.to(guess.device), guess.shape[1]).to(guess.dtype)
    guess = torch.where(torch.isfinite(guess), guess, given)  # nothing else is known of it
    return torch.where(kept.to(guess.device)[:, None], torch.lerp(given, guess, refine), guess)


def confidence(kept: Tensor, guess: Tensor) -> Tensor:
    """How much each sample counts: a kept one fully, another as far as its guess is sure.

    >>> confidence(torch.tensor([True, False]), torch.tensor([[0.2, 0.8], [0.3, 0.7]]))
    tensor([1.0000, 0.7000])
    """
    return torch.where(kept.to(guess.device), 1.0, guess.amax(1).nan_to_num(nan=0.0))
