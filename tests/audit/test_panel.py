"""Which judges look at what."""

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from stepe.audit.panel import DEFAULT, EXACT, MAKERS, Shown, panel_for
from stepe.errors import InputError
from stepe.judges.base import one_hot
from stepe.judges.blocks import Blocks

RANDOM = np.random.default_rng(0)
LABELS = RANDOM.integers(0, 2, 60)
ROWS = RANDOM.normal(size=(60, 5)) + LABELS[:, None]
ALONE = Blocks.of_one_row(60)


def names(kind, shown, judges=None):
    return [judge.name for judge in panel_for(kind, shown, judges).judges]


@pytest.mark.parametrize("kind", DEFAULT)
def test_each_kind_of_data_has_its_judges(kind):
    assert names(kind, Shown(ROWS, ALONE)) == list(DEFAULT[kind])


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("inputs", [ROWS, csr_matrix(ROWS)], ids=["dense", "sparse"])
def test_every_judge_can_be_asked_for_by_name(name, inputs):
    panel = panel_for("features", Shown(inputs, ALONE), [name])
    guess = panel.look(np.ones(60), one_hot(LABELS, 2)).probability
    assert [judge.name for judge in panel.judges] == [name]
    assert (guess.argmax(1) == LABELS).mean() > 0.7


def test_judges_are_named_once_and_none_is_unknown():
    assert names("table", Shown(ROWS, ALONE), ["forest", "linear", "forest"]) == ["forest", "linear"]
    with pytest.raises(InputError, match="unknown judge 'oracle'; choose among linear, kernel"):
        panel_for("table", Shown(ROWS, ALONE), ["linear", "oracle"])


def test_neighbours_are_left_out_where_all_pairs_are_too_many():
    many = Shown(np.zeros((EXACT + 1, 1)), Blocks.of_one_row(EXACT + 1))
    assert names("features", many) == ["linear"]


@pytest.mark.parametrize("number", [np.nan, np.inf])
@pytest.mark.parametrize("make", [np.array, csr_matrix])
def test_numbers_that_are_none_are_refused(number, make):
    rows = ROWS.copy()
    rows[3, 1] = number
    with pytest.raises(InputError, match="NaN or infinity; fill such cells"):
        panel_for("table", Shown(make(rows), ALONE))
