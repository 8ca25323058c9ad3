"""Rows that may be of none of the known classes: a guess that is spread over many of them says so.

A guess usually hesitates between two classes or three; one that hesitates between more, and far more than guesses
usually do on these data, is about an input of another kind. Where classes overlap, texts or rows of few columns, it may
as well be about one that nobody can tell: there, nothing is made of it.
"""

import numpy as np

from stepe.beliefs.noise_model import Bools, Floats
from stepe.beliefs.parts import in_parts

USUAL = 3.0
"""classes between which a guess may hesitate, and"""
UNUSUAL = 2.0
"""so many times as many as half of all guesses do"""
TINY = 1e-12


def outside(guess: Floats, strength: float, learned: Bools | None = None) -> Floats:
    """Return how likely each row is of none of the classes.

    Args:
        guess: rows x classes.
        strength: the probability at which a guess ends up that hesitates between all classes.
        learned: the rows that tell how many classes guesses usually hesitate between; by default all.

    >>> guess = np.vstack([np.eye(10), np.full(10, 0.1)])
    >>> outside(guess, 0.5)[-2:].round(6).tolist(), outside(guess, 0.0)[-1].item()
    ([0.0, 0.5], 0.0)
    """
    n, classes = guess.shape
    if not strength or classes <= USUAL:
        return np.zeros(n)
    between = hesitation(guess)
    most = max(USUAL, UNUSUAL * float(np.median(between if learned is None else between[learned])))
    found: Floats = strength * np.clip((between - most) / max(classes - most, TINY), 0, 1)
    return found


def hesitation(guess: Floats) -> Floats:
    """Measure between how many classes each guess hesitates: the exponential of its entropy.

    >>> hesitation(np.array([[1.0, 0.0], [0.5, 0.5]])).round(6).tolist()
    [1.0, 2.0]
    """
    found = np.empty(len(guess))
    for part in in_parts(*guess.shape):
        found[part] = np.exp(-(guess[part] * np.log(np.maximum(guess[part], TINY))).sum(1))
    return found
