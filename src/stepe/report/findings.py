"""What a run found, in sentences: the one to remember first, then what else to know at once."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from stepe.beliefs.belief import Belief
from stepe.beliefs.rate import Rate
from stepe.report.figures import drops
from stepe.report.wording import percent, share, visible
from stepe.run.record import AUDIT

if TYPE_CHECKING:
    from stepe.run.folder import RunFolder

EXPERT = 0.75
"""evidence of a label, where an expert could always tell its class"""
COUNTS = 0.005
"""judges that count for less are not named"""
BY_HEART = 0.05
"""models that learn labels by heart contradict, by this share, fewer of those they trained on than of others"""
HALF, FEW, NOTABLY = 0.5, 5, 1.5
"""a few classes are worth a word if they hold half of the flags, and notably more of them than of the samples"""


def headline(run: "RunFolder") -> str:
    """Say in one sentence what was found.

    The shares are of the labels that were learned from.
    """
    flagged, n = run.summary.flagged, run.summary.samples
    belief, estimate = run.belief, run.belief.found_rate
    if not tells_enough(belief):
        return f"These rows say too little about their labels to tell which of the {n:,} are wrong."
    if estimate is None and not drops(run):
        return f"{_capital(run.method)} drops nothing, so it does not say which of the {n:,} labels look wrong."
    if estimate is None and not run.summary.dropped:
        return f"{_capital(run.method)} ends with all {n:,} labels kept, so it does not say which look wrong."
    if estimate is not None and belief.may_be_clean:
        worth = f"{flagged:,} {'is' if flagged == 1 else 'are'} worth a look" if flagged else "none stands out"
        return f"It may be that nothing is wrong: {span(estimate)} of {n:,} labels; {worth}."
    if estimate is not None and estimate.rate >= 0.005:
        about = f"About {estimate.rate:.0%} of {n:,} labels look wrong ({span(estimate)})"
        return f"{about}; {flagged:,} flagged{_where(run)}." if flagged else f"{about}; none stands out."
    if not flagged:
        return f"None of the {n:,} labels looks wrong."
    return f"{flagged:,} of {n:,} labels look{'s' if flagged == 1 else ''} wrong ({share(flagged / n)}){_where(run)}."


def tells_enough(belief: Belief) -> bool:
    """Say whether the rows say enough about their labels to tell wrong ones from others."""
    return belief.has_signal and not (belief.rate_was_found and belief.rate.is_unknown)


def span(estimate: Rate) -> str:
    """Write the range of an estimate.

    >>> span(Rate(0.08, 0.061, 0.1))
    '6–10%'
    """
    return f"{100 * estimate.low:.0f}–{estimate.high:.0%}"


def _where(run: "RunFolder") -> str:
    """Say whether a few classes hold most of the flags."""
    training = run.samples[run.samples["split"] == "train"]
    samples = training["given_label"].value_counts()
    flags = training.loc[training["flagged"], "given_label"].value_counts()
    held = flags.cumsum() / max(1, flags.sum())
    few = int((held < HALF).sum()) + 1
    if len(flags) < 2 or few > FEW or held.iloc[few - 1] < NOTABLY * samples[flags.index[:few]].sum() / samples.sum():
        return ""
    who = "one class holds" if few == 1 else f"{few} classes hold"
    return f"; {who} {held.iloc[few - 1]:.0%} of them"


def findings(run: "RunFolder") -> list[str]:
    """Say what else to know at once, a sentence each."""
    found = []
    noise = run.summary.noise
    planted = run.request.noise
    kind = f" ({planted})" if planted not in (None, "none") else ""
    if noise is not None and not noise.noisy:
        found.append("No noise was planted here: if all the labels are right, each flag is a false alarm.")
    elif noise is not None and run.summary.flagged:
        found.append(
            f"The answer is known here{kind}: {noise.noisy:,} samples are corrupted. The flags found "
            f"{percent(noise.flagged.recall)} of them, and {percent(noise.flagged.precision)} of the flags "
            "are right."
        )
    elif noise is not None:
        found.append(f"The answer is known here{kind}: {noise.noisy:,} samples are corrupted.")
    if caution := " ".join(_cautions(run.belief)):
        found.append(caution)
    if unjudged := hardly_recognised(run):
        found.append(unjudged)
    return found


def hardly_recognised(run: "RunFolder") -> str:
    """Name the classes that the model has not learned well enough to speak against their labels, if any."""
    names = [visible(run.class_names[i]) for i in run.belief.hardly_recognised]
    if not names:
        return ""
    listed, more = names[:FEW], len(names) - FEW
    if more > 0:
        listed.append(f"{more} more")
    who = listed[0] if len(listed) == 1 else f"{', '.join(listed[:-1])} and {listed[-1]}"
    these = "this class" if len(names) == 1 else "these classes"
    whose = "The judges hardly recognise" if run.method == AUDIT else "The model hardly recognises"
    return f"{whose} {who}: little is said about the labels of {these}."


def _cautions(belief: Belief) -> Iterator[str]:
    """Say how far to trust the numbers, and what to do where there are none."""
    if not tells_enough(belief):
        yield "Add more rows, better features, or columns that say more."
        return
    if belief.rate_was_found:
        yield "The range spans what different estimates say. A model's own mistakes can pass for wrong labels."
    if belief.evidence is not None and belief.evidence >= 1:
        yield "We assumed that classes may overlap, so a label counts as evidence of its own."
    elif belief.evidence is not None and belief.evidence > EXPERT:
        yield (
            "We assumed that classes may overlap, and that people erred where an expert could tell, so a label counts "
            f"for a little less than it says (evidence {belief.evidence:g})."
        )
    elif belief.evidence is not None:
        yield (
            "We assumed that an expert could always tell these apart, so a label counts for less than it says "
            f"(evidence {belief.evidence:g})."
        )


def judges(run: "RunFolder") -> str:
    """Name the judges that the run was made by, with how much each counted; nothing where networks judged."""
    ranked = sorted(run.summary.panel.items(), key=lambda judge: -judge[1])
    return ", ".join(f"{name} {counted:.0%}" for name, counted in ranked if counted >= COUNTS)


def who_judged(run: "RunFolder") -> str:
    """Say who judged the samples: judges by name, or models, if they were chosen by whether they learn by heart."""
    if named := judges(run):
        return f"Judged by: {named}."
    probe = run.summary.probe
    if (seen := probe.contradicted) is None or not probe.chosen:
        return ""
    if probe.reach == "in-sample":
        follows = "they do not learn labels by heart, so the model judged its own samples."
    elif seen.trained < (1 - BY_HEART) * seen.unseen:
        follows = "they learn labels by heart, so every sample was judged by models that never trained on it."
    else:
        follows = (
            "of so few samples, it cannot be told whether they learn labels by heart, so every sample was judged by "
            "models that never trained on it."
        )
    return (
        f"In the warm-up, models contradicted {share(seen.trained)} of the labels they trained on and "
        f"{share(seen.unseen)} of those they had not seen: {follows}"
    )


def _capital(name: str) -> str:
    return name[:1].upper() + name[1:]
