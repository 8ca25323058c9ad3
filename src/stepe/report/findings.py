"""What a run found, in sentences: the one to remember first, then what else to know at once."""

from typing import TYPE_CHECKING

from stepe.beliefs.rate import Rate
from stepe.report.figures import drops
from stepe.report.wording import percent, share, visible

if TYPE_CHECKING:
    from stepe.run.folder import RunFolder

BY_HEART = 0.05
"""models that learn labels by heart contradict, by this share, fewer of those they trained on than of others"""
HALF, FEW, NOTABLY = 0.5, 5, 1.5
"""a few classes are worth a word if they hold half of the flags, and notably more of them than of the samples"""


def headline(run: "RunFolder") -> str:
    """Say in one sentence what was found.

    The shares are of the training labels: held-out ones are never flagged.
    """
    flagged, n = run.summary.flagged, run.summary.samples
    estimate = run.belief.found_rate
    if estimate is None and not drops(run):
        return f"{_capital(run.method)} drops nothing, so it does not say which of the {n:,} labels look wrong."
    if estimate is None and not run.summary.dropped:
        return f"{_capital(run.method)} ends with all {n:,} labels kept, so it does not say which look wrong."
    if estimate is not None and estimate.is_unknown:
        return f"Too little was learned to say which of the {n:,} labels look wrong."
    if estimate is not None and estimate.rate >= 0.005:
        about = f"About {estimate.rate:.0%} of {n:,} labels look wrong ({span(estimate)})"
        return f"{about}; {flagged:,} flagged{_where(run)}." if flagged else f"{about}; none stands out."
    if not flagged:
        return f"None of the {n:,} labels looks wrong."
    return f"{flagged:,} of {n:,} labels look{'s' if flagged == 1 else ''} wrong ({share(flagged / n)}){_where(run)}."


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
    if (estimate := run.belief.found_rate) is not None:
        found.append(_caution(estimate))
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
    return f"The model hardly recognises {who}: little is said about the labels of {these}."


def _caution(estimate: Rate) -> str:
    if estimate.is_unknown:
        return "Give it more epochs, or more data."
    return "A model's own mistakes can pass for wrong labels."


def who_judged(run: "RunFolder") -> str:
    """Say whether models learned labels by heart, and who therefore judged the samples, unless that was given."""
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
