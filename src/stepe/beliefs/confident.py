"""Confident learning: which labels to prune, from probabilities of models that never saw them (Northcutt et al., 2021).

What ``cleanlab.filter.find_label_issues`` finds with its defaults (``prune_by_noise_rate``), written anew and tested
equal to it. The confident joint is its variant, too: that of :mod:`stepe.beliefs.noise_model` settles ties otherwise.
"""

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]

CLOSE = 1e-6
"""probabilities that differ by less are the same"""
LOWEST_THRESHOLD = 2 * CLOSE


def prunable(probability: Numbers, labels: Counts) -> npt.NDArray[np.bool_]:
    """Choose labels to prune: from class i, as many as are estimated to be of class j, those that lean to j most.

    A label that the probabilities agree with stays in any case, as does at least one of every class.
    """
    probability = np.asarray(probability, dtype=np.float64)
    wrong = _leaving_one(calibrated_joint(probability, labels))
    chosen = np.zeros(len(labels), dtype=bool)
    for given, counts in enumerate(wrong):
        members = np.flatnonzero(labels == given)
        if len(members) < 2:
            continue
        for other in np.flatnonzero(counts):
            if other != given:
                lean = probability[members, other] - probability[members, given]
                chosen[members[np.argsort(-lean)[: counts[other]]]] = True
    favoured = probability.copy()
    favoured[np.arange(len(labels)), labels] += CLOSE
    contradicted: npt.NDArray[np.bool_] = favoured.argmax(1) != labels
    return chosen & contradicted


def calibrated_joint(probability: Numbers, labels: Counts) -> Counts:
    """Count how many samples of given class i are of class j (classes x classes), scaled to the sizes of the classes.

    >>> calibrated_joint(np.array([[0.9, 0.1], [0.0, 1.0], [0.8, 0.2], [0.1, 0.9]]), np.array([0, 0, 0, 1]))
    array([[2, 1],
           [0, 1]])
    """
    classes = probability.shape[1]
    size = np.bincount(labels, minlength=classes)
    confident = is_confident(probability, usual_confidence(probability, labels))
    likely = np.where(confident.sum(1) > 1, probability.argmax(1), confident.argmax(1))
    counted = confident.any(1)
    # In cleanlab's order of memory: sums then round alike, which settles ties between equal fractions alike.
    joint = np.zeros((classes, classes), order="F")
    np.add.at(joint, (labels[counted], likely[counted]), 1)
    np.fill_diagonal(joint, joint.diagonal().clip(min=1))  # somebody in every class is right
    scaled = joint / joint.sum(1, keepdims=True) * size[:, None]
    return np.stack([_rounded(row) for row in scaled / scaled.sum() * len(labels)])


def is_confident(probability: Numbers, usual: Numbers) -> npt.NDArray[np.bool_]:
    """Say where a row is as surely of a class as the rows with that label usually are (rows x classes)."""
    confident: npt.NDArray[np.bool_] = probability >= usual - CLOSE
    return confident


def usual_confidence(probability: Numbers, labels: Counts) -> Numbers:
    """Return how likely rows with a label usually are to be of its class; a class that nobody carries is nobody's."""
    classes = probability.shape[1]
    size = np.bincount(labels, minlength=classes)
    own = np.bincount(labels, weights=probability[np.arange(len(labels)), labels], minlength=classes)
    return np.where(size > 0, np.maximum(own / np.maximum(size, 1), LOWEST_THRESHOLD), np.inf)


def _rounded(row: Numbers) -> Counts:
    """Whole numbers of the same sum: those that rounding moved furthest give way."""
    whole = row.round()
    missing = int(np.round(row.sum().round() - whole.sum()))
    order = np.argsort(row - whole)
    whole[order[::-1][:missing] if missing > 0 else order[: abs(missing)]] += np.sign(missing)
    return whole.astype(np.int64)


def _leaving_one(joint: Counts) -> Counts:
    """Leave at least one sample of every class right in a joint; its other entries share the difference."""
    right = np.maximum(joint.diagonal(), 1)
    others = np.maximum(np.count_nonzero(joint, axis=1) - 1, 1)
    lowered = np.maximum(joint - ((right - joint.diagonal()) / others)[:, None], 0)
    np.fill_diagonal(lowered, right)
    whole: Counts = lowered.astype(np.int64)
    return whole
