"""``stepe explain``: what happened to one sample, shown in a terminal."""

import json
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from stepe.cli.messages import as_it_is
from stepe.cli.runs import RunArgument, open_run
from stepe.run.record import AUDIT

if TYPE_CHECKING:
    from stepe.run.explanation import Explanation

BARS = "▁▂▃▄▅▆▇█"
KEPT, DROPPED, UNSEEN = "·", "x", " "


def explain(
    run: RunArgument,
    sample_id: Annotated[str, typer.Argument(metavar="ID", help="Id of the sample, as in issues.csv.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
) -> None:
    """Show what happened to one sample: its loss by epoch or round, when it was dropped, what it looks like."""
    from stepe.run.explanation import explain_sample

    opened = open_run(run)
    found = explain_sample(opened, sample_id)
    if as_json:
        sample = {key: value.item() if hasattr(value, "item") else value for key, value in found.sample.items()}
        typer.echo(json.dumps({"sample": sample, "epochs": found.entries}, default=str))
        return
    show(found, Console(emoji=False), by_judges=opened.method == AUDIT)


def show(found: "Explanation", console: Console, *, by_judges: bool = False) -> None:
    """Print what is known about a sample, its losses as a small chart, and what became of it.

    Judges look in rounds, which count from 1 as in their progress; and what they say together comes last.
    """
    sample = found.sample
    given, suggested = sample["given_label"], sample["suggested_label"]
    verdict = "flagged: the label looks wrong" if sample["flagged"] else "not flagged"
    console.print(as_it_is(f"Sample {sample['id']} (row {sample['row']}, {sample['split']})", "bold"))
    console.print(as_it_is(f"  given label    {given}"))
    said = f"{suggested} ({sample['suggestion_confidence']:.0%})" if suggested else "nothing"
    console.print(as_it_is(f"  {'the judges say' if by_judges else 'the model says'} {said}"))
    console.print(as_it_is(f"  suspicion      {sample['suspicion']:.3f}, {verdict}"))
    if sample["flagged"]:
        console.print(as_it_is(f"  why            {sample['reason']}"))
    if not found.entries:
        learned = "learned from" if by_judges else "trained on"
        held_out = f"A held-out sample: it was never {learned}, so it has no history."
        console.print(f"  {held_out if sample['split'] != 'train' else 'This run kept no trace of its samples.'}")
        return
    losses = [entry["loss"] for entry in found.entries[:-1]]
    marks = [DROPPED if entry["dropped"] else KEPT for entry in found.entries[:-1]]
    unit, first = ("round", 1) if by_judges else ("epoch", 0)
    blank = "" if by_judges else " (blank: not probed)"
    console.print(f"\n  loss by {unit}, {first} to {len(losses) - 1 + first}{blank}", highlight=False)
    console.print(as_it_is(f"  {chart(losses)}"))
    console.print(as_it_is(f"  {''.join(marks)}"))
    console.print(as_it_is(f"  ({DROPPED} dropped, {KEPT} kept)"))
    known = [(epoch, loss) for epoch, loss in enumerate(losses, first) if loss is not None]
    if known:
        (start, early), (last, late) = known[0], known[-1]
        final = found.entries[-1]["loss"]
        outcome = "" if final is None else f"; {final:.3f} in the end"
        console.print(f"  from {early:.3f} in {unit} {start} to {late:.3f} in {unit} {last}{outcome}", highlight=False)
    console.print()
    for dropped, start, end in found.spans:
        what = "dropped" if dropped else ("kept again" if start in found.readmissions else "kept")
        when = f"{unit} {start + first}" if end == start else f"{unit}s {start + first} to {end + first}"
        console.print(f"  {when}: {what}", highlight=False)
    guesses = changes([entry["prediction"] for entry in found.entries])
    if guesses:
        told = ", ".join(
            f"{guess} ({'in the end' if by_judges and epoch == len(losses) else f'from {unit} {epoch + first}'})"
            for epoch, guess in guesses[-6:]
        )
        console.print(as_it_is(f"\n  predicted {told}"))


def chart(losses: list[float | None]) -> str:
    """Draw a line of bars; the tallest is the largest loss.

    >>> chart([None, 0.0, 1.0, 0.5])
    ' ▁█▅'
    """
    largest = max((loss for loss in losses if loss is not None), default=0.0) or 1.0
    return "".join(
        UNSEEN if loss is None else BARS[min(len(BARS) - 1, round(loss / largest * (len(BARS) - 1)))] for loss in losses
    )


def changes(guesses: list[str | None]) -> list[tuple[int, str]]:
    """Find where the prediction changed: (epoch, new prediction).

    >>> changes([None, "3", "3", "8"])
    [(1, '3'), (3, '8')]
    """
    found: list[tuple[int, str]] = []
    for epoch, guess in enumerate(guesses):
        if guess is not None and (not found or found[-1][1] != guess):
            found.append((epoch, guess))
    return found
