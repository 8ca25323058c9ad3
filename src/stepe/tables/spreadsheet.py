"""Workbooks (.xlsx): the first sheet, its cells as text, by the package ``openpyxl``.

A workbook is not written again: openpyxl loses what it does not know, computed values and charts among them. Its rows
become a CSV file.
"""

import importlib
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import datetime, time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stepe.errors import InputError
from stepe.tables import delimited
from stepe.tables.batches import distinct, of_text
from stepe.tables.cells import as_text
from stepe.tables.edit import Edits
from stepe.tables.text import BOM

if TYPE_CHECKING:
    import pyarrow as pa

SUFFIXES: tuple[str, ...] = (".xlsx",)
REWRITTEN = ".csv"

Row = list[str | None]


def read(path: Path, encoding: str) -> "Iterator[pa.RecordBatch]":
    """Read the rows below the first that is not empty, which names the columns; empty rows are skipped, not counted."""
    rows = _rows(path)
    return of_text(distinct(cell or "" for cell in next(rows, [])), rows)


def sheets(path: Path) -> list[str]:
    """Name the sheets; the first is read."""
    with _opened(path, computed=True) as workbook:
        return [sheet.title for sheet in workbook.worksheets]


def rewrite(source: Path, target: Path, edits: Edits, encoding: str) -> None:
    """Write the rows as CSV, in the encoding by which spreadsheet programs know UTF-8."""
    with tempfile.TemporaryDirectory() as folder:
        plain = Path(folder) / f"rows{REWRITTEN}"
        rows = _rows(source)
        delimited.write(plain, [distinct(cell or "" for cell in next(rows, [])), *rows], mark=BOM)
        delimited.rewrite(plain, target, edits, "utf-8")


@contextmanager
def _opened(path: Path, *, computed: bool) -> Iterator[Any]:
    """Open a workbook, with the values of formulas or with the formulas."""
    try:
        openpyxl = importlib.import_module("openpyxl")
    except ImportError as error:
        raise InputError(
            f"{path} needs the package openpyxl; install it with: pip install 'stepe[spreadsheet]', or save it as .csv"
        ) from error
    try:
        with closing(openpyxl.load_workbook(path, read_only=True, data_only=computed)) as workbook:
            yield workbook
    except Exception as error:  # whatever zipfile, the XML parser or openpyxl raises for a damaged file
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path} cannot be read as a workbook ({error}); save it again, or as .csv") from error


def _rows(path: Path) -> Iterator[Row]:
    """Read the rows that are not empty, the header first, as wide as the header."""
    with _opened(path, computed=True) as computed, _opened(path, computed=False) as written:
        pair = computed.worksheets[0], written.worksheets[0]
        for sheet in pair:
            sheet.reset_dimensions()  # which some programs write wrongly
        width = 0
        for cells, formulas in zip(*(sheet.iter_rows() for sheet in pair), strict=True):
            for cell, formula in zip(cells, formulas, strict=True):
                if cell.value is None and cell.data_type != "str" and formula.value is not None:
                    raise InputError(
                        f"cell {cell.coordinate} of {path} holds a formula that was never computed; open the file in a "
                        "spreadsheet program and save it"
                    )
            row = [_text(cell.value) for cell in cells]
            while row and row[-1] is None:
                row.pop()
            width = width or len(row)
            if len(row) > width:
                where = cells[len(row) - 1].coordinate
                raise InputError(f"cell {where} of {path} is in a column that has no name; name it, or empty the cell")
            if row:
                yield row + [None] * (width - len(row))


def _text(value: Any) -> str | None:
    """Write a cell as people would; of a date and midnight, the date."""
    midnight = isinstance(value, datetime) and value.time() == time()
    return as_text(value.date() if midnight else value) or None
