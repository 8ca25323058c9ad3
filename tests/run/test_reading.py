"""Typed values from JSON that somebody may have edited."""

from dataclasses import dataclass, field
from typing import Any, Literal

import pytest

from stepe.errors import RunError
from stepe.run.reading import read_json, typed


@dataclass(frozen=True)
class Inner:
    high: float


@dataclass(frozen=True)
class Outer:
    name: str
    size: int = 3
    share: float | Literal["auto"] | None = None
    words: tuple[str, ...] = ()
    inner: Inner | None = None
    others: dict[str, int] = field(default_factory=dict)
    listed: list[Inner] = field(default_factory=list)
    anything: Any = None


def read(tmp_path, **found):
    return typed(Outer, found, tmp_path / "it.json")


def test_values_get_their_types_and_missing_ones_their_defaults(tmp_path):
    assert read(tmp_path, name="a") == Outer("a")
    found = read(tmp_path, name="a", share=1, words=["b"], inner={"high": 2}, others={"c": 4}, listed=[{"high": 0.5}])
    assert found == Outer("a", 3, 1.0, ("b",), Inner(2.0), {"c": 4}, [Inner(0.5)])
    assert isinstance(found.share, float)
    assert read(tmp_path, name="a", share="auto", anything=[1], newer="field") == Outer("a", share="auto", anything=[1])


@pytest.mark.parametrize(
    ("found", "told"),
    [
        ({}, "name is missing"),
        ({"name": None}, "name is null, which is not a text"),
        ({"name": "a", "size": True}, "size is true, which is not a whole number"),
        ({"name": "a", "size": 1.5}, "size is 1.5, which is not a whole number"),
        ({"name": "a", "share": "much"}, 'share is "much", which is not a number or "auto" or null'),
        ({"name": "a", "words": "b"}, 'words is "b", which is not a list'),
        ({"name": "a", "words": ["b", 1]}, "words[1] is 1, which is not a text"),
        ({"name": "a", "inner": {"high": "x"}}, 'inner.high is "x", which is not a number'),
        ({"name": "a", "inner": []}, "inner is [], which is not an object"),
        ({"name": "a", "others": {"c": {}}}, "others.c is {}, which is not a whole number"),
        ({"name": "a", "listed": [{}]}, "listed[0].high is missing"),
        ({"name": "a", "size": "x" * 100}, f'size is "{"x" * 38}…, which is not a whole number'),
    ],
    ids=str,
)
def test_a_value_of_another_type_is_named(tmp_path, found, told):
    with pytest.raises(RunError) as error:
        read(tmp_path, **found)
    assert str(error.value).startswith(f"in {tmp_path / 'it.json'}, {told}; ")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("text", ["", "{", "[]", "[" * 100_000, "\xff"], ids=["empty", "torn", "list", "deep", "latin"])
def test_what_is_no_json_object_is_refused(tmp_path, text):
    (tmp_path / "it.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(RunError, match=r"it\.json cannot be read"):
        read_json(tmp_path, "it.json")
