"""``stepe predict``: labels for further data, from the model of a run."""

from pathlib import Path
from typing import Annotated

import typer

from stepe.cli.runs import RunArgument, TrustOption, open_run, trust_or_ask
from stepe.errors import InputError
from stepe.files import write_text


def predict(
    run: RunArgument,
    data: Annotated[str, typer.Argument(metavar="DATA", help="Data of the form the run was trained on; no labels.")],
    out: Annotated[
        Path | None, typer.Option(help="CSV file to write; by default standard output.", show_default=False)
    ] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda, mps, or auto: the best there is.")] = "auto",
    trust_paths: TrustOption = False,
) -> None:
    """Predict the labels of further data with the model of a run: id, predicted_label and confidence, as CSV."""
    if out is not None and not out.parent.is_dir():
        raise InputError(f"there is no folder {out.parent}; make it first, or choose another file for --out")
    from stepe.tables.delimited import of_frame

    found = of_frame(open_run(run).predict(data, device=device, trust_paths=trust_or_ask(trust_paths)))
    if out is None:
        typer.echo(found, nl=False)
        return
    write_text(out, found)
    typer.echo(str(out))
