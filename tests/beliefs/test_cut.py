"""A person decides how many labels are pointed out."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from stepe.beliefs.cut import cut

SUSPICIONS = st.lists(st.sampled_from([0.0, 0.2, 0.5, 0.50001, 0.7, 0.7, 1.0, float("nan")]), max_size=12)
TOPS = st.none() | st.integers(1, 15)
SHARES = st.none() | st.sampled_from([0.0, 0.5, 0.7, 1.0])


def slow(suspicion: list[float], top: int | None, min_suspicion: float | None) -> list[bool]:
    """The same, one row at a time."""
    if top is None and min_suspicion is None:
        return [each > 0.5 for each in suspicion]
    ranked = sorted((-each, row) for row, each in enumerate(suspicion) if each == each and each >= (min_suspicion or 0))
    chosen = {row for _, row in ranked[:top]}
    return [row in chosen for row in range(len(suspicion))]


@given(SUSPICIONS, TOPS, SHARES)
def test_it_is_what_one_would_choose_row_by_row(suspicion, top, min_suspicion):
    assert cut(suspicion, top=top, min_suspicion=min_suspicion).tolist() == slow(suspicion, top, min_suspicion)


def test_ties_keep_the_first_rows():
    assert cut([0.3, 0.9, 0.3, 0.3], top=3).tolist() == [True, True, True, False]


def test_nothing_is_chosen_of_which_nothing_is_known():
    assert not cut(np.full(5, np.nan)).any()
    assert not cut(np.full(5, np.nan), top=3).any()
    assert not cut(np.full(5, np.nan), min_suspicion=0).any()


def test_labels_no_more_likely_wrong_than_right_are_chosen_only_by_a_person():
    assert not cut([0.5, 0.4]).any()
    assert cut([0.5, 0.4], top=2).all()


def test_more_than_there_are_is_all_of_them():
    assert cut([0.1, 0.2], top=10).all()


def test_with_both_the_fewer_are_chosen():
    suspicion = [0.9, 0.8, 0.7, 0.1]
    assert cut(suspicion, top=2, min_suspicion=0.6).sum() == 2
    assert cut(suspicion, top=4, min_suspicion=0.6).sum() == 3
