"""The nearest neighbours of every row, by the angle between them, and a judge that asks them."""

from dataclasses import dataclass
from importlib.util import find_spec

import numpy as np
import numpy.typing as npt

from stepe.beliefs.parts import in_parts
from stepe.errors import InputError
from stepe.judges.base import Floats, Settings, View
from stepe.judges.blocks import Blocks, Frequencies, Index
from stepe.judges.likelihood import Fit, logarithm, sample_of_rows, tempered

GRID = 2048
"""Rows of length 1 are rounded to this many steps. Products and sums are then whole numbers below 2 ** 24, exact in
single precision, whatever their order: chunks of any size find the same neighbours."""
PAIRS = 1 << 25
"""as many pairs of rows are compared at once, at about 20 bytes each"""


def nearest(features: npt.ArrayLike, k: int, chunk: int | None = None) -> npt.NDArray[np.int64]:
    """Find the ``k`` nearest other rows of each, nearest first; of equally near ones those of lower index.

    A row that is zero or not finite is as near to one as to the other.

    Args:
        features: n rows of numbers; the angle between two of them is their distance (cosine similarity).
        k: how many neighbours; all others, if there are no more.
        chunk: how many rows are compared with all others at once; by default as many as keep memory bounded.

    >>> nearest([[1.0, 0.0], [0.9, 0.1], [0.8, 0.2], [0.0, 1.0]], k=2).tolist()
    [[1, 2], [0, 2], [1, 0], [2, 1]]
    """
    rows = np.asarray(features, dtype=np.float32)
    n = len(rows)
    if rows.ndim != 2 or n < 2:
        raise InputError(f"features are of shape {rows.shape}; neighbours need two rows or more")
    if k < 1 or (chunk is not None and chunk < 1):
        raise InputError(f"k is {k} and chunk {chunk}; both must be 1 or more")
    k = min(k, n - 1)
    whole = _on_the_grid(rows)
    index = np.arange(n, dtype=np.int64)
    found = []
    for part in np.array_split(index, -(-n // (chunk or max(1, PAIRS // n)))):
        # Similarity first, then the index: no two are alike, so there is one order.
        rank = (whole[part] @ whole.T).astype(np.int64) * n - index
        rank[np.arange(len(part)), part] = np.iinfo(np.int64).min
        best = np.argpartition(rank, n - k, axis=1)[:, n - k :]
        order = np.argsort(-np.take_along_axis(rank, best, 1), axis=1)
        found.append(np.take_along_axis(best, order, 1))
    return np.concatenate(found)


def can_search() -> bool:
    """Tell whether neighbours can be found without comparing all pairs."""
    return find_spec("pynndescent") is not None


def nearly_nearest(features: npt.ArrayLike, k: int, *, seed: int = 0) -> npt.NDArray[np.int64]:
    """Find most of the ``k`` nearest other rows of each, nearest first, by NN-descent (Dong et al., 2011).

    Where fewer are found, the row itself stands in their place, which votes for nobody. The same rows and seed give the
    same neighbours.
    """
    from pynndescent import NNDescent

    rows = _on_the_grid(np.asarray(features, dtype=np.float32)) / np.float32(GRID)
    n = len(rows)
    k = min(k, n - 1)
    found = NNDescent(rows, metric="cosine", n_neighbors=k + 1, random_state=seed, n_jobs=1).neighbor_graph[0]
    itself = np.arange(n)[:, None]
    found = np.where(found < 0, itself, found).astype(np.int64)
    order = np.argsort(found == itself, axis=1, kind="stable")  # itself last
    others: npt.NDArray[np.int64] = np.take_along_axis(found, order, 1)[:, :k]
    return others


def _on_the_grid(rows: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Scale rows to length 1, in whole steps; those without a direction become zero."""
    largest = np.abs(rows).max(1, keepdims=True, initial=0)  # taken out first: squares of small numbers vanish
    with np.errstate(all="ignore"):
        scaled = rows / largest
        unit = scaled / np.sqrt((scaled * scaled).sum(1, keepdims=True))
        steps: npt.NDArray[np.float32] = np.round(unit * GRID)
    steps[~np.isfinite(steps).all(1)] = 0
    return steps


COUNTS = (0.3, 1.0, 3.0, 10.0, 30.0)
"""tried: how many neighbours' votes the frequencies of the classes are worth"""


@dataclass(frozen=True)
class Neighbours:
    """A judge by the nearest rows outside of the row's block."""

    found: npt.NDArray[np.int64]
    """the neighbours of each row, as :func:`nearest` gives them"""
    blocks: Blocks
    name: str = "neighbours"

    def look(self, weights: Floats, targets: Floats, settings: Settings | None = None) -> View:
        """Let the neighbours that count vote with their targets."""
        prior = Frequencies(self.blocks, weights, targets)
        if settings is None:
            some = sample_of_rows(weights, targets.shape[1])
            votes = self._votes(some, weights, targets)
            settings = _choose(votes, prior.around(some), weights[some], targets[some])
        probability = np.empty_like(targets)
        for part in in_parts(*targets.shape):
            rows = np.arange(part.start, part.stop)
            shares = _shares(self._votes(rows, weights, targets), prior.around(rows), settings["count"])
            tempered(shares, settings["temperature"], out=probability[part])
        return View(probability, settings)

    def _votes(self, rows: Index, weights: Floats, targets: Floats) -> Floats:
        number, found = self.blocks.number, self.found[rows]
        voting = weights[found] * (number[found] != number[rows, None])
        votes = np.zeros((len(rows), targets.shape[1]))
        for place in range(found.shape[1]):  # one column at a time: rows x neighbours x classes would be large
            votes += voting[:, place, None] * targets[found[:, place]]
        return votes


def _shares(votes: Floats, prior: Floats, count: float) -> Floats:
    with_prior = votes + count * prior
    with_prior /= with_prior.sum(1, keepdims=True)
    return with_prior


def _choose(votes: Floats, prior: Floats, weights: Floats, targets: Floats) -> Settings:
    """Choose the pseudo-count and temperature under which the rows that count are likeliest."""
    best, chosen = -np.inf, {"count": 1.0, "temperature": 1.0}
    for count in COUNTS:
        fit = Fit(logarithm(_shares(votes, prior, count)), weights, targets)
        temperature = fit.best_temperature()
        found = fit.likelihood(temperature)
        if found > best:
            best, chosen = found, {"count": count, "temperature": temperature}
    return chosen
