"""Who judges: a panel that fits the data, those who were asked for, or a network where an option says so."""

from collections.abc import Callable, Mapping
from typing import Any

from stepe.data.images import FEW_PIXELS
from stepe.data.source import Source
from stepe.errors import InputError
from stepe.options.audit import JUDGE_NAMES, NETWORK
from stepe.options.layout import DataKind

OF_NETWORKS = ("method", "preset", "model", "epochs", "balanced", "strong", "warmup", "probe", "track")
"""options that only networks have"""
OF_JUDGES = ("evidence", "top", "min_suspicion")
"""options that only judges have"""


def choose_judges(options: Mapping[str, Any]) -> str | None:
    """Return who was asked to judge; ``None``: it is left to the data."""
    asked, given = options["judges"], given_to_networks(options)
    if asked is None and given and not options["compare"]:
        check_for_network(options)
        return NETWORK
    names = [] if asked is None else asked.split(",")
    if unknown := [name for name in names if name not in (*JUDGE_NAMES, NETWORK)]:
        raise InputError(f"there is no judge {unknown[0]!r}; choose among {', '.join((*JUDGE_NAMES, NETWORK))}")
    if NETWORK in names:
        if len(names) > 1:
            raise InputError(f"--judges {asked} mixes a network with others; name the network alone, or the others")
        check_for_network(options)
        return NETWORK
    if asked is not None and given and not options["compare"]:
        raise InputError(f"{given[0]} is for networks, and --judges names {asked}; leave one of the two out")
    return ",".join(dict.fromkeys(names)) or None


def check_for_network(options: Mapping[str, Any]) -> None:
    """Refuse what a network that judges would silently ignore."""
    useless = [f"--{name.replace('_', '-')}" for name in OF_JUDGES if options[name] is not None]
    if useless:
        asked = ["--judges network"] if options["judges"] == NETWORK else given_to_networks(options)
        instead = f"leave it or {asked[0]} out" if asked else "leave it out, or choose other judges with --judges"
        later = "" if "--evidence" in useless else f"; `stepe cleaned` has {useless[0]} for any run"
        raise InputError(f"{useless[0]} is for judges that are no network: {instead}{later}")


def given_to_networks(options: Mapping[str, Any]) -> list[str]:
    """Name the options that were given and that only networks have."""
    given = [f"--{name}" for name in OF_NETWORKS if options[name] not in (None, False, 0.0, (), [])]
    return [*given, "--device"] if options["device"] not in ("auto", "cpu") else given


def why_network(options: Mapping[str, Any]) -> str | None:
    """Say which option had a network judge, where nobody asked for one by name."""
    if options["judges"] is not None or options["compare"] or not (given := given_to_networks(options)):
        return None
    return f"{given[0]} is for networks, so a network judged (as with --judges network); judges take seconds"


def judges_for(source: Source, say: Callable[[str], None]) -> str:
    """Name the judges that fit the data; a network for pictures that are too large to be judged by their pixels."""
    if source.kind == "images" and source.x.shape[-1] > FEW_PIXELS:
        return NETWORK
    from stepe.audit.panel import default_judges

    return ",".join(default_judges(kind_of(source), len(source.labels), say))


def kind_of(source: Source) -> DataKind:
    """Return what the rows are to a judge: rows of pixels are pictures."""
    return "images" if source.image_shape is not None else source.kind
