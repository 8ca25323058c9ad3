"""What an option is, and how the options of a function or of a dataclass are read from its signature."""

import inspect
import types
import typing
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Literal

from stepe.errors import InputError
from stepe.files import check_writable


@dataclass(frozen=True)
class Option:
    """What an option means and which values it takes. It stands beside the type: ``Annotated[type, Option(...)]``."""

    help: str
    """what it does, in a sentence or two; other options stand in backticks, as in ```noise_rate```"""
    panel: str = "Options"
    """the part of ``--help`` and of the reference that it stands in"""
    metavar: str | None = None
    """what its value is called in ``--help``"""
    default: str | None = None
    """in words, what is taken where it is left out (``None``)"""
    min: float | None = None
    max: float | None = None
    above: float | None = None
    below: float | None = None
    read: Callable[[Any], Any] | None = None
    """turns all ways to write a value into one, which the run folder keeps"""
    free: bool = False
    """whether a run may go on under another value: the option says where things are, not what they become"""

    @property
    def range(self) -> str:
        """The numbers it takes: ``in [0, 1)``, ``at least 1``, or nothing where it takes all."""
        low, high = self.above if self.min is None else self.min, self.below if self.max is None else self.max
        if low is not None and high is not None:
            opening, closing = "(" if self.min is None else "[", ")" if self.max is None else "]"
            return f"in {opening}{low:g}, {high:g}{closing}"
        if low is not None:
            return f"above {low:g}" if self.min is None else f"at least {low:g}"
        return "" if high is None else f"below {high:g}" if self.max is None else f"at most {high:g}"

    def holds(self, number: Any) -> bool:
        """Say whether a number is in the range; NaN is in none."""
        return bool(
            number == number
            and (self.min is None or number >= self.min)
            and (self.max is None or number <= self.max)
            and (self.above is None or number > self.above)
            and (self.below is None or number < self.below)
        )


@dataclass(frozen=True)
class Declared:
    """An option as one signature declares it: under a name, with a type and a default."""

    name: str
    option: Option
    kinds: tuple[Any, ...]
    """the members of its type: ``float | Literal["auto"] | None`` is float, "auto" and NoneType"""
    default: Any
    is_positional: bool = False

    @property
    def words(self) -> tuple[str, ...]:
        """The words it takes besides a value."""
        return tuple(kind for kind in self.kinds if isinstance(kind, str))

    @property
    def number(self) -> type[float] | type[int] | None:
        """The kind of number that it takes."""
        return float if float in self.kinds else int if int in self.kinds else None

    @property
    def is_switch(self) -> bool:
        """Whether it is a matter of yes or no."""
        return bool in self.kinds

    @property
    def flag(self) -> str:
        """Its name on the command line."""
        return f"--{self.name.replace('_', '-')}"

    @property
    def takes(self) -> str:
        """The values it takes, in words."""
        if self.number is None:
            several = ", or several" if Sequence[str] in self.kinds else ""
            named = f"one of {', '.join(self.words)}" if self.words else f"a text{several}"
            return "True or False" if self.is_switch else named
        whole, limits = self.number is int, self.option.range
        kind = "a whole number" if whole else "a share" if limits == "in [0, 1]" else "a number"
        limits = f"{' ' if limits.startswith('in') else ', '}{limits}" if limits else ""
        return f"{kind}{limits}" + "".join(f", or {word!r}" for word in self.words)

    @property
    def expected(self) -> str:
        """The values it takes, as an error names them."""
        return f"choose {self.takes}" if self.takes.startswith("one of") else f"it must be {self.takes}"

    @property
    def without(self) -> str:
        """What is taken where it is left out, in words; empty where it is then as if there were no such option."""
        if self.default is None or self.default is False or self.default == ():
            return self.option.default or ""
        return f"{self.default:g}" if isinstance(self.default, float) else str(self.default)

    def check(self, value: Any) -> None:
        """Refuse a value that the declaration does not allow."""
        if not self._takes(value):
            raise InputError(f"{self.name} is {value!r}; {self.expected}")
        for text in value if isinstance(value, list | tuple) else [value]:
            if isinstance(text, str | Path):
                check_writable(self.name, str(text))

    def check_recorded(self, value: Any) -> None:
        """Refuse a value that no run would have written down in its folder."""
        if isinstance(value, Real):
            is_plain = self.number is not None or self.is_switch
        else:
            is_plain = isinstance(value, str) or (isinstance(value, list) and Sequence[str] in self.kinds)
        if value is None and self.default is None:
            return
        if not is_plain:
            raise InputError(f"{self.name} is {value!r}; {self.expected}")
        self.check(value)

    def _takes(self, value: Any) -> bool:
        kinds, is_bool = self.kinds, isinstance(value, bool)
        if value is None:
            return types.NoneType in kinds
        if isinstance(value, str) and (str in kinds or value in self.words):
            return True
        if self.number is not None and isinstance(value, Real) and not is_bool:
            return (self.number is float or isinstance(value, Integral)) and self.option.holds(value)
        if Sequence[str] in kinds and isinstance(value, Collection) and not isinstance(value, str | bytes):
            return all(isinstance(each, str) for each in value)
        # Other types, such as functions or tables, are checked where they are used.
        checked = {float, int, bool, str, types.NoneType, Sequence[str], *self.words}
        return (is_bool and bool in kinds) or not set(kinds) <= checked

    def canonical(self, value: Any) -> Any:
        """Write a value in the one way, as JSON holds it."""
        if value is not None and self.option.read is not None:
            value = self.option.read(value)
        if isinstance(value, Path):
            return str(value)
        is_number = isinstance(value, Real) and not isinstance(value, bool)
        return self.number(value) if self.number is not None and is_number else value

    def parse(self, text: str) -> Any:
        """Read a value as it is typed on the command line."""
        if self.number is None or text in self.words:
            return text
        try:
            return self.number(text)
        except ValueError:
            expected = "a whole number" if self.number is int else "a number"
            raise InputError(
                f"{self.flag} is {text!r}; give {expected}{''.join(f', or {word}' for word in self.words)}"
            ) from None


def options_of(declaring: Callable[..., Any]) -> dict[str, Declared]:
    """Find the options that a function's signature, or a dataclass's fields, declare, by name."""
    found = {}
    for name, parameter in inspect.signature(declaring).parameters.items():
        kinds, option = read_annotation(parameter.annotation)
        if option is not None:
            default = None if parameter.default is parameter.empty else parameter.default
            positional = parameter.kind is parameter.POSITIONAL_OR_KEYWORD and not isinstance(declaring, type)
            found[name] = Declared(name, option, kinds, default, positional)
    return found


def read_annotation(annotation: Any) -> tuple[tuple[Any, ...], Option | None]:
    """Split a type into its members, and the option that stands beside one of them."""
    origin, parts = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        kinds, _ = read_annotation(parts[0])
        return kinds, next((part for part in reversed(parts[1:]) if isinstance(part, Option)), None)
    if origin is Literal:
        return parts, None
    if origin is not typing.Union and origin is not types.UnionType:
        return (annotation,), None
    read = [read_annotation(part) for part in parts]
    return (
        tuple(kind for kinds, _ in read for kind in kinds),
        next((option for _, option in read if option is not None), None),
    )
