"""What to train on where labels are not believed, or not quite: the guess, instead of the label or beside it."""

import torch
import torch.nn.functional as F
from torch import Tensor


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
