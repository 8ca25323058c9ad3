"""What class a sample is of, from a guess by its input and a label that may be wrong.

Labels go wrong in patterns: a wrong *lynx* was a cat, hardly ever a truck. A guess alone does not know that; by Bayes'
rule on the guess and on how labels were seen to go wrong, a label that is hard to guess is told from one that is wrong.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from stepe.beliefs.rate import Rate
from stepe.evidence.noise_rate import confident_joint
from stepe.loop.selection import raise_to_floor

SMALLEST = 1e-6
"""added to every probability of a guess: in half precision, small ones are 0"""


@dataclass(frozen=True)
class Posterior:
    """How likely classes and labels are, by a guess and by how labels go wrong."""

    rate: Rate
    """how many labels are wrong"""
    likely: Tensor
    """the probability of every class, n x classes"""
    right: Tensor
    """the probability that the label is right, one per sample"""
    shows: Tensor | None = None
    """the probability that the input shows anything of a class, where that is known"""


def posterior(guess: Tensor, labels: Tensor, noise: Rate) -> Tensor:
    """P(class | input, label), n x classes; the guess's own rows where how labels go wrong is beyond belief.

    >>> guess = torch.tensor([[0.6, 0.4], [0.6, 0.4], [0.6, 0.4], [0.1, 0.9]])
    >>> posterior(guess, torch.tensor([0, 0, 0, 1]), Rate(0.1, 0.0, 0.2)).argmax(1)
    tensor([0, 0, 0, 1])
    """
    return with_evidence(guess, labels, noise)[0]


def with_evidence(guess: Tensor, labels: Tensor, noise: Rate) -> tuple[Tensor, Tensor]:
    """Return the posterior, and how likely the label was to be seen, P(label | input), right or wrong."""
    if noise.is_beyond_belief:
        return guess.float(), of_labels(guess.float(), labels)
    labels = labels.to(guess.device)
    likelihood = label_given_class(guess, labels, noise)
    weighted = (guess.float() + SMALLEST) * likelihood[labels]
    evidence = weighted.sum(1, keepdim=True)
    return weighted / evidence, evidence.squeeze(1)


def of_labels(likely: Tensor, labels: Tensor) -> Tensor:
    """Return how likely each sample's own label is."""
    return likely.gather(1, labels.to(likely.device)[:, None]).squeeze(1)


def shows_by_label(shows: Tensor, evidence: Tensor, labels: Tensor) -> Tensor:
    """P(the input shows anything of a class | label), from the same by the input alone (``stepe.evidence.telling``).

    Of an input that shows nothing, the label is one of those in use by chance: one that was to be expected speaks for
    the input, one that was not speaks against it.

    >>> shows_by_label(torch.tensor([0.5, 0.5]), torch.tensor([0.9, 0.1]), torch.tensor([0, 1]))
    tensor([0.6429, 0.1667])
    """
    labels = labels.to(shows.device)
    by_chance = (torch.bincount(labels) / len(labels))[labels]
    something = shows * evidence.to(shows.device)
    return something / (something + (1 - shows) * by_chance).clamp(min=torch.finfo(torch.float32).tiny)


def beyond_doubt(doubt: Tensor, recognised: Tensor, labels: Tensor) -> Tensor:
    """Find labels that a guess cannot call wrong: of a class that it hardly recognises (:func:`deniable_share`), the
    least doubted.
    """
    nobody = torch.zeros_like(doubt, dtype=torch.bool)
    floor = 1 - recognised.to(doubt.device)
    return raise_to_floor(nobody, doubt, labels.to(doubt.device), floor)


def label_given_class(guess: Tensor, labels: Tensor, noise: Rate) -> Tensor:
    """P(label i | class j), at [i, j].

    Of the wrong labels, the unrelated ones fall on any label in use, each alike; the others follow the confident
    joint. One more sample a class of the first kind, so that nothing is impossible.
    """
    classes = guess.shape[1]
    used = torch.bincount(labels, minlength=classes).float()
    anywhere = torch.outer((used > 0).float(), used).fill_diagonal_(0)
    wrong = anywhere * ((noise.unrelated * len(labels) + classes) / anywhere.sum().clamp(min=1))
    pattern = confident_joint(guess.float(), labels).fill_diagonal_(0)
    related = max(0.0, noise.rate - noise.unrelated) * len(labels)
    wrong += pattern * (related / pattern.sum().clamp(min=1))
    joint = wrong + torch.diag((used - wrong.sum(1)).clamp(min=1))
    return joint / joint.sum(0, keepdim=True)
