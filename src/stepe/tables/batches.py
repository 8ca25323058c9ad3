"""Rows of Python's values as Arrow batches, and back.

What has no type in Arrow (JSON of several types in a column, objects, whole numbers of any length) travels as JSON text
in a column that is marked so.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

T = TypeVar("T")
ROWS = 1 << 13
"""rows in a batch"""
JSON = {b"stepe": b"json"}
"""marks a column whose cells are JSON text"""


def chunks(rows: Iterable[T]) -> Iterator[list[T]]:
    """Give as many rows at a time as a batch has."""
    iterator = iter(rows)
    while some := list(islice(iterator, ROWS)):
        yield some


def distinct(names: Iterable[object]) -> list[str]:
    """Name columns by their names, numbered where two are alike or one is empty.

    >>> distinct(["a", "b", "a", "a.1", ""])
    ['a', 'b', 'a.2', 'a.1', 'Unnamed: 4']
    """
    given = [str(name) or f"Unnamed: {i}" for i, name in enumerate(names)]
    found: list[str] = []
    for name in given:
        unlike, number = name, 0
        while unlike in found or (number and unlike in given):
            number += 1
            unlike = f"{name}.{number}"
        found.append(unlike)
    return found


def of_text(names: Sequence[str], rows: Iterable[Sequence[str | None]]) -> "Iterator[pa.RecordBatch]":
    """Make batches of rows of text."""
    import pyarrow as pa

    schema = pa.schema([(name, pa.large_string()) for name in names])
    for some in chunks(rows):
        columns = [pa.array(column, pa.large_string()) for column in zip(*some, strict=True)]
        yield pa.RecordBatch.from_arrays(columns, schema=schema)


def of_values(rows: Callable[[], Iterable[Mapping[str, Any]]]) -> "Iterator[pa.RecordBatch]":
    """Make batches of rows as JSON has them; these are read twice: for the types of the columns, then for the cells."""
    import pyarrow as pa

    types: dict[str, set[Any]] = {}
    for some in chunks(rows()):
        for name in dict.fromkeys(name for row in some for name in row):
            types.setdefault(name, set()).add(_type([row.get(name) for row in some]))
    fields = []
    for name, found in types.items():
        type_ = found.pop() if len(found := found - {pa.null()}) == 1 else None
        fields.append(pa.field(name, type_ or pa.large_string(), metadata=None if type_ else JSON))
    schema = pa.schema(fields)
    for some in chunks(rows()):
        columns = []
        for field in fields:
            cells = [row.get(field.name) for row in some]
            columns.append(pa.array(_dumped(cells) if field.metadata else cells, field.type))
        yield pa.RecordBatch.from_arrays(columns, schema=schema)


def _type(values: list[Any]) -> Any:
    """Find the type of Arrow that holds the values as they are; ``None`` if none does."""
    import pyarrow as pa

    try:
        found = pa.array(values).type
    except (pa.ArrowException, OverflowError, UnicodeEncodeError):
        return None
    kept = {type_: type_ for type_ in (pa.null(), pa.int64(), pa.float64(), pa.list_(pa.float64()))}
    return (kept | {pa.string(): pa.large_string()}).get(found)


def _dumped(cells: list[Any]) -> list[str | None]:
    return [None if cell is None else json.dumps(cell) for cell in cells]


def _loaded(cells: list[str | None]) -> list[Any]:
    return [None if cell is None else json.loads(cell) for cell in cells]


def to_rows(batch: "pa.RecordBatch") -> Iterator[dict[str, Any]]:
    """Make dictionaries of the rows of a batch."""
    columns = [column.to_pylist() for column in batch.columns]
    columns = [
        _loaded(cells) if field.metadata == JSON else cells for field, cells in zip(batch.schema, columns, strict=True)
    ]
    for cells in zip(*columns, strict=True):
        yield dict(zip(batch.schema.names, cells, strict=True))


def to_pandas(table: "pa.Table") -> "pd.DataFrame":
    """Make a table one of pandas; whole numbers stay whole where some are missing."""
    import pandas as pd

    frame: pd.DataFrame = table.to_pandas(integer_object_nulls=True, ignore_metadata=True)
    for field in table.schema:
        if field.metadata == JSON:
            frame[field.name] = pd.Series(_loaded(table[field.name].to_pylist()), frame.index, dtype=object)
    return frame
