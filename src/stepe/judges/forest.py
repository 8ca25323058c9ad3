"""The forest judge: every row is judged by the trees that were grown without its block."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast

import numpy as np
import numpy.typing as npt
from joblib import Parallel, delayed
from scipy.sparse import csr_matrix
from sklearn.tree import ExtraTreeRegressor

from stepe.beliefs.parts import in_parts
from stepe.judges.base import Floats, Settings, View
from stepe.judges.blocks import Blocks, Frequencies
from stepe.judges.likelihood import Fit, logarithm, sample_of_rows, tempered

TREES = 150
LEAF = 2
"""rows that a leaf has at least"""
DIRECTIONS = 16
"""trees split by the classes themselves, or, of more classes than this, by so many random directions through them"""
COUNTS = (0.1, 0.3, 1.0, 3.0)
"""tried: how many trees the frequencies of the classes are worth"""


@dataclass(frozen=True)
class Forest:
    """A judge by bagged extra trees, each grown on a random draw of whole blocks."""

    columns: npt.NDArray[np.float32]
    blocks: Blocks
    seed: int = 0
    trees: int = TREES
    jobs: int | None = None
    """trees that grow at once; by default one after another"""
    name: str = "forest"

    def look(self, weights: Floats, targets: Floats, settings: Settings | None = None) -> View:
        """Grow trees on the rows that count; a row is judged by those that did not draw its block."""
        prior = Frequencies(self.blocks, weights, targets)
        said, asked = np.zeros_like(targets), np.zeros((len(targets), 1))
        if weights.any():
            for tree in self._grow(weights, targets):
                for part in in_parts(len(tree.unseen), targets.shape[1]):
                    rows = tree.unseen[part]
                    said[rows] += tree.of_leaf[tree.leaf[part]]
                asked[tree.unseen] += 1
        if settings is None:
            some = sample_of_rows(weights, targets.shape[1])
            settings = _choose(said[some], asked[some], prior.around(some), weights[some], targets[some])
        for part in in_parts(*said.shape):
            rows = np.arange(part.start, part.stop)
            probability = _mean(said[part], asked[part], prior.around(rows), settings["count"])
            tempered(probability, settings["temperature"], out=said[part])
        return View(said, settings)

    def _grow(self, weights: Floats, targets: Floats) -> Iterator["Tree"]:
        """Grow the trees, and give them in order."""
        classes = targets.shape[1]
        splits_by = targets
        if classes > DIRECTIONS:
            directions = np.random.default_rng((self.seed, self.trees)).standard_normal((classes, DIRECTIONS))
            splits_by = np.concatenate([targets[part] @ directions for part in in_parts(*targets.shape)])
        # Threads, for a tree lets go of the interpreter while it grows; what they say is added up in order.
        grown = Parallel(n_jobs=self.jobs or 1, prefer="threads", return_as="generator")(
            delayed(self._tree)(number, weights, targets, splits_by) for number in range(self.trees)
        )
        yield from cast(Iterator[Tree], grown)

    def _tree(self, number: int, weights: Floats, targets: Floats, splits_by: Floats) -> "Tree":
        random = np.random.default_rng((self.seed, number))
        drawn = np.bincount(random.integers(0, self.blocks.count, self.blocks.count), minlength=self.blocks.count)
        counts = drawn[self.blocks.number] * weights
        # Not drawn, or drawn for nothing: no row of the block counts.
        foreign = np.bincount(self.blocks.number, counts, minlength=self.blocks.count) == 0
        seen, unseen = np.flatnonzero(counts), np.flatnonzero(foreign[self.blocks.number])
        if not len(seen) or not len(unseen) or not self.columns.shape[1]:
            return Tree(unseen[:0], unseen[:0], targets[:0])
        tree = ExtraTreeRegressor(min_samples_leaf=LEAF, max_features="sqrt", random_state=random.integers(2**31))
        tree.fit(self.columns[seen], splits_by[seen], sample_weight=counts[seen])
        leaf = tree.apply(self.columns[unseen])
        if splits_by is targets:
            return Tree(unseen, leaf, tree.tree_.value[:, :, 0])
        return Tree(unseen, leaf, _leaf_means(tree, self.columns, counts, targets, seen))


@dataclass(frozen=True)
class Tree:
    """What a tree says of the rows that it did not see."""

    unseen: npt.NDArray[np.int64]
    leaf: npt.NDArray[np.int64]
    """the leaf of each of them"""
    of_leaf: Floats
    """leaves x classes: the mean target of each leaf"""


def _leaf_means(
    tree: ExtraTreeRegressor,
    columns: npt.NDArray[np.float32],
    counts: Floats,
    targets: Floats,
    seen: npt.NDArray[np.int64],
) -> Floats:
    """Return the mean target of every leaf."""
    leaves = tree.apply(columns[seen])
    member = csr_matrix((counts[seen], (leaves, np.arange(len(seen)))), shape=(tree.tree_.node_count, len(seen)))
    total = member.sum(1)
    share = csr_matrix(member.multiply(1 / np.where(total > 0, total, 1)), dtype=targets.dtype)
    means: Floats = share @ targets[seen]
    return means


def _mean(said: Floats, asked: Floats, prior: Floats, count: float) -> Floats:
    return (said + count * prior) / (asked + count)


def _choose(said: Floats, asked: Floats, prior: Floats, weights: Floats, targets: Floats) -> Settings:
    """Choose the pseudo-count and temperature under which the rows that count are likeliest."""
    best, chosen = -np.inf, {"count": 1.0, "temperature": 1.0}
    for count in COUNTS:
        fit = Fit(logarithm(_mean(said, asked, prior, count)), weights, targets)
        temperature = fit.best_temperature()
        found = fit.likelihood(temperature)
        if found > best:
            best, chosen = found, {"count": count, "temperature": temperature}
    return chosen
