"""Typed values from the JSON of a run folder, which somebody may have edited: what has another type is named."""

import json
from dataclasses import MISSING, Field, fields, is_dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from stepe.errors import RunError
from stepe.files import inside

T = TypeVar("T")


class MistypedError(ValueError):
    """Some JSON is not of the type that it should be."""


def read_json(folder: Path, name: str) -> dict[str, Any]:
    """Read a file of a run folder that holds a JSON object."""
    path = inside(folder, name)
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        raise
    except (OSError, ValueError, RecursionError) as error:
        raise RunError(f"{path} cannot be read ({error}); make the run again") from error
    if not isinstance(found, dict):
        raise RunError(f"{path} cannot be read (it holds no object); make the run again")
    return found


def typed(kind: type[T], found: dict[str, Any], path: Path) -> T:
    """Make a dataclass of a file's JSON: a field that is missing gets its default, others are left out."""
    try:
        made: T = from_json(kind, found, "")
    except MistypedError as error:
        raise RunError(f"in {path}, {error}; put back the file as it was, or make the run again") from error
    return made


def from_json(kind: Any, found: Any, name: str) -> Any:
    """Make a value of its type from JSON; ``name`` says in errors which value it is."""
    origin, parts = get_origin(kind), get_args(kind)
    if kind is Any:
        return found
    if origin in (Union, UnionType):
        return _one_of(parts, found, name)
    if is_dataclass(kind) and isinstance(found, dict):
        hints, make = get_type_hints(kind), cast("Any", kind)
        return make(**{each.name: _field(each, hints[each.name], found, name) for each in fields(kind)})
    if origin in (list, tuple) and isinstance(found, list):
        return origin(from_json(parts[0], each, f"{name}[{i}]") for i, each in enumerate(found))
    if origin is dict and isinstance(found, dict):
        return {key: from_json(parts[1], each, f"{name}.{key}") for key, each in found.items()}
    if origin is Literal and found in parts:
        return found
    if kind is float and type(found) is int:
        return float(found)
    if isinstance(kind, type) and type(found) is kind:
        return found
    raise MistypedError(f"{name or 'it'} is {_shortened(found)}, which is not {_named(kind)}")


def _field(field: "Field[Any]", kind: Any, found: dict[str, Any], name: str) -> Any:
    path = f"{name}.{field.name}" if name else field.name
    if field.name in found:
        return from_json(kind, found[field.name], path)
    if field.default is not MISSING:
        return field.default
    if field.default_factory is not MISSING:
        return field.default_factory()
    raise MistypedError(f"{path} is missing")


def _one_of(kinds: tuple[Any, ...], found: Any, name: str) -> Any:
    if found is None and NoneType in kinds:
        return None
    *others, last = [kind for kind in kinds if kind is not NoneType]
    for kind in others:
        try:
            return from_json(kind, found, name)
        except MistypedError:
            continue
    try:
        return from_json(last, found, name)
    except MistypedError as error:
        if not others:
            raise
        raise MistypedError(f"{name} is {_shortened(found)}, which is not {_any_of(kinds)}") from error


def _shortened(found: Any) -> str:
    text = json.dumps(found)
    return text if len(text) <= 40 else f"{text[:39]}…"


def _any_of(kinds: tuple[Any, ...]) -> str:
    return " or ".join(_named(kind) for kind in kinds)


def _named(kind: Any) -> str:
    """Return what a type is called by those who know JSON."""
    origin, parts = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return _any_of(parts)
    if origin is Literal:
        return " or ".join(json.dumps(part) for part in parts)
    names = {str: "a text", int: "a whole number", float: "a number", bool: "true or false", NoneType: "null"}
    return names.get(kind, "a list" if origin in (list, tuple) else "an object")
