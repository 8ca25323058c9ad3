"""Leaving out in closed form is the same as solving again without the rows."""

import numpy as np
import pytest
from sklearn.linear_model import RidgeCV

from stepe.judges import ridge
from stepe.judges.axes import FewAxes
from stepe.judges.base import Floats, one_hot
from stepe.judges.blocks import Blocks
from stepe.judges.kernel import kernel, rank_kernel
from stepe.judges.likelihood import softmax
from stepe.judges.linear import linear
from stepe.judges.ridge import Gathered, Solved


def solved_without(rows: Floats, weights: Floats, targets: Floats, penalty: float, blocks: Blocks) -> Floats:
    """The slow reference: solve anew for every block."""
    found = np.empty_like(targets)
    for number in range(blocks.count):
        own = blocks.number == number
        weighted = rows[~own] * weights[~own, None]
        squares = weighted.T @ rows[~own] + penalty * np.eye(rows.shape[1])
        found[own] = rows[own] @ np.linalg.solve(squares, weighted.T @ targets[~own])
    return found


def made(n: int, columns: int, classes: int = 3) -> tuple[Floats, Floats, Floats]:
    random = np.random.default_rng(0)
    targets = random.dirichlet(np.ones(classes), n)
    weights = random.uniform(0, 2, n) * (random.uniform(size=n) > 0.1)
    return random.standard_normal((n, columns)), weights, targets


BLOCKS = {
    "rows": np.arange(60),
    "pairs": np.arange(60) // 2,
    "mixed": np.repeat(np.arange(8), [1, 2, 2, 3, 12, 20, 10, 10]),
}


@pytest.mark.parametrize("columns", [5, 80])
@pytest.mark.parametrize("number", BLOCKS.values(), ids=BLOCKS)
def test_leaving_out_equals_solving_again(number: np.ndarray, columns: int) -> None:
    rows, weights, targets = made(60, columns)
    blocks, solved = Blocks(number), Solved(Gathered.of(rows, weights, targets))
    for penalty in solved.penalties[[3, 8, 14]].tolist():
        found = solved.left_out(rows, weights, targets, penalty, blocks)
        np.testing.assert_allclose(found, solved_without(rows, weights, targets, penalty, blocks), atol=1e-6)


def test_it_agrees_with_scikit_learn() -> None:
    rows, _, targets = made(60, 5)
    solved = Solved(Gathered.of(rows, np.ones(60), targets))
    found = solved.left_out(rows, np.ones(60), targets, 0.5, Blocks.of_one_row(60))
    reference = RidgeCV([0.5], fit_intercept=False, store_cv_results=True, scoring=None).fit(rows, targets)
    np.testing.assert_allclose((found - targets) ** 2, reference.cv_results_[:, :, 0], atol=1e-10)


@pytest.mark.parametrize("number", [BLOCKS["rows"], BLOCKS["mixed"]], ids=["rows", "mixed"])
@pytest.mark.parametrize("make", [linear, kernel, rank_kernel])
def test_a_judge_says_of_a_row_what_it_would_say_had_it_been_fitted_without(make, number: np.ndarray) -> None:
    columns, weights, targets = made(60, 5)
    judge = make(columns, Blocks(number))
    view = judge.look(weights, targets)
    score = solved_without(judge.rows, weights, targets, view.settings["penalty"], Blocks(number))
    np.testing.assert_allclose(view.probability, softmax(score, view.settings["temperature"]), atol=1e-6)


def test_turned_rows_are_left_out_like_the_others() -> None:
    rows, weights, targets = made(60, 5)
    blocks, solved = Blocks(BLOCKS["mixed"]), Solved(Gathered.of(rows, weights, targets))
    penalty = float(solved.penalties[8])
    turned = solved.left_out(solved.turned(rows), weights, targets, penalty, blocks, turned=True)
    np.testing.assert_allclose(turned, solved.left_out(rows, weights, targets, penalty, blocks), atol=1e-10)


def test_settings_of_large_blocks_are_chosen_by_some_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, weights, targets = made(60, 5)
    judge = linear(rows, Blocks(np.arange(60) // 6))
    monkeypatch.setattr(ridge, "MOST_CELLS", 60)
    some = judge._some(np.ones(60), 3)
    assert np.bincount(judge.blocks.number[some]).tolist() == [6, 0, 0, 6, 0, 0, 6, 0, 0, 6]
    assert np.isfinite(judge.look(weights, targets).probability).all()


def test_what_is_gathered_in_parts_adds_up() -> None:
    rows, weights, targets = made(60, 5)
    whole = Gathered.of(rows, weights, targets)
    parts = Gathered.of(rows[:20], weights[:20], targets[:20]) + Gathered.of(rows[20:], weights[20:], targets[20:])
    np.testing.assert_allclose(parts.squares, whole.squares)
    np.testing.assert_allclose((whole - parts).products, 0, atol=1e-12)


@pytest.mark.parametrize("columns", [30, 5_000])
def test_more_columns_than_rows_keep_all_products(columns: int) -> None:
    rows = np.random.default_rng(0).standard_normal((40, columns))
    few = FewAxes(rows).rows
    assert few.shape[1] <= 800
    np.testing.assert_allclose(few @ few.T, rows @ rows.T, atol=1e-6)


def test_sparse_rows_are_judged_as_dense_ones() -> None:
    from scipy.sparse import csr_matrix

    random = np.random.default_rng(0)
    rows = random.standard_normal((50, 1_000)) * (random.uniform(size=(50, 1_000)) < 0.1)
    targets = one_hot(random.integers(0, 2, 50), 2)
    dense = linear(rows, Blocks.of_one_row(50)).look(np.ones(50), targets)
    sparse = linear(csr_matrix(rows), Blocks.of_one_row(50)).look(np.ones(50), targets)
    np.testing.assert_allclose(sparse.probability, dense.probability, atol=1e-5)
