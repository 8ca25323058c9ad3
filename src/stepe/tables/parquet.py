"""Parquet: typed columns. A copy keeps types, dictionaries, metadata, compression and the size of row groups."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stepe.errors import InputError
from stepe.tables.batches import ROWS, distinct
from stepe.tables.edit import Edits, added_columns, edit_values

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

SUFFIXES: tuple[str, ...] = (".parquet", ".pq")


@contextmanager
def _opened(path: Path) -> "Iterator[pq.ParquetFile]":
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        # Opened here: pyarrow would follow a URL.
        with path.open("rb") as file:
            yield pq.ParquetFile(file)
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{path} cannot be read as Parquet ({str(error).splitlines()[0]}); write it again") from error


def read(path: Path, encoding: str) -> "Iterator[pa.RecordBatch]":
    """Read the rows, typed as they are; no encoding matters."""
    import pyarrow as pa

    with _opened(path) as file:
        for batch in file.iter_batches(ROWS):
            yield pa.RecordBatch.from_arrays(batch.columns, names=distinct(batch.schema.names))


def rewrite(source: Path, target: Path, edits: Edits, encoding: str) -> None:
    """Copy all columns; only the edited one is built anew, of the same type."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with _opened(source) as file:
        table = file.read()
        groups = [file.metadata.row_group(i) for i in range(file.metadata.num_row_groups)]
        compression = groups[0].column(0).compression if groups else "SNAPPY"
        group_size = max((group.num_rows for group in groups), default=None)
    names = distinct(table.column_names)
    if edits.column not in names:
        raise edits.changed(f"it has no column {edits.column!r} any more")
    position = names.index(edits.column)
    column = table.column(position)
    found, labels = edit_values(column.to_pylist(), edits, source)
    if any(edit.label is not None for edit in found):
        table = table.set_column(position, table.schema.field(position), _column_like(column, labels))
    types = {bool: pa.bool_(), str: pa.string(), float: pa.float64()}
    for name, kind, cells in added_columns(found, edits, names):
        table = table.append_column(name, pa.array([None if cell == "" else cell for cell in cells], types[kind]))
    table = table.filter(pa.array([not edit.dropped for edit in found], pa.bool_()))
    pq.write_table(
        table, target, compression="NONE" if compression == "UNCOMPRESSED" else compression, row_group_size=group_size
    )


def _column_like(column: Any, values: list[Any]) -> Any:
    """Make of values a column of the same type; a dictionary keeps its order, whether all of it is used or not."""
    import pyarrow as pa

    if not pa.types.is_dictionary(column.type):
        return pa.chunked_array([pa.array(values, column.type)])
    chunks = column.unify_dictionaries().chunks
    known = chunks[0].dictionary if chunks else pa.array([], column.type.value_type)
    new = [value for value in dict.fromkeys(values) if value is not None and value not in set(known.to_pylist())]
    dictionary = pa.concat_arrays([known, pa.array(new, column.type.value_type)])
    index = {value: i for i, value in enumerate(dictionary.to_pylist())}
    indices = pa.array([None if value is None else index[value] for value in values], column.type.index_type)
    return pa.chunked_array([pa.DictionaryArray.from_arrays(indices, dictionary, ordered=column.type.ordered)])
