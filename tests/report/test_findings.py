"""What a run found, in sentences."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from stepe import Run
from stepe.beliefs.belief import Belief
from stepe.beliefs.rate import UNKNOWN, Rate
from stepe.report.findings import findings, headline, judges, who_judged
from stepe.report.suspects import suspects
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


# ---------------------------------------------------------------------------------------------------------------
# What is believed, in words


def believing(run: Run, *, flagged: int | None = None, **changed: Any) -> Run:
    """The run, had it found out something else."""
    other = Run(run.path)
    belief: Belief = replace(run.belief, **changed)
    other.__dict__["belief"] = belief
    if flagged is not None:
        other.__dict__["summary"] = replace(run.summary, flagged=flagged)
        other.__dict__["samples"] = run.samples.assign(flagged=run.samples["rank"] <= flagged)
    return other


def test_a_rate_is_stated_with_its_range(audited_run):
    assert (
        headline(audited_run) == "About 40% of 80 labels look wrong (31–52%); 40 flagged; 2 classes hold 55% of them."
    )


@pytest.mark.parametrize(
    ("flagged", "said"),
    [
        (12, "It may be that nothing is wrong: 0–4% of 80 labels; 12 are worth a look."),
        (1, "It may be that nothing is wrong: 0–4% of 80 labels; 1 is worth a look."),
        (0, "It may be that nothing is wrong: 0–4% of 80 labels; none stands out."),
    ],
)
def test_clean_labels_may_be_clean(flagged, said, audited_run):
    assert headline(believing(audited_run, rate=Rate(0.012, 0.0, 0.04), flagged=flagged)) == said


@pytest.mark.parametrize("changed", [{"has_signal": False}, {"rate": UNKNOWN}])
def test_rows_that_tell_nothing_say_so_and_what_to_add(changed, audited_run):
    run = believing(audited_run, flagged=0, **changed)
    assert headline(run) == "These rows say too little about their labels to tell which of the 80 are wrong."
    assert findings(run) == ["Add more rows, better features, or columns that say more."]
    assert suspects(run) == []


def test_of_rows_that_tell_nothing_those_are_shown_that_a_person_asked_for(audited_run):
    assert len(suspects(believing(audited_run, flagged=20, has_signal=False))) == 20


def test_the_range_is_explained_once(audited_run):
    said = " ".join([headline(audited_run), *findings(audited_run)])
    assert said.count("range") == 1
    assert "The range spans what different estimates say." in said


@pytest.mark.parametrize(
    ("evidence", "said"),
    [
        (None, ""),
        (1.0, "We assumed that classes may overlap, so a label counts as evidence of its own."),
        (0.85, "that classes may overlap, and that people erred where an expert could tell, so a label counts for a"),
        (0.75, "an expert could always tell these apart, so a label counts for less than it says (evidence 0.75)."),
    ],
)
def test_it_is_said_what_was_assumed_of_a_label(evidence, said, audited_run):
    (found,) = findings(believing(audited_run, evidence=evidence))
    assert said in found
    assert ("We assumed" in found) == (evidence is not None)


def test_judges_are_named_those_that_counted_most_first(audited_run):
    run = Run(audited_run.path)
    assert judges(run) == ""
    object.__setattr__(run.summary, "panel", {"ranks": 0.11, "kernel": 0.61, "forest": 0.28})
    assert who_judged(run) == "Judged by: kernel 61%, forest 28%, ranks 11%."
