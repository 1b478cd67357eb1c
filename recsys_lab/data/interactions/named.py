"""Parts of logs whose columns have names of their own: Parquet, and JSON lines. Their cells as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import polars as pl

from recsys_lab.data import json_lines, parquet
from recsys_lab.data.interactions.guess import ITEM, USER
from recsys_lab.data.protocol import SIDE
from recsys_lab.errors import UserError

#: From here on a float is no longer every whole number.
_MOST_EXACT = 2.0**53


def names_and_rows(path: Path, lines: Sequence[str], rows: int) -> tuple[list[str], list[list[str]]] | None:
    """The names of a part's columns and its first rows, or those in its first `lines`. None where it is text without such names.

    Cells of lists and structs are only said to be there. UserError where the part cannot be read.
    """
    if parquet.is_parquet(path):
        kinds = parquet.types_of(path)
        cells = [_shown(name, kind).fill_null("").alias(name) for name, kind in kinds.items()]
        frame = parquet.collected(path, parquet.scanned(path).head(rows).select(cells))
        return list(kinds), [list(row) for row in frame.rows()]
    if (keys := json_lines.names_in(lines)) is None:
        return None
    frame, _, _ = json_lines.rows_of("".join(f"{line}\n" for line in lines).encode(), keys)
    return keys, [list(row) for row in frame.rows()]


def parquet_rows(path: Path, keys: Mapping[str, str]) -> pl.DataFrame:
    """The columns `keys` of a part, by what they are, as text: empty where a cell is missing. UserError for lists and structs."""
    kinds = parquet.types_of(path)
    for column, key in keys.items():
        if key not in kinds:
            given = f"no {key}, but {', '.join(kinds)}"
            raise UserError("part files have different columns", where=path, given=given, remedy="name a file: data.file=FILE")
        if parquet.is_list(kinds[key]) and column.startswith(SIDE):
            continue
        if parquet.is_list(kinds[key]):
            lists = ", ".join(repr(name) for name in keys.values() if parquet.is_list(kinds.get(name, pl.Null())))
            write = f"polars.read_parquet('FILE').explode({lists}).write_parquet('NEW.parquet')"
            what = f"the {column} is a list, where a row is an interaction"
            raise UserError(what, where=path, given=f"{key}: {kinds[key]}", remedy=f"write a row an item, in Python: {write}")
        if parquet.has_no_words(kinds[key], parquet.scanned(path).select(pl.col(key))):
            remedy = "say what each column is: data.columns=[...]"
            raise UserError(parquet.WORDS, where=path, given=f"{key}: {kinds[key]}", remedy=remedy)
    cells = [_cells(column, key, kinds[key]).fill_null("").alias(column) for column, key in keys.items()]
    return parquet.collected(path, parquet.scanned(path).select(cells))


def _cells(column: str, key: str, kind: pl.DataType) -> pl.Expr:
    """Ids of floats, as tables with missing cells have them, are whole numbers where all of these are told apart."""
    if column not in (USER, ITEM) or not kind.is_float():
        return parquet.as_text(key, kind)
    number = pl.col(key).fill_nan(None)
    whole = (number == number.floor()) & (number.abs() < _MOST_EXACT)
    return pl.when(whole).then(number.cast(pl.Int64, strict=False).cast(pl.String)).otherwise(number.cast(pl.String))


def _shown(name: str, kind: pl.DataType) -> pl.Expr:
    """To look at: cells that are no text are not looked into."""
    if kind.is_nested() or kind == pl.Duration:
        return pl.lit("{}")
    return pl.col(name).cast(pl.String, strict=False)
