"""Parquet files, whose columns have names and types: their cells as text, as all readers here take them."""

from __future__ import annotations

from pathlib import Path

import polars as pl
from polars import selectors
from polars.datatypes import DataTypeClass

from recsys_lab.errors import UserError

ERRORS = (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError)
#: Between the values of a list in a cell of Parquet, which become one text.
LIST_SEPARATOR = "\x1f"
WORDS = "columns of numbers, of words in UTF-8, or of dates are read"


def is_parquet(path: Path) -> bool:
    return path.name.lower().endswith(".parquet")


def scanned(path: Path) -> pl.LazyFrame:
    return pl.scan_parquet(path.resolve(), glob=False)


def types_of(path: Path) -> dict[str, pl.DataType]:
    """The columns of a file. UserError where it is none that can be read."""
    try:
        return dict(scanned(path).collect_schema())
    except ERRORS as error:
        raise no_parquet(path, error) from None


def collected(path: Path, frame: pl.LazyFrame) -> pl.DataFrame:
    """The rows of `frame`, which are of the file `path`. UserError where they cannot be read."""
    try:
        return frame.collect()
    except ERRORS as error:
        raise no_parquet(path, error) from None


def as_text(name: str, kind: pl.DataType) -> pl.Expr:
    """A column as text. The values of a list are joined by LIST_SEPARATOR."""
    column = selectors.by_name(name).as_expr()
    if isinstance(kind, pl.List | pl.Array):
        values = column.arr.to_list() if isinstance(kind, pl.Array) else column
        return values.list.eval(pl.element().cast(pl.String)).list.join(LIST_SEPARATOR, ignore_nulls=True)
    return column.cast(pl.String)


def is_list(kind: pl.DataType | DataTypeClass) -> bool:
    return isinstance(kind, pl.List | pl.Array)


def has_no_words(kind: pl.DataType | DataTypeClass, one: pl.LazyFrame) -> bool:
    """Whether a column, alone in `one`, is no number, word or date. Bytes are words where they are UTF-8, as some programs store them."""
    if kind != pl.Binary:
        return kind.is_nested() or kind == pl.Duration
    try:
        one.select(selectors.all().cast(pl.String)).collect()
    except pl.exceptions.PolarsError:
        return True
    return False


def no_parquet(path: Path, error: BaseException) -> UserError:
    first = next(iter(str(error).splitlines()), type(error).__name__)
    return UserError(f"not a Parquet file that can be read ({first})", where=path, remedy="write it again")
