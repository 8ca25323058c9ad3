"""Options are read from signatures, and hold values to what they declare."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pytest

from stepe.errors import InputError
from stepe.options import Option, check_fields, check_names, checked, options_of

Share = Annotated[float, Option("How much.", "A panel", min=0, below=1)]
Length = Annotated[int | Literal["auto"] | None, Option("How long.", default="as long as it takes", min=1)]
Word = Annotated[Literal["up", "down"], Option("Where to.")]
Shape = Annotated[str | Callable[[float], float], Option("How.")]


@dataclass
class Thing:
    share: Share = 0.5
    plain: int = 3


@checked
def work(
    data: Annotated["Path | str", Option("On what.")],
    *,
    share: Share = 0.5,
    length: Length = None,
    word: Word = "up",
    sure: Annotated[bool, Option("Whether.")] = False,
    rate: Share | None = None,
    shape: Shape = "line",
    say: Any = print,
) -> tuple[Any, ...]:
    return data, share, length, word, sure, rate, shape


def test_the_options_of_a_function_are_those_of_its_parameters_that_declare_one():
    found = options_of(work)
    assert list(found) == ["data", "share", "length", "word", "sure", "rate", "shape"]
    assert [option.is_positional for option in found.values()] == [True, *[False] * 6]
    assert found["share"].option.panel == "A panel"
    assert found["length"].kinds == (int, "auto", type(None))
    assert found["length"].default is None
    assert found["share"].default == 0.5


def test_a_declaration_serves_beside_other_types_too():
    assert options_of(work)["rate"].option is options_of(work)["share"].option
    assert work("x", rate=None)[5] is None
    with pytest.raises(InputError, match=r"rate is 1; it must be a number in \[0, 1\)"):
        work("x", rate=1)


@pytest.mark.parametrize("value", ["a\0b", Path("\udce9"), ["a", "\ud800"]])
def test_texts_that_no_file_can_hold_are_refused(value):
    declared = options_of(work)["data"]
    with pytest.raises(InputError, match=r"data is .*; .* cannot be written into every file of a run"):
        declared.check(value)


def test_the_fields_of_a_dataclass_are_options_too():
    assert list(options_of(Thing)) == ["share"]
    check_fields(Thing(0.9))
    with pytest.raises(InputError, match="share is 2; it must be a number in"):
        check_fields(Thing(2))


REFUSED = {
    "too large": ({"share": 1.0}, "share is 1.0; it must be a number in [0, 1)"),
    "no number": ({"share": float("nan")}, "share is nan; it must be a number in [0, 1)"),
    "nothing": ({"share": None}, "share is None; it must be a number in [0, 1)"),
    "a word for a number": ({"share": "much"}, "share is 'much'; it must be a number in [0, 1)"),
    "too small": ({"length": 0}, "length is 0; it must be a whole number, at least 1, or 'auto'"),
    "a fraction": ({"length": 1.5}, "length is 1.5; it must be a whole number, at least 1, or 'auto'"),
    "yes for a number": ({"length": True}, "length is True; it must be a whole number, at least 1, or 'auto'"),
    "another word": ({"length": "long"}, "length is 'long'; it must be a whole number, at least 1, or 'auto'"),
    "no such word": ({"word": "left"}, "word is 'left'; choose one of up, down"),
    "a number for yes": ({"sure": 1}, "sure is 1; it must be True or False"),
}


@pytest.mark.parametrize(("given", "told"), REFUSED.values(), ids=REFUSED.keys())
def test_a_value_out_of_its_range_is_an_error_that_says_the_range(given, told):
    with pytest.raises(InputError) as error:
        work("x", **given)
    assert str(error.value) == told


@pytest.mark.parametrize(
    "given",
    [
        *({"share": 0}, {"share": np.float32(0.25)}, {"length": "auto"}, {"length": np.int64(3)}, {"length": None}),
        *({"word": "down"}, {"sure": True}, {"shape": "curve"}, {"shape": abs}, {"rate": 0.3}),
    ],
)
def test_a_value_in_its_range_passes_as_it_is(given):
    ((name, value),) = given.items()
    assert value in work("x", **given)
    assert name in options_of(work)


@pytest.mark.parametrize(
    ("limits", "told"),
    [
        ({"min": 0, "max": 1}, "it must be a share in [0, 1]"),
        ({"above": 0, "max": 1}, "it must be a number in (0, 1]"),
        ({"min": 0.5}, "it must be a number, at least 0.5"),
        ({"above": 0}, "it must be a number, above 0"),
        ({"max": 7}, "it must be a number, at most 7"),
        ({"below": 7}, "it must be a number, below 7"),
        ({}, "it must be a number"),
    ],
)
def test_a_range_is_said_in_words(limits, told):
    def made(x: Annotated[float, Option("", **limits)]) -> None: ...

    assert options_of(made)["x"].expected == told


@pytest.mark.parametrize(
    ("name", "takes", "without"),
    [
        ("data", "a text", ""),
        ("share", "a number in [0, 1)", "0.5"),
        ("length", "a whole number, at least 1, or 'auto'", "as long as it takes"),
        ("word", "one of up, down", "up"),
        ("sure", "True or False", ""),
        ("rate", "a number in [0, 1)", ""),
        ("shape", "a text", "line"),
    ],
)
def test_an_option_says_what_it_takes_and_what_is_taken_without_it(name, takes, without):
    option = options_of(work)[name]
    assert (option.takes, option.without) == (takes, without)


def test_an_unknown_name_is_told_which_ones_it_resembles():
    with pytest.raises(InputError, match="work has no option 'lenght'; did you mean length"):
        work("x", lenght=3)
    with pytest.raises(InputError, match="work has no option 'q'; it takes: a, b"):
        check_names(["a", "q"], ["a", "b"], "work")


def test_what_is_typed_becomes_a_number_or_one_of_the_words():
    found = options_of(work)
    assert found["share"].parse("0.25") == 0.25
    assert (found["length"].parse("3"), found["length"].parse("auto")) == (3, "auto")
    assert found["word"].parse("up") == "up"
    with pytest.raises(InputError, match="--length is 'much'; give a whole number, or auto"):
        found["length"].parse("much")


def test_all_ways_of_writing_a_value_become_one():
    def made(names: Annotated[str | Sequence[str] | None, Option("", read=lambda names: list(names))]) -> None: ...

    option = options_of(made)["names"]
    assert option.canonical(("a", "b")) == ["a", "b"]
    assert option.canonical(None) is None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("data", 5), ("data", ["a"]), ("data", {}), ("share", "much"), ("share", None), ("length", [1])),
        *(("sure", "yes"), ("word", True), ("columns", 5), ("columns", [5]), ("columns", None)),
    ],
)
def test_what_no_run_would_write_down_is_refused(name, value):
    def made(
        data: Annotated["Path | str", Option("")],
        *,
        columns: Annotated[str | Sequence[str], Option("")] = (),
        **others: Any,
    ) -> None: ...

    with pytest.raises(InputError, match=f"{name} is "):
        (options_of(work) | options_of(made))[name].check_recorded(value)


@pytest.mark.parametrize(
    ("name", "value"), [("data", None), ("data", "x"), ("share", 0.5), ("length", "auto"), ("sure", True)]
)
def test_what_a_run_writes_down_is_taken_back(name, value):
    options_of(work)[name].check_recorded(value)


def test_several_texts_are_texts_in_any_collection():
    def made(columns: Annotated[str | Sequence[str], Option("")] = ()) -> None: ...

    option = options_of(made)["columns"]
    for given in ("a", ["a"], ("a", "b"), np.array(["a"])):
        option.check(given)
    for given in ([1], 1, b"a"):
        with pytest.raises(InputError, match="it must be a text, or several"):
            option.check(given)
