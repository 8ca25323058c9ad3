"""The belief of a run, in its folder."""

from dataclasses import fields, replace

import numpy as np
import pytest

from made_run import make_run
from stepe.beliefs.belief import Belief
from stepe.beliefs.rate import UNKNOWN, Rate
from stepe.errors import RunError
from stepe.run.saved_belief import FILE, read_belief, write_belief

BELIEF = Belief(
    rate=Rate(0.1, 0.05, 0.2),
    rate_was_found=True,
    noise=np.array([[0.9, 0.1], [np.nan, np.nan]]),
    p_right=np.array([0.9, np.nan, 0.1], dtype=np.float32),
    suggestion=np.array([0, -1, 1]),
    confidence=np.array([0.8, np.nan, 0.7]),
    recognised=np.array([True, False]),
    flagged=np.array([False, False, True]),
    evidence=0.75,
)


def assert_same(found: Belief, expected: Belief) -> None:
    for field in fields(Belief):
        np.testing.assert_equal(getattr(found, field.name), getattr(expected, field.name))
        assert type(getattr(found, field.name)) is type(getattr(expected, field.name)), field.name


def test_what_is_written_is_read(tmp_path):
    assert read_belief(tmp_path) is None
    write_belief(tmp_path, BELIEF)
    found = read_belief(tmp_path)
    assert found is not None
    assert_same(found, BELIEF)
    assert found.p_right.dtype == np.float32
    assert found.hardly_recognised == [1]


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.write_bytes(path.read_bytes()[:200]),
        lambda path: path.write_bytes(b""),
        lambda path: np.savez(path, format=2),
        lambda path: np.savez(path, format=np.array([{}], dtype=object), allow_pickle=True),
        lambda path: write_belief(path.parent, replace(BELIEF, flagged=np.array([True]))),
        lambda path: np.savez(path, format=1),
    ],
    ids=["torn", "empty", "incomplete", "pickled", "of two runs", "of another version"],
)
def test_a_damaged_belief_is_refused_by_name(tmp_path, damage):
    write_belief(tmp_path, BELIEF)
    damage(tmp_path / FILE)
    with pytest.raises(RunError, match=r"belief\.npz (cannot be read|was made by another version)"):
        read_belief(tmp_path)


def test_a_run_without_one_says_what_its_tables_know(tmp_path):
    run = make_run(tmp_path / "run", 6)
    training = run.samples[run.samples["split"] == "train"]
    belief = run.belief
    assert belief.rate == UNKNOWN
    assert not belief.rate_was_found
    assert belief.flagged.tolist() == training["flagged"].tolist()
    assert [run.class_names[number] for number in belief.suggestion] == training["suggested_label"].tolist()
    np.testing.assert_allclose(1 - belief.p_right, training["suspicion"])
    assert np.isnan(belief.noise).all()
    assert belief.hardly_recognised == []
