"""Ridge regression on the targets, and what it says of a row when it is solved without that row's block.

One eigendecomposition of X'WX serves every penalty, and every block is left out in closed form. States add up, so that
rows may come in parts.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.linalg import eigh

from stepe.beliefs.parts import in_parts
from stepe.judges.base import Floats, Settings, View
from stepe.judges.blocks import Blocks, Index
from stepe.judges.likelihood import Fit, sample_of_rows, softmax
from stepe.judges.ridge_model import RidgeModel
from stepe.judges.row_map import RowMap

PENALTIES = np.logspace(-5, 2, 15)
"""tried, in units of the mean eigenvalue"""
NEARLY_ALL = 1 - 1e-9
"""a row that decides more of its own score than this is judged as if it decided this much"""
MOST_CELLS = 20_000_000
"""rows x classes that settings are chosen by, where blocks are large"""


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
        columns = rows.shape[1]
        squares, products = np.zeros((columns, columns)), np.zeros((columns, targets.shape[1]))
        for part in in_parts(len(rows), columns + targets.shape[1]):
            weighted = rows[part] * weights[part, None]
            squares += weighted.T @ rows[part]
            products += weighted.T @ targets[part]
        return cls(squares, products)

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

    def left_out(
        self, rows: Floats, weights: Floats, targets: Floats, penalty: float, blocks: Blocks, *, turned: bool = False
    ) -> Floats:
        """Return what the regression would say of each row, had it been solved without the row's block.

        The rows may have been ``turned`` already.
        """
        values, axes = self._decomposed
        shrink = 1 / (values + penalty)
        products = axes.T @ self.gathered.products
        coefficients = products * shrink[:, None]
        gathered = Gathered(np.diag(values), products) if turned else self.gathered
        turn: Callable[[Floats], Floats] = np.asarray if turned else self.turned
        columns, classes = products.shape
        found = np.empty_like(targets)
        for part in in_parts(len(rows), columns + classes):
            z = turn(rows[part])
            own = np.minimum(weights[part] * ((z * z) @ shrink), NEARLY_ALL)[:, None]
            found[part] = (z @ coefficients - own * targets[part]) / (1 - own)
        for together in blocks.of_several_rows():
            if together.shape[1] > columns:  # solving again is cheaper than a system as large as the block
                for block in together:
                    without = gathered - Gathered.of(rows[block], weights[block], targets[block])
                    again = without.coefficients(penalty)
                    for part in in_parts(len(block), classes):
                        found[block[part]] = rows[block[part]] @ again
                continue
            for some in _in_parts(together, columns + classes):
                z = turn(rows[some])
                influence = (z * shrink) @ z.transpose(0, 2, 1) * weights[some][:, None, :]
                residual = z @ coefficients - influence @ targets[some]
                found[some] = np.linalg.solve(np.eye(some.shape[1]) - influence, residual)
        return found


def _in_parts(together: Index, width: int, most: int = 1 << 24) -> Iterator[Index]:
    """Split blocks into parts whose rows, so wide, fit into a bounded number of cells."""
    yield from np.array_split(together, -(-together.size * width // most))


@dataclass(frozen=True)
class Ridge:
    """A judge by ridge regression; penalty and temperature are chosen by likelihood."""

    name: str
    rows: Floats
    blocks: Blocks
    map: Callable[[], RowMap]
    """gives the map by which the rows came to be, for new ones; it is found only where a model is wanted"""

    def look(self, weights: Floats, targets: Floats, settings: Settings | None = None) -> View:
        """Solve once, and leave every block out in closed form."""
        solved = Solved(Gathered.of(self.rows, weights, targets))
        if settings is None:
            settings = self._choose(solved, weights, targets)
        score = solved.left_out(self.rows, weights, targets, settings["penalty"], self.blocks)
        return View(softmax(score, settings["temperature"], out=score), settings)

    def model(self, weights: Floats, targets: Floats, settings: Settings) -> RidgeModel:
        """Make the model that says of new rows what the judge would say."""
        coefficients = Gathered.of(self.rows, weights, targets).coefficients(settings["penalty"])
        return RidgeModel(self.map(), coefficients, settings["temperature"])

    def _choose(self, solved: Solved, weights: Floats, targets: Floats) -> Settings:
        """Choose the penalty and temperature under which the rows that count are likeliest."""
        some = self._some(weights, targets.shape[1])
        rows, weights, targets = solved.turned(self.rows[some]), weights[some], targets[some].astype(np.float64)
        blocks, best, chosen = self.blocks.among(some), -np.inf, {"penalty": 1.0, "temperature": 1.0}
        for penalty in solved.penalties.tolist():
            score = solved.left_out(rows, weights, targets, penalty, blocks, turned=True)
            fit = Fit(score, weights, targets)
            temperature = fit.best_temperature()
            found = fit.likelihood(temperature)
            if found > best:
                best, chosen = found, {"penalty": penalty, "temperature": temperature}
        return chosen

    def _some(self, weights: Floats, classes: int) -> Index:
        """Choose rows that settings are chosen by: whole blocks of a sample, fewer if they are large."""
        number = np.unique(self.blocks.number[sample_of_rows(weights, classes)])
        cells = int(self.blocks.sizes[number].sum()) * classes
        return self.blocks.rows(number[:: max(1, -(-cells // MOST_CELLS))])
