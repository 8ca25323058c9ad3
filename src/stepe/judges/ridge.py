"""Ridge regression on the targets, and what it says of a row when it is solved without that row's block.

One eigendecomposition of X'WX serves every penalty, and every block is left out in closed form. States add up, so that
rows may come in parts.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
from scipy.linalg import eigh

from stepe.judges.base import Floats, Settings, View
from stepe.judges.blocks import Blocks
from stepe.judges.likelihood import best_temperature, likelihood, sample_of_rows, softmax

PENALTIES = np.logspace(-5, 2, 15)
"""tried, in units of the mean eigenvalue"""
NEARLY_ALL = 1 - 1e-9
"""a row that decides more of its own score than this is judged as if it decided this much"""


@dataclass(frozen=True)
class Gathered:
    """All that ridge regression needs to know of some rows."""

    squares: Floats
    """columns x columns: X'WX"""
    products: Floats
    """columns x classes: X'WY"""

    @classmethod
    def of(cls, rows: Floats, weights: Floats, targets: Floats) -> "Gathered":
        """Sum up the rows."""
        weighted = rows * weights[:, None]
        return cls(weighted.T @ rows, weighted.T @ targets)

    def __add__(self, other: "Gathered") -> "Gathered":
        return Gathered(self.squares + other.squares, self.products + other.products)

    def __sub__(self, other: "Gathered") -> "Gathered":
        return Gathered(self.squares - other.squares, self.products - other.products)

    def coefficients(self, penalty: float) -> Floats:
        """Solve the regression at one penalty."""
        squares = self.squares + penalty * np.eye(len(self.squares))
        return np.asarray(np.linalg.solve(squares, self.products), dtype=np.float64)


@dataclass(frozen=True)
class Solved:
    """Ridge regression at every penalty."""

    gathered: Gathered

    @cached_property
    def _decomposed(self) -> tuple[Floats, Floats]:
        values, axes = eigh(self.gathered.squares)
        return np.maximum(values, 0), axes

    @cached_property
    def penalties(self) -> Floats:
        """The penalties to choose from."""
        mean = float(self._decomposed[0].mean())
        return PENALTIES * (mean or 1.0)

    def turned(self, rows: Floats) -> Floats:
        """Turn rows into the axes in which all penalties are solved."""
        return rows @ self._decomposed[1]

    def score(self, turned: Floats, penalty: float) -> Floats:
        """Return what the regression says of turned rows."""
        values, axes = self._decomposed
        return turned @ ((axes.T @ self.gathered.products) / (values + penalty)[:, None])

    def left_out(
        self, rows: Floats, turned: Floats, weights: Floats, targets: Floats, penalty: float, blocks: Blocks
    ) -> Floats:
        """Return what the regression would say of each row, had it been solved without the row's block."""
        score = self.score(turned, penalty)
        shrink = 1 / (self._decomposed[0] + penalty)
        own = np.minimum(weights * ((turned * turned) @ shrink), NEARLY_ALL)[:, None]
        found: Floats = (score - own * targets) / (1 - own)
        for together in blocks.of_several_rows():
            if together.shape[1] > len(shrink):  # solving again is cheaper than a system as large as the block
                for block in together:
                    without = self.gathered - Gathered.of(rows[block], weights[block], targets[block])
                    found[block] = rows[block] @ without.coefficients(penalty)
                continue
            for part in _in_parts(together, len(shrink)):
                z = turned[part]
                influence = (z * shrink) @ z.transpose(0, 2, 1) * weights[part][:, None, :]
                residual = score[part] - influence @ targets[part]
                found[part] = np.linalg.solve(np.eye(part.shape[1]) - influence, residual)
        return found


def _in_parts(together: npt.NDArray[np.int64], columns: int, most: int = 1 << 24) -> Iterator[npt.NDArray[np.int64]]:
    """Split blocks into parts whose rows, with their columns, fit into a bounded number of cells."""
    yield from np.array_split(together, -(-together.size * columns // most))


@dataclass(frozen=True)
class Ridge:
    """A judge by ridge regression; penalty and temperature are chosen by likelihood."""

    name: str
    rows: Floats
    blocks: Blocks

    def look(self, weights: Floats, targets: Floats, settings: Settings | None = None) -> View:
        """Solve once, and leave every block out in closed form."""
        solved = Solved(Gathered.of(self.rows, weights, targets))
        turned = solved.turned(self.rows)
        if settings is None:
            settings = self._choose(solved, turned, weights, targets)
        score = solved.left_out(self.rows, turned, weights, targets, settings["penalty"], self.blocks)
        return View(softmax(score, settings["temperature"]), settings)

    def _choose(self, solved: Solved, turned: Floats, weights: Floats, targets: Floats) -> Settings:
        """Choose the penalty and temperature under which the rows that count are likeliest."""
        some = self.blocks.rows(np.unique(self.blocks.number[sample_of_rows(weights)]))
        rows, turned, weights, targets = self.rows[some], turned[some], weights[some], targets[some]
        blocks, best, chosen = self.blocks.among(some), -np.inf, {"penalty": 1.0, "temperature": 1.0}
        for penalty in solved.penalties.tolist():
            score = solved.left_out(rows, turned, weights, targets, penalty, blocks)
            temperature = best_temperature(score, weights, targets)
            found = likelihood(softmax(score, temperature), weights, targets)
            if found > best:
                best, chosen = found, {"penalty": penalty, "temperature": temperature}
        return chosen
