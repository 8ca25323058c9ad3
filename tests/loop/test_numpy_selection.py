"""The selection in numpy keeps what the one on tensors keeps."""

import math

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from stepe.loop.numpy_selection import keep_lowest
from stepe.loop.selection import protect, select

SCORES = st.lists(
    st.one_of(st.sampled_from([0.0, -0.0, 0.5, 1.0, math.nan, math.inf, -math.inf]), st.floats(-8, 8, width=16)),
    min_size=1,
    max_size=30,
)
SHARES = st.one_of(st.sampled_from([0.0, 0.1, 0.3, 0.5, 0.9]), st.floats(0, 1, exclude_max=True))


@settings(max_examples=300)
@given(SCORES, SHARES, SHARES, st.booleans(), st.data())
def test_it_keeps_the_same_rows_as_the_selection_on_tensors(scores, drop_fraction, min_keep, some_trusted, data):
    def drawn(values):
        return data.draw(st.lists(values, min_size=len(scores), max_size=len(scores)))

    groups = np.array(drawn(st.integers(-1, 3)))
    trusted = np.array(drawn(st.booleans())) if some_trusted else None
    tensor, share = protect(
        torch.tensor(scores, dtype=torch.float64), drop_fraction, None if trusted is None else torch.tensor(trusted)
    )
    expected = select(tensor, share, groups=torch.tensor(groups), min_keep=min_keep).kept
    kept = keep_lowest(np.array(scores), drop_fraction, groups=groups, min_keep=min_keep, trusted=trusted)
    assert kept.tolist() == expected.tolist()
