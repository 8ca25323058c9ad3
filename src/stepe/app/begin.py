"""How ``stepe clean`` starts and goes on: the data are opened, the options resolved, and a request is made of both."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from stepe.app.clean import clean
from stepe.app.decided import Review, describe_decisions
from stepe.app.networks import tuning_for
from stepe.app.request import (
    by_preset,
    check_methods,
    check_options,
    check_strong,
    choose_methods,
    without_refused,
)
from stepe.app.run import Run
from stepe.app.work import Follow, carry_out, resumable
from stepe.data import arrays
from stepe.data.noise import Noise
from stepe.data.source import BUNDLED_PREFIX, Source, open_own, open_source
from stepe.errors import InputError, RunError
from stepe.models.encoders import encoder_fitter
from stepe.models.pretrained import check_model
from stepe.options import declared_options, differing
from stepe.options.layout import Layout
from stepe.run.lock import locked, locked_new
from stepe.run.record import Config, Request
from stepe.training.building import find_device

DEFAULT_NOISE = "symmetric:0.4"


@dataclass(frozen=True)
class Prepared:
    """A job before anything is trained: what was asked for, and the data."""

    request: Request
    options: dict[str, Any]
    """the options as the run takes them"""
    source: Source
    review: Review | None
    name: str
    """what the run is called, unless it is given another name"""


def begin(
    data: Any, options: dict[str, Any], *, resume: bool, say: Callable[[str], None], follow: Follow | None
) -> Run:
    """Do what :func:`stepe.clean` was asked for, by its options in their canonical form."""
    out = None if options["out"] is None else Path(options["out"])
    begun = out if resume and out is not None and (out / "config.json").exists() else None
    if begun is not None:
        check_same(begun, recorded_options(begun), options)
    ready = prepare(data, options, say, begun)
    request = ready.request
    check_options(request, rho_max=request.rho_max, warmup=request.warmup, min_keep=request.min_keep or None)
    if request.every_method:
        request = without_refused(request, ready.source, say)
    check_methods(request, ready.source)
    with locked_new(ready.name) if out is None else locked(out) as path, resumable(path):
        return carry_out(
            request, ready.options, ready.source, path, resume=resume, say=say, follow=follow, review=ready.review
        )


def prepare(data: Any, options: dict[str, Any], say: Callable[[str], None], begun: Path | None = None) -> Prepared:
    """Open the data, and say what options stand for that are left to them."""
    device, model = find_device(options["device"]), options["model"]
    layout = Layout(**_values_for(Layout, options))
    in_memory = not isinstance(data, str | Path)
    gpu, fit = device.type == "cuda", encoder_fitter(model, device)
    if in_memory:
        source = open_own(data, layout, say, gpu=gpu, fit=fit)
    else:
        folder = None if options["data_dir"] is None else Path(options["data_dir"])
        source = open_source(str(data), say, folder, layout, gpu=gpu, fit=fit)
    if source.image_shape is not None and source.kind == "images":
        layout = replace(layout, image_size=source.image_shape[0])
    if model is not None:
        check_model(model, source.kind)
    review = None if options["decisions"] is None else _review_of(options["decisions"], begun)
    name = default_name(source.name if in_memory else str(data))
    options = options | _resolved(options, source) | {"data": source.reference, "image_size": layout.image_size}
    source = _relabelled(source, options, review, say)
    request = Request(
        **_values_for(Request, options),
        name=source.name,
        methods=choose_methods(options["method"], source, options["compare"]),
        kind=source.kind,
        held_out_is_clean=source.held_out_is_clean,
        is_experiment=source.is_experiment,
        uniform_classes=source.uniform_classes,
        duplicates=source.duplicates,
        decisions_until=0 if review is None else review.until,
        blends=source.can_be_blended,
        every_method=options["method"] == "all",
        augments=source.mean is not None,
    )
    check_strong(request.strong, source)
    return Prepared(request, options, source, review, name)


def recorded_options(path: Path) -> dict[str, Any]:
    """Read the options that a run was started with from its folder."""
    config = Config.read(path)
    if config.request is None:
        raise RunError(f"{path} was not made by stepe clean; resume it by what made it")
    config.check_resumable(path)
    declared, saved = declared_options(clean), config.options
    if unknown := saved.keys() - declared.keys():
        raise RunError(
            f"{path} was made by another version of stepe, with {', '.join(sorted(unknown))}, which this one does not "
            "know: start it anew in another folder"
        )
    for name, value in saved.items():
        try:
            declared[name].check_recorded(value)
        except InputError as error:
            raise RunError(f"{path / 'config.json'} is damaged, or nothing that stepe wrote: {error}") from error
    return {name: option.canonical(option.default) for name, option in declared.items()} | saved


def check_same(path: Path, recorded: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """Refuse to go on under other options than those that a run was started with."""
    if different := differing(clean, recorded, given):
        raise RunError(
            f"{path} was started with another configuration: {'; '.join(different)}. "
            "Resume it as it was, or start a new run in another folder"
        )


def default_name(data: str) -> str:
    """Return what a run of this data is called if nobody says: its folder is ``runs/<name>-<n>``."""
    name = arrays.name_of(data) if arrays.is_array_file(data) else Path(data.removeprefix(BUNDLED_PREFIX)).stem
    return (name.strip(".") or Path(data).resolve().name or "data").replace(":", "-")


def _values_for(kind: type[Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Take the options that a dataclass has a field for; lists become tuples."""
    found = {field.name: options[field.name] for field in fields(kind) if field.name in options}
    return {name: tuple(value) if isinstance(value, list) else value for name, value in found.items()}


def _resolved(options: Mapping[str, Any], source: Source) -> dict[str, Any]:
    """Settle what is left to the data, and what a preset stands for."""
    method, probe = by_preset(options["preset"], options["method"], options["probe"])
    noise, epochs = options["noise"], options["epochs"]
    if source.bundled:
        noise = noise or DEFAULT_NOISE
    elif noise == "none":
        noise = None  # nothing to plant; whether the labels are right is not known
    return {
        "method": method,
        "probe": probe or source.default_probe,
        "noise": noise,
        "epochs": tuning_for(source, options["model"]).epochs if epochs is None else epochs,
    }


def _relabelled(
    source: Source, options: Mapping[str, Any], review: Review | None, say: Callable[[str], None]
) -> Source:
    """Give the source the noise that was asked for, and what people decided."""
    if options["noise"] is not None:
        source = source.planted(Noise.parse(options["noise"]), options["seed"])
    if review is None:
        return source
    say(describe_decisions(review.decisions))
    return review.carry_out(source)


def _review_of(decisions: str, begun: Path | None) -> Review:
    """Find what was decided by now; for a run that is resumed, what had been decided when it began."""
    run = Run(decisions)
    return Review.of(run, None if begun is None else Run(begun).request.decisions_until)
