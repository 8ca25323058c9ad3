"""The commands. Results go to standard output, progress and messages to standard error."""

import json
import re
import shlex
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from rich.console import Console

import stepe
from stepe.cli.apply import apply
from stepe.cli.bench import bench
from stepe.cli.cleaned import cleaned, mode_of, tell
from stepe.cli.export import export
from stepe.cli.predict import predict
from stepe.cli.reproduce import reproduce
from stepe.cli.review import review
from stepe.cli.runs import RunArgument, TrustOption, open_run, run_path, trust_or_ask
from stepe.errors import InputError, StepeError
from stepe.methods import EVERY_METHOD

if TYPE_CHECKING:
    from stepe.review.edits import Mode

app = typer.Typer(
    name="stepe",
    help="Train on labels you cannot trust, and get back the ones that are probably wrong.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)

EXIT_BAD_INPUT = 2
EXIT_TOO_NOISY = 3
EXIT_INTERRUPTED = 130

METHOD_NAMES = ", ".join(EVERY_METHOD)


def main() -> NoReturn:
    """Run a command; a mistake of the user's is one line and exit code 2, never a traceback."""
    warnings.showwarning = _warn
    try:
        code = app(standalone_mode=False) or 0  # an early exit comes back as its code
    except StepeError as error:
        code = _complain(str(error))
    except typer.Abort:
        code = EXIT_INTERRUPTED
    except BrokenPipeError:  # the reader of a pipe had enough
        sys.stderr.close()
        code = 0
    except Exception as error:
        if not hasattr(error, "format_message"):  # click's own errors: unknown option, missing argument...
            raise
        message = _name_value(error.format_message())
        code = _complain(message) if message else EXIT_BAD_INPUT  # without a command, the help was shown
    sys.exit(code)


def _name_value(message: str) -> str:
    """A value of the wrong kind is reported by its option's name alone: add what was typed."""
    option = re.search(r"'(--[\w-]+)'", message)
    if option and option[1] in sys.argv[:-1]:
        typed = sys.argv[sys.argv.index(option[1]) + 1]
        return message if typed in message else f"{message}; it was {typed!r}"
    return message


def _complain(message: str) -> int:
    _print_line(f"[bold red]Error:[/] {_escape(message)}")
    return EXIT_BAD_INPUT


def _warn(message: Warning | str, category: type[Warning], filename: str, lineno: int, *_: Any, **__: Any) -> None:
    """Our own warnings are for people; where in the code another one arose may matter."""
    ours = Path(filename).is_relative_to(Path(stepe.__file__).parent)
    where = "" if ours else f" ({category.__name__}, {filename}:{lineno})"
    _print_line(f"[yellow]Warning:[/] {_escape(f'{message}{where}')}")


def _print_line(markup: str) -> None:
    line = " ".join(markup.splitlines())
    Console(stderr=True, emoji=False).print(line, soft_wrap=True, highlight=False)


def _escape(text: str) -> str:
    from rich.markup import escape

    return escape(text)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"stepe {stepe.__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass


@app.command()
def clean(
    context: typer.Context,
    data: Annotated[
        str | None,
        typer.Argument(
            metavar="DATA",
            help="A folder with a subfolder of pictures per class; a .csv, .tsv, .jsonl or .parquet file; an .npz file "
            "with the arrays features and labels, or a pair x.npy,y.npy; a saved Hugging Face data set, or hf:NAME; "
            "[b]digits[/b] (bundled, with planted noise); [b]cifar100n[/b], [b]cifar10n:worst[/b] and the like (real "
            "human noise).",
            show_default=False,
        ),
    ] = None,
    label: Annotated[
        str | None,
        typer.Option(metavar="COL", help="Column with the labels; rows without one are predicted.", show_default=False),
    ] = None,
    text: Annotated[
        str | None, typer.Option(metavar="COL", help="Learn from this column of texts.", show_default=False)
    ] = None,
    image: Annotated[
        str | None,
        typer.Option(metavar="COL", help="Learn from the pictures whose paths this column holds.", show_default=False),
    ] = None,
    features: Annotated[
        str | None,
        typer.Option(
            metavar="COLS",
            help="Learn from these columns of numbers: a comma list of names or patterns, as in emb_*. With none of "
            "the three, from all columns: numbers, categories and dates.",
            show_default=False,
        ),
    ] = None,
    id: Annotated[
        str | None, typer.Option(metavar="COL", help="Column that names the rows.", show_default=False)
    ] = None,
    trusted: Annotated[
        str | None,
        typer.Option(
            metavar="COL",
            help="Column that says whose label was checked (true, 1, yes): never dropped.",
            show_default=False,
        ),
    ] = None,
    group: Annotated[
        str | None,
        typer.Option(
            metavar="COL", help="Column whose values --min-keep protects, not the classes.", show_default=False
        ),
    ] = None,
    split_by: Annotated[
        str | None,
        typer.Option(metavar="COL", help="Column whose values (patients, users) stay on one side.", show_default=False),
    ] = None,
    holdout: Annotated[float, typer.Option(help="Share of each class held out for the accuracy; 0 is none.")] = 0.2,
    test: Annotated[
        str | None,
        typer.Option(metavar="DATA", help="Data of the same form to hold out instead.", show_default=False),
    ] = None,
    encoding: Annotated[str, typer.Option(help="Of a text file.")] = "utf-8",
    image_size: Annotated[
        int | None,
        typer.Option(
            min=8, help="Side to which pictures are resized; by default by size and device.", show_default=False
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            metavar="KIND:NAME", help="Another network: timm:NAME for pictures, hf:NAME for texts.", show_default=False
        ),
    ] = None,
    method: Annotated[
        str | None,
        typer.Option(
            help=f"One of {METHOD_NAMES}; a comma list (the first is the run, the rest compared); or all. By default "
            "step-e-plus.",
            show_default=False,
        ),
    ] = None,
    preset: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="paper: exactly what the paper does (step-e).", show_default=False),
    ] = None,
    noise: Annotated[
        str | None,
        typer.Option(
            metavar="KIND:RATE",
            help="Noise to plant, for experiments: symmetric, asymmetric, instance or outliers, as in symmetric:0.4; "
            "or none. Bundled data gets symmetric:0.4 by default, your own is left as it is.",
            show_default=False,
        ),
    ] = None,
    epochs: Annotated[
        int | None, typer.Option(help="Length of the run; 20 to 60 by default, by the data.", show_default=False)
    ] = None,
    warmup: Annotated[
        str | None,
        typer.Option(
            metavar="EPOCHS", help="Epochs before anything is dropped; by default a sixth; or auto.", show_default=False
        ),
    ] = None,
    rho_max: Annotated[
        str | None,
        typer.Option(
            metavar="SHARE",
            help="Largest share of the samples ever dropped; by default min(0.5, rate + 0.05) where the rate is known, "
            "else auto: it is estimated.",
            show_default=False,
        ),
    ] = None,
    probe: Annotated[
        str | None,
        typer.Option(
            help="Who judges the samples: in-sample (the model itself), cross:K or cross:KxR (models that never "
            "trained on them), or auto, the default for your own data.",
            show_default=False,
        ),
    ] = None,
    noise_rate: Annotated[
        float | None,
        typer.Option(help="Share of wrong labels, if you know it; --rho-max then follows.", show_default=False),
    ] = None,
    min_keep: Annotated[
        float,
        typer.Option(help="Share of every class or --group that is never dropped, to protect rare ones; 0 is off."),
    ] = 0.0,
    balanced: Annotated[
        bool, typer.Option("--balanced", help="Let every class count alike in training, however rare.")
    ] = False,
    strong: Annotated[
        float,
        typer.Option(help="Share of the pictures that are also turned, moved, recoloured and cut into; 0 is off."),
    ] = 0.0,
    seed: Annotated[int, typer.Option(help="Everything random follows from it.")] = 0,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the run; by default runs/DATA-N.", show_default=False)
    ] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda, mps, or auto: the best there is.")] = "auto",
    data_dir: Annotated[
        Path | None,
        typer.Option(help="Where CIFAR-N lies; else $STEPE_DATA, else a cache, else downloaded.", show_default=False),
    ] = None,
    compare: Annotated[
        bool | None,
        typer.Option(
            "--compare/--no-compare",
            help="Train plain and, where clean labels are known, oracle too; on for bundled data.",
            show_default=False,
        ),
    ] = None,
    decisions: Annotated[
        str | None,
        typer.Option(metavar="RUN", help="Train with what people decided about this earlier run.", show_default=False),
    ] = None,
    track: Annotated[
        list[str],
        typer.Option(
            metavar="NAME[:WHERE]",
            help="Send the history on: tensorboard (into the run folder) or tensorboard:DIR, wandb:PROJECT, "
            "mlflow:EXPERIMENT. May be given several times.",
            show_default=False,
        ),
    ] = [],  # noqa: B006 (typer reads it, nobody writes it)
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
    """Train on labels you cannot trust; find the wrong ones.

    Writes a run folder: the model, every sample's verdict, the suspects (issues.csv), a report (report.html).
    """
    from stepe.app.clean import clean as start
    from stepe.app.resume import resume as go_on
    from stepe.options import declared_options

    console = Console(stderr=True, quiet=quiet or as_json, emoji=False)

    def say(message: str) -> None:
        console.print(_escape(message), highlight=False, soft_wrap=True)

    mode = mode_of(drop=drop, relabel=relabel)
    if (data is None) == (resume is None):
        raise InputError("give DATA to clean (for example: stepe clean digits), or --resume RUN, one of the two")
    warmup_given = _number_or_auto(warmup, "--warmup", int)
    rho_max_given = _number_or_auto(rho_max, "--rho-max", float)
    reviewed = None if decisions is None else run_path(decisions)

    def work(follow: Any) -> stepe.Run:
        if resume is not None:
            path = run_path(resume)
            if out is not None and out.resolve() != path.resolve():
                raise InputError(f"--out {out} is not the run that --resume {resume} names; leave --out away")
            values = context.params | {"warmup": warmup_given, "rho_max": rho_max_given, "decisions": reviewed}
            insisted = {name: value for name, value in values.items() if _typed(context, name)}
            changed = {name: insisted[name] for name in insisted if name in declared_options(start)} | {"out": None}
            return go_on(path, trust_paths=trust_or_ask(trust_paths), say=say, follow=follow, **changed)
        assert data is not None
        return start(
            data,
            label=label,
            text=text,
            image=image,
            features=features,
            id=id,
            trusted=trusted,
            group=group,
            split_by=split_by,
            holdout=holdout,
            test=test,
            encoding=encoding,
            image_size=image_size,
            model=model,
            method=method,
            preset=preset,
            noise=noise,
            epochs=epochs,
            warmup=warmup_given,
            rho_max=rho_max_given,
            probe=probe,
            noise_rate=noise_rate,
            min_keep=min_keep,
            balanced=balanced,
            strong=strong,
            seed=seed,
            out=out,
            device=device,
            data_dir=data_dir,
            compare=compare,
            decisions=reviewed,
            track=track,
            say=say,
            follow=follow,
        )

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
    share = run.summary["flagged"] / run.summary["samples"]
    if fail_above is not None and share > fail_above:
        _print_line(f"{share:.1%} of the labels look wrong, more than the {fail_above:.1%} that --fail-above allows")
        raise typer.Exit(EXIT_TOO_NOISY)


def _write_cleaned(run: stepe.Run, mode: "Mode") -> Path | None:
    """The data again with the suspects marked, removed or corrected; of an experiment, only if it was asked for."""
    from stepe.review.cleaned import write_cleaned

    if run.request.is_experiment and mode == "mark":
        return None
    return write_cleaned(run, mode, trust_paths=True, say=tell)


def _number_or_auto(text: str | None, option: str, kind: type[Any]) -> Any:
    """A number, or the word auto."""
    if text is None or text == "auto":
        return text
    try:
        return kind(text)
    except ValueError:
        raise InputError(f"{option} is {text!r}; give a number, or auto") from None


def _typed(context: typer.Context, name: str) -> bool:
    """Whether an option was typed, and is not just its default."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _with_progress(console: Console, work: Callable[[Any], stepe.Run]) -> stepe.Run:
    from stepe.cli.progress import Bars, Lines
    from stepe.training.building import Silent

    if console.quiet:
        return work(lambda method, position, total: Silent())
    if not console.is_terminal:
        return work(lambda method, position, total: Lines(console, method))
    bars = Bars(console)
    try:
        return work(bars.follow)
    finally:
        bars.progress.stop()


def _show_result(run: stepe.Run, written: Path | None, *, quiet: bool, as_json: bool) -> None:
    report = run.path / "report.html"
    if as_json:
        runs = {other.method: other.summary for other in run.others}
        result = {
            "run": str(run.path),
            "report": str(report),
            "cleaned": None if written is None else str(written),
            "summary": run.summary,
            "compare": runs,
        }
        typer.echo(json.dumps(result))
        return
    if quiet:
        typer.echo(str(run.path))
        return
    from stepe.beliefs.rate import stated_rate
    from stepe.cli.tables import comparison, suspects
    from stepe.report.findings import hardly_recognised

    console = Console(emoji=False)
    order = {name: position for position, name in enumerate(("plain", run.method, "oracle"))}
    runs_in_order = sorted([run, *run.others], key=lambda other: (order.get(other.method, 1.5), other.method))
    noise = run.request.noise
    title = run.request.name + (f", {noise} noise" if noise else "")
    console.print()
    console.print(comparison(runs_in_order, [other.method for other in runs_in_order], _escape(title)))
    if run.summary["flagged"]:
        console.print()
        console.print(suspects(run.issues))
    elif run.summary["dropped"] == 0 and "noise_rate" not in run.summary:
        console.print(f"\n{run.method} drops nothing, so it flags nothing.", highlight=False)
    console.print()
    if "noise_rate" in run.summary:
        console.print(stated_rate(run.summary["noise_rate"]), highlight=False, soft_wrap=True)
    if unjudged := hardly_recognised(run):
        console.print(unjudged, highlight=False, soft_wrap=True, markup=False)
    console.print(f"{run.summary['flagged']} of {run.summary['samples']} labels look wrong:", highlight=False)
    for file in filter(None, (run.path / "issues.csv", written, report)):
        console.print(f"  {file}", highlight=False, soft_wrap=True, markup=False)
    if run.summary["flagged"]:
        command = f"stepe review {shlex.quote(str(run.path))}"
        console.print(f"Go through them with: {command}", highlight=False, soft_wrap=True, markup=False)


@app.command()
def report(run: RunArgument = "latest") -> None:
    """Build the report of a run again, and say where it is."""
    typer.echo(str(open_run(run).report()))


@app.command()
def explain(
    run: RunArgument,
    sample_id: Annotated[str, typer.Argument(metavar="ID", help="Id of the sample, as in issues.csv.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print the story as JSON.")] = False,
) -> None:
    """Tell one sample's story: its loss by epoch, when it was dropped and came back, what the model thinks it is."""
    from stepe.run.story import tell

    story = tell(open_run(run), sample_id)
    if as_json:
        sample = {key: value.item() if hasattr(value, "item") else value for key, value in story.sample.items()}
        typer.echo(json.dumps({"sample": sample, "epochs": story.entries}, default=str))
        return
    from stepe.cli.explain import show

    show(story, Console(emoji=False))


@app.command()
def compare(
    runs: Annotated[list[str], typer.Argument(metavar="RUN", help="Two or more run folders.")],
    out: Annotated[Path, typer.Option(help="Where the curves go: .svg, .png or .pdf.")] = Path("comparison.svg"),
    as_json: Annotated[bool, typer.Option("--json", help="Print the summaries as JSON; draw nothing.")] = False,
) -> None:
    """Put runs side by side: a table, and their curves over each other."""
    opened = [open_run(run) for run in runs]
    if as_json:
        typer.echo(json.dumps([{"run": str(run.path), "summary": run.summary} for run in opened]))
        return
    from stepe.cli.tables import comparison
    from stepe.files import replacing
    from stepe.report.figures import overlaid

    if out.suffix not in (".svg", ".png", ".pdf"):
        raise InputError(f"--out {out} must end in .svg, .png or .pdf")
    figure = overlaid(opened)
    with replacing(out) as temporary:
        figure.savefig(temporary, bbox_inches="tight")
    console = Console(emoji=False)
    names = [_escape(f"{run.path.name} ({run.method})") for run in opened]
    console.print(comparison(opened, names, "Runs side by side"))
    console.print(f"Curves: {out}", highlight=False, soft_wrap=True, markup=False)


app.command()(reproduce)
app.command()(bench)
app.command()(cleaned)
app.command()(review)
app.command()(apply)
app.command()(export)
app.command()(predict)
