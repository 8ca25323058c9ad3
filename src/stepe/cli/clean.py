"""``stepe clean``: its options are those of :func:`stepe.clean`, and a few that only a command needs."""

import json
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from stepe.app.clean import clean as start
from stepe.cli.cleaned import mode_of
from stepe.cli.declared import with_options
from stepe.cli.messages import escape, print_line, print_note
from stepe.cli.runs import TrustOption, run_path, trust_or_ask
from stepe.errors import InputError
from stepe.run.record import AUDIT

if TYPE_CHECKING:
    from stepe.app.run import Run
    from stepe.review.edits import Mode

EXIT_TOO_NOISY = 3
EXIT_INTERRUPTED = 130


@with_options(start)
def clean(
    typed: dict[str, Any],
    resume: Annotated[
        str | None, typer.Option(metavar="RUN", help="Continue an interrupted run.", show_default=False)
    ] = None,
    trust_paths: TrustOption = False,
    drop: Annotated[
        bool, typer.Option("--drop", help="Leave the suspicious rows out of the cleaned file, not just mark them.")
    ] = False,
    relabel: Annotated[
        bool,
        typer.Option("--relabel", help="Correct the suspicious rows of the cleaned file, instead of marking them."),
    ] = False,
    fail_above: Annotated[
        float | None,
        typer.Option(
            metavar="SHARE",
            min=0,
            max=1,
            help="Exit with code 3 when more than this share of the labels looks wrong, for pipelines.",
            show_default=False,
        ),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print the run folder and nothing else.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON, for scripts.")] = False,
) -> None:
    """Find the labels that are probably wrong.

    Writes a run folder: the model, every sample's verdict, the suspects (issues.csv), a report (report.html).
    """
    console = Console(stderr=True, quiet=quiet or as_json, emoji=False)

    def say(message: str) -> None:
        console.print(escape(message), highlight=False, soft_wrap=True)

    mode = mode_of(drop=drop, relabel=relabel)
    if ("data" in typed) == (resume is not None):
        raise InputError("give DATA to clean (for example: stepe clean digits), or --resume RUN, one of the two")
    if "decisions" in typed:
        typed["decisions"] = run_path(typed["decisions"])

    def work(follow: Any) -> "Run":
        if resume is None:
            return start(**typed, say=say, follow=follow)
        from stepe.app.resume import resume as go_on

        path, out = run_path(resume), typed.get("out")
        if out is not None and Path(out).resolve() != path.resolve():
            raise InputError(f"--out {out} is not the run that --resume {resume} names; leave --out away")
        return go_on(path, trust_paths=trust_or_ask(trust_paths), say=say, follow=follow, **typed)

    try:
        run = _with_progress(console, work)
    except KeyboardInterrupt as interrupt:
        notes = getattr(interrupt, "__notes__", ())
        say(" ".join(("Interrupted.", *notes)) if notes else "Interrupted before anything was written.")
        raise typer.Exit(EXIT_INTERRUPTED) from None
    written = _write_cleaned(run, mode)
    if written is not None:
        run.report()  # it lists the files that are there
    _show_result(run, written, quiet=quiet, as_json=as_json)
    share = run.summary.flagged_share
    if fail_above is not None and share > fail_above:
        print_line(f"{share:.1%} of the labels look wrong, more than the {fail_above:.1%} that --fail-above allows")
        raise typer.Exit(EXIT_TOO_NOISY)


def _write_cleaned(run: "Run", mode: "Mode") -> Path | None:
    """Write the data again, its suspects marked, removed or corrected; of an experiment, only if that was asked for."""
    from stepe.review.cleaned import write_cleaned

    if run.request.is_experiment and mode == "mark":
        return None
    if mode == "relabel" and not run.belief.has_signal:
        print_note("Nothing was relabelled: the rows say too little about their labels. Suspects are marked instead.")
        mode = "mark"
    return write_cleaned(run, mode, trust_paths=True, say=print_note)


def _with_progress(console: Console, work: "Callable[[Any], Run]") -> "Run":
    from stepe.cli.progress import Bars, Lines, Silent

    if console.quiet:
        return work(lambda method, position, total: Silent())
    if not console.is_terminal:
        return work(lambda method, position, total: Lines(console, method))
    bars = Bars(console)
    try:
        return work(bars.follow)
    finally:
        bars.progress.stop()


def _show_result(run: "Run", written: Path | None, *, quiet: bool, as_json: bool) -> None:
    report = run.path / "report.html"
    if as_json:
        runs = {other.method: other.summary.to_json() for other in run.others}
        result = {
            "run": str(run.path),
            "report": str(report),
            "cleaned": None if written is None else str(written),
            "summary": run.summary.to_json(),
            "compare": runs,
        }
        typer.echo(json.dumps(result))
        return
    if quiet:
        typer.echo(str(run.path))
        return
    from stepe.cli.tables import comparison, suspects

    console = Console(emoji=False)
    audited = run.method == AUDIT
    if run.others or not audited or run.summary.noise is not None:
        order = {name: position for position, name in enumerate(("plain", run.method, "oracle"))}
        runs_in_order = sorted([run, *run.others], key=lambda other: (order.get(other.method, 1.5), other.method))
        noise = run.request.noise
        title = run.request.name + (f", {noise} noise" if noise else "")
        console.print()
        console.print(comparison(runs_in_order, [other.method for other in runs_in_order], escape(title)))
    if run.summary.flagged:
        console.print()
        console.print(suspects(run.issues, dropped=not audited))
    elif run.summary.dropped == 0 and not run.belief.rate_was_found:
        console.print(f"\n{run.method} drops nothing, so it flags nothing.", highlight=False)
    console.print()
    for sentence in _told(run):
        console.print(sentence, highlight=False, soft_wrap=True, markup=False)
    look = "are worth a look" if run.belief.may_be_clean else "look wrong"
    console.print(f"{run.summary.flagged:,} of {run.summary.samples:,} labels {look}:", highlight=False)
    for file in filter(None, (run.path / "issues.csv", written, report)):
        console.print(f"  {file}", highlight=False, soft_wrap=True, markup=False)
    if run.summary.flagged:
        command = f"stepe review {shlex.quote(str(run.path))}"
        console.print(f"Go through them with: {command}", highlight=False, soft_wrap=True, markup=False)


def _told(run: "Run") -> Iterator[str]:
    """Say what was found out, a sentence each."""
    from stepe.beliefs.rate import stated_rate
    from stepe.report.findings import hardly_recognised, judges

    summary = run.summary
    if summary.panel:
        yield f"Judged by {judges(run)}; they agree with {summary.agreement or 0:.0%} of the given labels."
    if not run.belief.has_signal:
        yield "The rows say too little of their labels to call any wrong; more rows may help, or columns that say more."
    elif run.belief.may_be_clean:
        yield f"It may be that nothing is wrong: at most {run.belief.rate.high:.0%} of the labels are."
    elif (rate := run.belief.found_rate) is not None:
        yield stated_rate(rate)
    if unjudged := hardly_recognised(run):
        yield unjudged
    if summary.held_out_flagged is not None:
        look = "looks" if summary.held_out_flagged == 1 else "look"
        yield f"{summary.held_out_flagged:,} of {summary.held_out:,} held-out labels {look} wrong, too."
