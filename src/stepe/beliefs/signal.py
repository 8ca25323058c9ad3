"""What a look at the data can tell at all: whether it says anything of the labels, and which classes it recognises."""

import numpy as np

from stepe.beliefs.noise_model import Bools, Floats, Labels

SURELY = 2.33
"""standard errors by which guesses must know more than chance, which gets so far once in a hundred times"""
RARE = 0.5
"""a class is rare that has less than this share of what it would have if all classes had alike"""
AT_LEAST, SHARE = 10, 0.25
"""of a rare class, so many rows are looked at, or this share of its labels: those likeliest to be of it"""
RECOGNISED = 2 / 3
"""share of them that must carry its label"""
CLOSE = 1e-6


def has_signal(labels: Labels, guess: Floats) -> bool:
    """Say whether guesses give the labels more than they would give labels of chance, as frequent as these.

    >>> labels = np.array([0, 1] * 20)
    >>> has_signal(labels, np.full((40, 2), 0.5)), has_signal(labels, np.eye(2)[labels] * 0.8 + 0.1)
    (False, True)
    """
    frequency = np.bincount(labels, minlength=guess.shape[1]) / len(labels)
    gain = guess[np.arange(len(labels)), labels] - guess @ frequency
    return bool(gain.mean() > SURELY * gain.std() / np.sqrt(len(gain)) + CLOSE)


def recognised_classes(labels: Labels, guess: Floats) -> Bools:
    """Say of each class whether its labels can be called wrong: none's, where guesses explain no labels at all."""
    signal = has_signal(labels, guess)
    recognised = np.full(guess.shape[1], signal)
    if signal:
        recognised[hardly_recognised(labels, guess)] = False
    return recognised


def hardly_recognised(labels: Labels, guess: Floats) -> list[int]:
    """Find rare classes whose likeliest rows mostly carry other labels: theirs cannot be called wrong.

    >>> guess = np.eye(3)[np.repeat([0, 1, 1], [50, 40, 10])]
    >>> hardly_recognised(np.repeat([0, 1, 2], [50, 40, 10]), guess)
    [2]
    """
    found = []
    for number in rare_classes(labels, guess.shape[1]):
        looked_at = max(AT_LEAST, int(SHARE * np.count_nonzero(labels == number)))
        likeliest = np.argsort(-guess[:, number], kind="stable")[:looked_at]
        if (labels[likeliest] == number).mean() < RECOGNISED:
            found.append(number)
    return found


def rare_classes(labels: Labels, classes: int) -> list[int]:
    """Find the classes with few labels for their number.

    >>> rare_classes(np.repeat([0, 1], [90, 10]), 2)
    [1]
    """
    sizes = np.bincount(labels, minlength=classes)
    return np.flatnonzero((sizes > 0) & (sizes < RARE * len(labels) / classes)).tolist()
