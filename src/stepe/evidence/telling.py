"""How much guesses tell about labels, by how sure they are of themselves.

Of an input that shows nothing, a picture of noise or a row of nonsense, a model still guesses something, and now and
then the label by chance: the guess alone cannot tell such a sample from a hard one. Many of them together give
themselves away: where guesses are as unsure as theirs, labels agree with them no more often than by chance.
"""

import torch
from torch import Tensor

PARTS, FEWEST_PARTS, SMALLEST_PART = 20, 5, 100
"""the samples, from the surest guess to the least sure one, in so many parts; in fewer where they would be too small,
and not at all where nobody could say which part is a usual one"""
SURE, FAVOUR = 2.5, 0.5
"""standard errors: by so many a part has to tell less than usual, or all of it is believed; by so many it is believed
to tell more than it did"""
TINY = 1e-9


def telling(guess: Tensor, labels: Tensor) -> Tensor:
    """P(the input shows anything of a class), one per sample, from guesses (n x classes) of models that did not train
    on it; 1 unless the labels speak against it.

    What a guess tells is how much likelier it makes the label than chance does, over what it claims: as much if it is
    right as often as it says, nothing if labels do not depend on it. Only what sets it apart from how often the labels
    are used is a claim, or else guesses about rare classes would pass for none. The less sure guesses are, the less
    they may tell, which settles parts that are too small to be sure of (isotonic regression); wrong labels take their
    share of all parts alike, and the usual part is the measure. What is in doubt is in favour of the samples: of two
    classes, the least sure guesses claim so little that next to nothing can be held against them.
    """
    guess, labels = guess.float().cpu().nan_to_num(), labels.cpu()
    n, classes = guess.shape
    count = min(PARTS, n // SMALLEST_PART)
    if count < FEWEST_PARTS:
        return torch.ones(n)
    used = torch.bincount(labels, minlength=classes) / n
    apart = guess - used
    by_chance, squared = apart @ used, apart.square()
    each = torch.stack(
        [
            apart.gather(1, labels[:, None]).squeeze(1) - by_chance,
            squared.sum(1),
            squared @ used - by_chance.square(),
        ]
    )
    parts = torch.tensor_split(torch.argsort(entropy(guess), stable=True), count)
    told, claimed, variance = torch.stack([each[:, part].double().sum(1) for part in parts], dim=1)
    claimed, variance = claimed.clamp(min=TINY), variance.clamp(min=TINY)
    falling, block = _falling(told / claimed, claimed.square() / variance)
    usual = falling.median()
    if usual <= 0:  # guesses that know nothing say nothing about inputs either
        return torch.ones(n)
    error = torch.stack([variance[block == own].sum().sqrt() / claimed[block == own].sum() for own in block])
    doubted = usual - falling > SURE * error
    share = torch.where(doubted, (falling + FAVOUR * error) / usual, 1.0).clamp(0, 1).cummin(0).values.float()
    shows = torch.empty(n)
    for part, value in zip(parts, share, strict=True):
        shows[part] = value
    return shows


def entropy(guess: Tensor) -> Tensor:
    """Measure how unsure each guess is, from 0 to 1.

    >>> entropy(torch.tensor([[1.0, 0.0], [0.5, 0.5]]))
    tensor([0., 1.])
    """
    logs = guess.clamp(min=torch.finfo(torch.float32).tiny).log()
    return (guess * -logs).sum(1) / torch.tensor(float(max(guess.shape[1], 2))).log()


def _falling(values: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Find the closest numbers that never rise, and the block of equal ones that each belongs to."""
    from sklearn.isotonic import isotonic_regression  # needs more than torch and numpy

    fitted = isotonic_regression(values.numpy(), sample_weight=weight.numpy(), increasing=False)
    falling = torch.tensor(fitted.tolist(), dtype=torch.float64)
    return falling, torch.unique_consecutive(falling, return_inverse=True)[1]
