"""The checks of options, by their declarations: values out of range, and names that nobody declared."""

import inspect
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from functools import cache, wraps
from types import MappingProxyType
from typing import Any, ParamSpec, TypeVar

from stepe.errors import InputError
from stepe.options.option import Declared, options_of

P = ParamSpec("P")
R = TypeVar("R")
NOWHERE: Mapping[str, str] = MappingProxyType({})

declared_options = cache(options_of)


def check_values(declaring: Callable[..., Any], values: Mapping[str, Any]) -> None:
    """Refuse values that the options of a function, or of a dataclass, do not take."""
    for name, option in declared_options(declaring).items():
        if name in values:
            option.check(values[name])


def check_fields(options: Any) -> None:
    """Refuse values that the options of a dataclass do not take."""
    check_values(type(options), vars(options))


def check_names(names: Iterable[str], known: Iterable[str], whose: str, elsewhere: Mapping[str, str] = NOWHERE) -> None:
    """Refuse names that are no options; say where else they stand (name -> sentence), or which ones they resemble."""
    known = list(known)
    for name in names:
        if name not in known:
            told = elsewhere.get(name) or resembling(name, [*known, *elsewhere]) or _all(known)
            raise InputError(f"{whose} has no option {name!r}; {told}")


def canonical(declaring: Callable[..., Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Take the options of a function from some values, each in the one way of writing it, as JSON holds it."""
    declared = declared_options(declaring)
    return {name: option.canonical(values[name]) for name, option in declared.items() if name in values}


def differing(declaring: Callable[..., Any], recorded: Mapping[str, Any], given: Mapping[str, Any]) -> list[str]:
    """Say what keeps a run from going on under the options that are given; ``None`` insists on nothing."""
    bound = [name for name, option in declared_options(declaring).items() if name in given and not option.option.free]
    return [
        f"{name} was {recorded[name]!r}, not {given[name]!r}"
        for name in bound
        if given[name] is not None and recorded[name] != given[name]
    ]


def resembling(name: str, known: Iterable[str]) -> str:
    """Ask whether a similar name was meant; empty where none is similar."""
    near = get_close_matches(name, list(known), n=3)
    return f"did you mean {' or '.join(near)}?" if near else ""


def _all(names: list[str]) -> str:
    return f"it takes: {', '.join(names) or 'none'}"


def checked(function: Callable[P, R]) -> Callable[P, R]:
    """Check, at each call, that the options of a function are its own and that their values are in range."""
    return checked_beside(NOWHERE)(function)


def checked_beside(elsewhere: Mapping[str, str]) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Make the same check, which also knows what to say of options that stand elsewhere."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        signature = inspect.signature(function)
        takes_all = any(parameter.kind is parameter.VAR_KEYWORD for parameter in signature.parameters.values())

        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            if not takes_all:
                whose = function.__qualname__.removesuffix(".__init__")
                check_names(kwargs, signature.parameters, whose, elsewhere)
            check_values(function, kwargs)
            return function(*args, **kwargs)

        return call

    return decorate


__all__ = [
    "Declared",
    "canonical",
    "check_fields",
    "check_names",
    "check_values",
    "checked",
    "checked_beside",
    "declared_options",
    "differing",
    "resembling",
]
