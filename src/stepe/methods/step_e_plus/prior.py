"""How often each class really occurs, and a guess that agrees with it.

Where wrong labels name some classes too often, a network that trains on them guesses these too often. Where it is known
how often classes occur, its guesses can be put right: divided by how often they say each class, times how often it
occurs.
"""

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from stepe.errors import InputError

Prior = Literal["none", "uniform", "given"] | Sequence[float]
"""``none``: guesses stay as they are. ``uniform``: all classes occur alike, as in most benchmarks. ``given``: as often
as the labels say. Numbers, one a class: as often as they say.
"""
NAMES = ("none", "uniform", "given")


def check_prior(prior: Prior, classes: int) -> None:
    """Refuse unknown names, and numbers that are no shares."""
    if isinstance(prior, str):
        if prior not in NAMES:
            raise InputError(f"prior is {prior!r}; choose one of {', '.join(NAMES)}, or give one number a class")
        return
    numbers = torch.as_tensor(list(prior), dtype=torch.float32)
    if numbers.shape != (classes,) or not bool((torch.isfinite(numbers) & (numbers > 0)).all()):
        raise InputError(f"a prior needs one positive number for each of the {classes} classes")


def class_prior(prior: Prior, labels: Tensor, classes: int) -> Tensor | None:
    """Return the share of each class, or ``None`` for guesses as they are; no class is impossible.

    >>> class_prior("given", torch.tensor([0, 0, 1]), 2)
    tensor([0.6000, 0.4000])
    """
    if isinstance(prior, str):
        if prior == "none":
            return None
        if prior == "uniform":
            return torch.full((classes,), 1 / classes)
        counted = torch.bincount(labels, minlength=classes).float() + 1
        return counted / counted.sum()
    shares = torch.as_tensor(list(prior), dtype=torch.float32)
    return shares / shares.sum()


def align(guess: Tensor, prior: Tensor | None) -> Tensor:
    """Scale guesses (n x classes), each as likely as ever, to what the prior has on average.

    >>> align(torch.tensor([[0.9, 0.1], [0.9, 0.1]]), torch.tensor([0.5, 0.5]))
    tensor([[0.5000, 0.5000],
            [0.5000, 0.5000]])
    """
    guess = guess.float()
    if prior is None:
        return guess
    smallest = torch.finfo(torch.float32).tiny
    aligned = guess * (prior.to(guess.device) / guess.nanmean(0).clamp(min=smallest))
    return aligned / aligned.sum(1, keepdim=True).clamp(min=smallest)
