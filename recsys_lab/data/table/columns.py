"""Columns of a table's own files, by which a model is judged. They are read when they are asked for, as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from recsys_lab.data.parts import Source
from recsys_lab.data.protocol import Values
from recsys_lab.data.table import encode, files
from recsys_lab.data.table.prepare import SPLITS, order_of
from recsys_lab.errors import UserError

MISSING = "(missing)"


@dataclass(frozen=True)
class TableColumns:
    """Of the tables `sources`, by split, which were prepared into `folder` with the meta data `meta`."""

    folder: Path
    meta: Mapping[str, Any]
    sources: Mapping[str, Source]

    @property
    def names(self) -> Sequence[str]:
        """Those that every file has with rows to judge a model by."""
        judged = [one for split, one in self.sources.items() if split != "train" or "validation" not in self.sources]
        first, *others = (files.columns_of(one) for one in judged)
        return [column for column in first if all(column in columns for columns in others)]

    def read(self, column: str, split: str) -> Values:
        """One spelling of each value, as tables have it. UserError where a file cannot be read, or has changed."""
        ends = np.cumsum([self.meta["rows"][name] for name in SPLITS])
        last = int(ends[SPLITS.index(split)])
        rows = order_of(self.folder, self.meta)[last - self.meta["rows"][split] : last]
        cells, begin = pl.Series(column, [], pl.String), 0
        places = np.empty_like(rows)
        for name, count in self.meta["file_rows"].items():
            own = (rows >= begin) & (rows < begin + count)
            if own.any():
                places[own] = rows[own] - begin + len(cells)
                cells = cells.append(_cells(self.sources[name], column, count))
            begin += count
        return _values(encode.categories(cells), places)


def _cells(source: Source, column: str, rows: int) -> pl.Series:
    cells = files.column_of(source, column)
    if len(cells) != rows:
        what, remedy = "the file has changed since it was read", "let it be until a run has ended"
        raise UserError(what, where=source.path, given=f"{len(cells):,} rows", allowed=f"{rows:,}", remedy=remedy)
    return cells.alias(column)


def _values(cells: pl.Series, places: np.ndarray) -> Values:
    """Those of the rows `places`, numbered in the order of their text; missing ones come last."""
    distinct = cells.drop_nulls().unique().sort()
    codes = cells.cast(pl.Enum(distinct)).to_physical().cast(pl.Int64).fill_null(len(distinct)).to_numpy()
    return Values(codes[places], [*distinct, MISSING])
