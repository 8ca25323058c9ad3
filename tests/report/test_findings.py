"""What a run found, in sentences."""

from types import SimpleNamespace
from typing import Any

import pytest

from stepe.report.findings import who_judged
from stepe.run.record import Contradicted, ProbeFacts, Summary


def judged_by(reach: str, trained: float, unseen: float, *, chosen: bool = True) -> Any:
    """A run of which no more is asked."""
    return run_of(ProbeFacts(reach, chosen, Contradicted(trained, unseen)))


def run_of(probe: ProbeFacts) -> Any:
    return SimpleNamespace(summary=Summary(samples=9, flagged=0, probe=probe))


@pytest.mark.parametrize(
    ("reach", "trained", "follows"),
    [
        ("in-sample", 0.39, "they do not learn labels by heart, so the model judged its own samples"),
        (
            "cross:2x2",
            0.10,
            "they learn labels by heart, so every sample was judged by models that never trained on it",
        ),
        ("cross:2x2", 0.39, "of so few samples, it cannot be told whether they learn labels by heart"),
    ],
)
def test_who_judged_is_said_with_what_was_seen(reach, trained, follows):
    said = who_judged(judged_by(reach, trained, 0.40))
    assert f"contradicted {trained:.0%} of the labels they trained on and 40% of those they had not seen" in said
    assert follows in said


def test_nothing_is_said_where_nothing_was_chosen():
    assert who_judged(judged_by("cross:2x2", 0.1, 0.4, chosen=False)) == ""
    assert who_judged(run_of(ProbeFacts("in-sample"))) == ""
