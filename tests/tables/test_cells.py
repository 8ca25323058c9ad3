import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepe.tables.cells import escape, escape_texts, unescape

CELLS = st.text() | st.text(alphabet="'=+-@\t\r\n a1")
STARTS = ("=", "+", "-", "@", "\t", "\r", "\n")


@given(CELLS)
def test_what_was_escaped_reads_back_as_it_was(cell):
    assert unescape(escape(cell)) == cell


@given(CELLS)
def test_no_escaped_cell_starts_as_a_formula_does(cell):
    assert not escape(cell).startswith(STARTS)


@given(CELLS, CELLS)
def test_different_cells_stay_different(one, other):
    assert (escape(one) == escape(other)) == (one == other)


@pytest.mark.parametrize("cell", ["", "cat", "'tis", "a=1", "1+1", "''", "＝1"])
def test_other_texts_stay_as_they_are(cell):
    assert escape(cell) == unescape(cell) == cell


def test_only_the_texts_of_a_table_are_escaped():
    table = pd.DataFrame({"number": [-1.5, 2], "text": ["-1.5", None], "flag": [True, False]})
    found = escape_texts(table)
    assert found["number"].tolist() == [-1.5, 2]
    assert found["flag"].tolist() == [True, False]
    assert found["text"].iloc[0] == "'-1.5"
    assert found["text"].isna().tolist() == [False, True]
