"""From what is known, or can be found out, about the noise to rho_max, the largest fraction ever dropped."""

import math
from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from stepe.beliefs.rate import CAP, MARGIN, UNKNOWN, Rate
from stepe.errors import InputError
from stepe.loop.schedule import check_drop_fraction

CHANCE, OWN_ERROR = 0.1, 0.8
"""independent models differ on some samples by chance; of what they differ on beyond that, about so much is their own
mistakes, which pass for wrong labels"""
LEARNED = 0.05
"""a model that explains less than this part of what naming the largest class leaves open knows nothing"""
FAMILIAR = 0.2
"""a class of which less than this part is recognised may as well be hard as mislabelled"""
HOPELESS = 0.4
"""where so many samples are in doubt, nothing is sure but that some labels are unrelated to their inputs"""
SURELY = 0.5
"""of those: the rest allows for models of texts, which took some of their own mistakes for such labels"""
TAIL = 0.7
"""classes beyond this quantile of the guesses are far from what a model would say"""
SHORTEST_TAIL = 0.05
"""of the labels; with less beyond it, as with two classes, the tail says nothing"""
KNOWING = 0.5, 0.7
"""models that give less than the first probability to what they get right cannot tell what is far down; with more than
the second they can"""


def rho_max_from_rate(rate: float) -> float:
    """Follow the paper's rule: ``min(0.5, rate + 0.05)``.

    >>> rho_max_from_rate(0.4)
    0.45
    """
    return min(CAP, check_rate(rate) + MARGIN)


def check_rate(rate: float) -> float:
    """Refuse what is no share."""
    if not 0 <= rate <= 1:
        raise InputError(f"the noise rate is {rate!r}; it must be a share in [0, 1]")
    return float(rate)


def resolve_rho_max(
    rho_max: float | Literal["auto"] | None,
    noise_rate: float | None,
    rule: Callable[[float], float] = rho_max_from_rate,
) -> float | None:
    """rho_max as the user gave it, or by a rule from a known noise rate; ``None`` if it is to be found out."""
    if rho_max == "auto" or (rho_max is None and noise_rate is None):
        return None
    if rho_max is not None:
        check_drop_fraction(rho_max)
        return float(rho_max)
    assert noise_rate is not None
    return rule(noise_rate)


def has_learned(agreed: float, labels: Tensor) -> bool:
    """Say whether a model that agrees with so many labels knows more than which class is the largest."""
    largest = float(torch.bincount(labels).max() / len(labels))
    return agreed >= largest + LEARNED * (1 - largest)


def deniable_share(guess: Tensor, labels: Tensor) -> Tensor:
    """Return the largest share of each class's labels that guesses may call wrong: all, unless it is hardly recognised.

    A model that never names a class contradicts all of its labels, and knows none of them to be wrong. So some of a
    class must be recognised first: a fifth, or where few labels are agreed with at all, half of the usual share.
    Where less is, the claims shrink in proportion.

    >>> guess = torch.tensor([[0.8, 0.1, 0.1], [0.1, 0.8, 0.1], [0.4, 0.4, 0.2], [0.6, 0.2, 0.2]])
    >>> deniable_share(guess, torch.tensor([0, 1, 2, 2]))
    tensor([1., 1., 0.])
    """
    labels = labels.to(guess.device)
    classes, agreed = guess.shape[1], guess.argmax(1) == labels
    counts = torch.bincount(labels, minlength=classes)
    recognised = torch.bincount(labels[agreed], minlength=classes) / counts.clamp(min=1)
    enough = (agreed.float().mean() / 2).clamp(min=1 / len(labels), max=FAMILIAR)
    return (recognised / enough).clamp(max=1)


def estimate_rate(
    guess: Tensor, labels: Tensor, *, unsure: float | None = None, doubt: float | None = None, leaning: bool = False
) -> Rate:
    """Estimate the share of wrong labels, from guesses (n x classes) of models that have not learned them by heart.

    The confident joint (Northcutt et al., 2021): a label counts as contradicted where another class is as likely as
    it typically is among the samples that carry its name. A model's own mistakes pass for noise, and nothing in the
    labels tells the two apart; the share of samples on which independent models differ (``unsure``, where there are
    several) does, in part, and is taken off. Labels unrelated to their inputs (:func:`unrelated_share`) count in any
    case, and half of them is the least that is wrong. Else the range is as wide as the ``doubt``: the largest such
    share seen, or else the mean probability of all but the most likely class. Guesses that are no better than naming
    one class for all say nothing: a rate of 0, and a range of everything.

    A model that trains on the very labels, half replaced by its guess, is ``leaning`` to them: the joint, which leaves
    out who is unsure, misses much of what is wrong then. What it still calls otherwise counts, all of it: with its own
    mistakes, without what it was talked into. Nothing says that these are equally many.
    """
    guess, labels = guess.float().cpu().nan_to_num(), labels.cpu()
    counts = torch.bincount(labels, minlength=guess.shape[1])
    if not has_learned(float((guess.argmax(1) == labels).double().mean()), labels):
        return UNKNOWN
    if leaning:
        agreed = torch.bincount(labels[guess.argmax(1) == labels], minlength=guess.shape[1])
        wrong = torch.where(counts > 0, 1 - agreed / counts.clamp(min=1), 0.0)
    else:
        joint = confident_joint(guess, labels)
        # Rows to the class counts: classes in which few are confident must not count for less.
        rows = joint.sum(1)
        wrong = torch.where(rows > 0, 1 - joint.diagonal() / rows.clamp(min=1), 0.0)
    contradicted = float((wrong * counts).sum() / counts.sum())
    denied = float((wrong.minimum(deniable_share(guess, labels)) * counts).sum() / counts.sum())
    unrelated = unrelated_share(guess, labels)
    rate = max(unrelated, denied - OWN_ERROR * max(0.0, (unsure or 0.0) - CHANCE))
    if doubt is None:
        doubt = float(1 - guess.amax(1).mean()) if unsure is None else unsure
    spread = 1.645 * (max(rate * (1 - rate), 1 / len(labels)) / len(labels)) ** 0.5
    low = max(SURELY * unrelated, rate * max(0.0, 1 - doubt / HOPELESS) - spread)
    return Rate(rate, low, min(1.0, max(rate, contradicted) + doubt / 4 + spread), unrelated)


def unrelated_share(guess: Tensor, labels: Tensor) -> float:
    """Estimate the share of labels that are wrong without any relation to their input, less a standard error.

    A right label that a model does not guess is still among the likely ones; one that fell anywhere is as often far
    down. So the labels far down tell how many fell anywhere, as large p-values tell how many hypotheses are true
    (Storey, 2002). The two most likely classes are never far down. To a model that knows little, right labels are far
    down too: it counts for less.
    """
    n, classes = guess.shape
    used = torch.bincount(labels, minlength=classes) / n
    order = torch.argsort(guess, dim=1, descending=True, stable=True)
    use = used[order]
    far = use.cumsum(1) - use / 2 > TAIL
    far[:, :2] = False
    by_chance = float(((use * far).sum(1) / use[:, 1:].sum(1).clamp(min=1 / n)).mean())
    if by_chance < SHORTEST_TAIL:
        return 0.0
    far_down = (far & (order == labels[:, None])).any(1)
    seen = float((far_down * deniable_share(guess, labels)[labels]).double().mean())
    error = math.sqrt(max(seen, 1 / n) / n)
    return _knowledge(guess, labels) * max(0.0, seen - error) / by_chance


def _knowledge(guess: Tensor, labels: Tensor) -> float:
    """Measure from 0 to 1 how sure models are of what they get right."""
    sure, predicted = guess.max(1)
    right = sure[predicted == labels]
    none, full = KNOWING
    return float(((right.mean() - none) / (full - none)).clamp(0, 1)) if len(right) else 0.0


def confident_joint(guess: Tensor, labels: Tensor) -> Tensor:
    """Count how many samples of given class i are confidently of class j (classes x classes).

    >>> confident_joint(torch.tensor([[0.9, 0.1], [0.2, 0.8], [0.1, 0.9]]), torch.tensor([0, 0, 1]))
    tensor([[1., 0.],
            [0., 1.]])
    """
    classes = guess.shape[1]
    given = guess.gather(1, labels[:, None]).squeeze(1)
    counts = torch.bincount(labels, minlength=classes)
    usual = torch.zeros(classes, device=guess.device).index_add_(0, labels, given) / counts.clamp(min=1)
    # A class that nobody carries is nobody's.
    confident = (guess >= usual) & (counts > 0)
    likely = torch.where(confident, guess, -1.0).argmax(1)
    counted = confident.any(1)
    pairs = labels[counted] * classes + likely[counted]
    return torch.bincount(pairs, minlength=classes * classes).reshape(classes, classes).float()
