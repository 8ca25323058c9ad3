"""What a ridge judge hands over says of new rows what the judge would say."""

from dataclasses import replace

import numpy as np
import pytest
from safetensors.numpy import load, save
from scipy.sparse import csr_matrix
from scipy.stats import rankdata

from stepe import InputError
from stepe.judges import axes
from stepe.judges.axes import FewAxes
from stepe.judges.base import Floats, one_hot
from stepe.judges.blocks import Blocks
from stepe.judges.kernel import kernel, rank_kernel
from stepe.judges.linear import linear
from stepe.judges.maps import Ranked, Standardised
from stepe.judges.ridge_model import RidgeModel

RANDOM = np.random.default_rng(0)
LABELS = np.arange(60) % 3
NARROW = RANDOM.standard_normal((80, 5)) + np.arange(80)[:, None] % 3
WIDE = RANDOM.standard_normal((80, 900)) + np.arange(80)[:, None] % 3
SPARSE = csr_matrix(WIDE * (RANDOM.uniform(size=WIDE.shape) < 0.1))
MADE = {
    "linear": (linear, NARROW),
    "linear of many columns": (linear, WIDE),
    "linear of sparse rows": (linear, SPARSE),
    "kernel": (kernel, NARROW),
    "kernel of many columns": (kernel, WIDE),
    "kernel of constant columns": (kernel, np.ones((80, 3))),
    "ranks": (rank_kernel, NARROW),
}
every_ridge = pytest.mark.parametrize("name", MADE)


def handed_over(name):
    """A judge of 60 rows, its model, and 20 rows that neither has seen."""
    make, rows = MADE[name]
    judge, targets = make(rows[:60], Blocks.of_one_row(60)), one_hot(LABELS, 3)
    weights = RANDOM.uniform(0.5, 1, 60)
    settings = judge.look(weights, targets).settings
    return judge, weights, targets, settings, judge.model(weights, targets, settings), rows[60:]


@every_ridge
def test_the_model_says_what_the_judge_would_say(name):
    judge, weights, targets, settings, model, new = handed_over(name)
    both = replace(judge, rows=np.vstack([judge.rows, judge.map()(new)]), blocks=Blocks.of_one_row(80))
    unheard = np.concatenate([weights, np.zeros(20)])
    answer = both.look(unheard, np.vstack([targets, np.full((20, 3), 1 / 3)]), settings).probability[60:]
    np.testing.assert_allclose(model.predict(new), answer, atol=1e-8)


@every_ridge
def test_the_judged_rows_came_by_the_same_map(name):
    judge, *_ = handed_over(name)
    np.testing.assert_allclose(judge.map()(MADE[name][1][:60]), judge.rows, atol=1e-8)


@every_ridge
def test_it_is_stored_as_plain_arrays(name):
    *_, model, new = handed_over(name)
    again = RidgeModel.from_arrays(load(save(model.arrays())))
    np.testing.assert_array_equal(again.predict(new), model.predict(new))


def test_the_axes_of_more_rows_are_those_of_the_svd(monkeypatch):
    monkeypatch.setattr(axes, "FEW_ROWS", 10)
    judge = linear(SPARSE, Blocks.of_one_row(80))
    np.testing.assert_allclose(judge.map()(SPARSE), judge.rows, atol=1e-8)


def test_large_axes_are_kept_in_single_precision(monkeypatch):
    monkeypatch.setattr(axes, "LARGE", 100)
    few = FewAxes(WIDE)
    assert few.steps[0].directions.dtype == np.float32
    np.testing.assert_allclose(few.steps[0](WIDE), few.rows, rtol=1e-4, atol=1e-3)


def test_ranks_of_known_rows_are_theirs_and_of_new_ones_lie_between() -> None:
    known: Floats = np.array([[3.0], [1.0], [1.0], [7.0]])
    ranked = Ranked.fit(known)
    np.testing.assert_allclose(ranked(known), rankdata(known, axis=0) / 4)
    assert ranked(np.array([[0.0], [2.0], [5.0], [9.0]])).ravel().tolist() == [0.375, 0.5625, 0.875, 1]


def test_of_long_columns_some_ranks_are_kept(monkeypatch):
    monkeypatch.setattr("stepe.judges.maps.MOST_RANKS", 101)
    column = np.random.default_rng(0).standard_normal((5_000, 1))
    np.testing.assert_allclose(Ranked.fit(column)(column), rankdata(column, axis=0) / 5_000, atol=0.01)


def test_constant_columns_are_left_out() -> None:
    rows = np.column_stack([np.arange(4.0), np.ones(4)])
    assert Standardised.fit(rows)(rows).shape == (4, 1)


def test_rows_of_other_columns_are_refused() -> None:
    *_, model, _ = handed_over("linear")
    with pytest.raises(InputError, match=r"shape \(2, 4\); the judge looked at 5 columns"):
        model.predict(np.zeros((2, 4)))


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"coefficients": None}, "lacks its coefficients"),
        ({"coefficients": np.ones((3, 3))}, r"shape \(3, 3\); the map makes 506 columns"),
        ({"coefficients": np.full((506, 3), np.nan)}, "'coefficients' of the model has to hold finite numbers"),
        ({"temperature": np.array([0.0])}, r"temperature of the model is \[0.0\]"),
        ({"0.standardised.spread": np.ones(4)}, r"spread of 'standardised' is of shape \(4,\)"),
        ({"0.standardised.spread": None}, "'standardised' lacks its spread"),
        ({"0.standardised.mean": np.array(["a"])}, "has to hold finite numbers"),
        ({"1.with cosines.waves": np.ones((4, 500)), "1.with cosines.directions": np.ones((4, 0))}, "takes 4"),
        ({"2.pickled.code": np.ones(1)}, "no step of a map has '2.pickled.code'"),
        ({"7.of length one.mean": np.ones(505)}, r"steps of the map are \[0, 1, 7\]"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(change, told):
    *_, model, _ = handed_over("kernel")
    arrays = {name: array for name, array in (model.arrays() | change).items() if array is not None}
    with pytest.raises(InputError, match=told):
        RidgeModel.from_arrays(arrays)
