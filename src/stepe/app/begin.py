"""How ``stepe clean`` starts and goes on: the data are opened, the options resolved, and a request is made of both.

Judges need no torch, so nothing here loads it: what trains networks is loaded once it is known that some are trained.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stepe.app.clean import clean
from stepe.app.decided import Review, describe_decisions
from stepe.app.interrupted import resumable
from stepe.app.judges import check_for_network, choose_judges, judges_for, why_network
from stepe.app.run import Run
from stepe.data import arrays
from stepe.data.cifar_n import NAMES as CIFAR
from stepe.data.encoders import fit_encoder
from stepe.data.noise import Noise
from stepe.data.source import BUNDLED_PREFIX, Source, open_own, open_source
from stepe.errors import InputError, RunError
from stepe.files import exists
from stepe.options import declared_options, differing
from stepe.options.audit import NETWORK
from stepe.options.layout import Layout
from stepe.run.lock import locked, locked_new
from stepe.run.record import AUDIT, Config, Request

if TYPE_CHECKING:
    from stepe.app.work import Follow

DEFAULT_NOISE = "symmetric:0.4"


@dataclass(frozen=True)
class Prepared:
    """A job before any work is done: what was asked for, and the data."""

    request: Request
    options: dict[str, Any]
    """the options as the run takes them"""
    source: Source
    review: Review | None
    name: str
    """what the run is called, unless it is given another name"""
    why_network: str | None = None
    """which option had a network judge, if one did"""

    @property
    def trained(self) -> tuple[str, ...]:
        """The methods by which networks are trained."""
        return tuple(method for method in self.request.methods if method != AUDIT)


def begin(
    data: Any, options: dict[str, Any], *, resume: bool, say: Callable[[str], None], follow: "Follow | None"
) -> Run:
    """Do what :func:`stepe.clean` was asked for, by its options in their canonical form."""
    out = None if options["out"] is None else Path(options["out"])
    begun = out if resume and out is not None and (out / "config.json").exists() else None
    if begun is not None:
        check_same(begun, recorded_options(begun), options)
    ready = prepare(data, options, say, begun)
    if ready.trained:
        from stepe.app.request import check_request

        ready = replace(ready, request=check_request(ready.request, ready.source, ready.trained, say))
    with locked_new(ready.name) if out is None else locked(out) as path, resumable(path):
        return carry_out(ready, path, resume=resume, say=say, follow=follow)


def carry_out(ready: Prepared, path: Path, *, resume: bool, say: Callable[[str], None], follow: "Follow | None") -> Run:
    """Audit, or train each method, in a folder that is locked; then write the report."""
    if AUDIT in ready.request.methods:
        from stepe.app.audit import audit_source

        audit_source(ready.request, ready.options, ready.source, path, resume=resume, say=say, follow=follow)
    if ready.trained:
        from stepe.app.work import train_methods
        from stepe.methods.doors import announce_method

        train_methods(
            ready.request, ready.options, ready.source, path, ready.trained, resume=resume, say=say, follow=follow
        )
        if AUDIT not in ready.request.methods:
            # Only now: a mistake is the only line that is said.
            announce_method("clean", ready.request.methods[0], say)
            if ready.why_network is not None:
                say(ready.why_network)
    run = Run(path)
    if ready.review is not None:
        ready.review.hand_on(run)
    run.report()
    return run


def prepare(data: Any, options: dict[str, Any], say: Callable[[str], None], begun: Path | None = None) -> Prepared:
    """Open the data, and say what options stand for that are left to them."""
    judges, why = choose_judges(options), why_network(options)
    layout = Layout(**_values_for(Layout, options))
    in_memory = not isinstance(data, str | Path)
    if judges is None and not in_memory and str(data) in CIFAR and not exists(Path(data)):
        judges = NETWORK
    opened: dict[str, Any] = {"gpu": False, "fit": fit_encoder}
    if judges == NETWORK or (judges is None and _may_be_pictures(data, options)):
        opened |= _for_networks(options)
    opened["by_network"] = None if judges is None else judges == NETWORK
    if in_memory:
        source = open_own(data, layout, say, **opened)
    else:
        folder = None if options["data_dir"] is None else Path(options["data_dir"])
        source = open_source(str(data), say, folder, layout, **opened)
    if source.image_shape is not None and source.kind == "images":
        layout = replace(layout, image_size=source.image_shape[0])
    judges = judges or judges_for(source, say)
    if judges == NETWORK:
        check_for_network(options)
    review = None if options["decisions"] is None else _review_of(options["decisions"], begun)
    name = default_name(source.name if in_memory else str(data))
    options = options | {"data": source.reference, "image_size": layout.image_size, "judges": judges}
    options |= _resolved(options, source)
    source = _relabelled(source, options, review, say)
    request = Request(
        **_values_for(Request, options | {"judges": None}) | {"judges": () if judges == NETWORK else judges.split(",")},
        name=source.name,
        methods=_methods(options, source),
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
    return Prepared(request, options, source, review, name, why)


def _may_be_pictures(data: Any, options: Mapping[str, Any]) -> bool:
    """Say whether a network may have to look at the data, before they are opened."""
    return options["image"] is not None or (isinstance(data, str | Path) and Path(data).is_dir())


def _for_networks(options: Mapping[str, Any]) -> dict[str, Any]:
    """Say how data are opened that a network may look at: as large as the device allows, encoded for it."""
    from stepe.models.encoders import encoder_fitter
    from stepe.training.building import find_device

    device = find_device(options["device"])
    return {"gpu": device.type == "cuda", "fit": encoder_fitter(options["model"], device)}


def _methods(options: Mapping[str, Any], source: Source) -> tuple[str, ...]:
    """Name what is carried out: an audit or the methods that were asked for, then what these are compared with."""
    if options["judges"] == NETWORK:
        from stepe.app.request import choose_methods

        return choose_methods(options["method"], source, options["compare"])
    if not options["compare"]:
        return (AUDIT,)
    from stepe.app.request import choose_methods

    return (AUDIT, *choose_methods(options["method"], source, compare=True))


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
    found = {field.name: options[field.name] for field in fields(kind) if options.get(field.name) is not None}
    return {name: tuple(value) if isinstance(value, list) else value for name, value in found.items()}


def _resolved(options: Mapping[str, Any], source: Source) -> dict[str, Any]:
    """Settle what is left to the data, and what a preset stands for."""
    from stepe.audit.rounds import MIN_KEEP

    noise = options["noise"]
    if source.bundled:
        noise = noise or DEFAULT_NOISE
    elif noise == "none":
        noise = None  # nothing to plant; whether the labels are right is not known
    by_network = options["judges"] == NETWORK
    least = 0.0 if by_network else MIN_KEEP
    settled = {"noise": noise, "min_keep": least if options["min_keep"] is None else options["min_keep"]}
    if by_network or options["compare"]:
        from stepe.app.request import settle_training

        settled |= settle_training(options, source)
    return settled


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
