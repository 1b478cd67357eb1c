"""Side columns: what a log, or a file of items or users, says beside who had what and when. Each becomes a feature with a table.

A value that the train part has gets a row from 1 on. Row 0 is for a missing value, and for one that train does not have.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from recsys_lab.data.columns import mapped, stretches
from recsys_lab.data.interactions.guess import MISSING
from recsys_lab.data.interactions.side import numbers_first
from recsys_lab.data.table.encode import bags, categories
from recsys_lab.data.table.guess import kind_of

#: Of what a column is: of each event, of each item, or of each user.
EVENT, ITEM, USER = KINDS = ("event", "item", "user")
#: Numbers with more values than the first are put into so many buckets, equally full in train.
MOST_VALUES, BUCKETS = 32, 32
#: What is stored of a column as it is.
_PLAIN = ("name", "feature", "of", "rows", "is_number", "separator", "mean_ids")


@dataclass(frozen=True)
class SideColumn:
    """A column as rows of its table.

    Attributes:
        name: as the data call it.
        feature: its name, that of the table too.
        of: one of KINDS. An event's column has a cell for each event, an item's for each item row, a user's for each user.
        rows: of the table, row 0 among them.
        ids: int32 [M], the cells' ids, one cell after the other.
        ends: int64 [cells]: where those of each cell end, one at least; None: each cell has one.
        known: of each row from 1 on its value; of numbers the edges between buckets.
        is_number: whether `known` are such edges.
        separator: of several values in a cell, as it was read; None: there is one.
        mean_ids: of an event, or of a user.
    """

    name: str
    feature: str
    of: str
    rows: int
    ids: np.ndarray
    ends: np.ndarray | None
    known: tuple[str, ...] | tuple[float, ...]
    is_number: bool = False
    separator: str | None = None
    mean_ids: float = 1.0

    @property
    def is_list(self) -> bool:
        return self.ends is not None

    @property
    def fingerprint(self) -> str:
        """Of what it says of which cell."""
        found = hashlib.sha256(repr((self.feature, self.of, self.rows, self.known)).encode())
        for array in (self.ids, self.ends):
            found.update(b"" if array is None else np.ascontiguousarray(array).tobytes())
        return found.hexdigest()

    def read(self, cells: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """How many ids each of `cells` [n] has, int64 [n], and the ids, int32 [sum]."""
        if self.ends is None:
            return np.ones(len(cells), np.int64), self.ids[cells]
        ends = self.ends[cells]
        starts = np.where(cells > 0, self.ends[np.maximum(cells - 1, 0)], 0)
        counts = ends - starts
        return counts, self.ids[stretches(starts, counts)]

    def save(self, folder: Path, number: int) -> dict[str, Any]:
        """Writes the ids. Returns what `load` must know, as plain data."""
        self.ids.astype(np.int32).tofile(folder / f"side_{number}.bin")
        if self.ends is not None:
            self.ends.astype(np.int64).tofile(folder / f"side_{number}_ends.bin")
        plain = {name: getattr(self, name) for name in _PLAIN}
        return plain | {"known": list(self.known), "ids": len(self.ids), "cells": None if self.ends is None else len(self.ends)}

    @staticmethod
    def load(folder: Path, number: int, meta: Mapping[str, Any]) -> SideColumn:
        """What `save` wrote."""
        ids = mapped(folder / f"side_{number}.bin", np.int32, (meta["ids"],))
        ends = None if meta["cells"] is None else mapped(folder / f"side_{number}_ends.bin", np.int64, (meta["cells"],))
        return SideColumn(known=tuple(meta["known"]), ids=ids, ends=ends, **{name: meta[name] for name in _PLAIN})


def encoded(name: str, feature: str, of: str, cells: pl.Series, separator: str | None, train: np.ndarray) -> SideColumn:
    """The column `name`, whose `cells` are text: empty or None where a value is missing.

    `separator`: between several values of a cell; None: there is one.
    `train` bool [cells]: those that the train part has, of which rows and buckets are learnt.
    """
    cells = cells.replace(sorted(MISSING), None)
    if separator is None:
        words, counts = categories(cells), np.ones(len(cells), np.int64)
    else:
        words, counts = bags(cells, separator)
        words = words.replace(sorted(MISSING), None)
    in_train = words.filter(pl.Series(np.repeat(train, counts))).drop_nulls()
    if separator is None and kind_of(in_train) != "category" and in_train.n_unique() > MOST_VALUES:
        return _bucketed(name, feature, of, words, in_train)
    values = sorted(in_train.unique().to_list(), key=numbers_first)
    row = np.arange(1, len(values) + 1, dtype=np.int32)
    known = pl.DataFrame({"value": values, "row": row}, schema={"value": pl.String, "row": pl.Int32})
    joined = words.to_frame("value").join(known, on="value", how="left", maintain_order="left")["row"]
    ids = joined.fill_null(0).to_numpy().astype(np.int32)
    if separator is None:
        return SideColumn(name, feature, of, len(values) + 1, ids, None, tuple(values))
    ids, counts = _without_unknown(ids, counts)
    return SideColumn(name, feature, of, len(values) + 1, ids, np.cumsum(counts), tuple(values), separator=separator)


def _bucketed(name: str, feature: str, of: str, words: pl.Series, in_train: pl.Series) -> SideColumn:
    """Numbers by the quantiles of train. A word that is no number is missing."""
    numbers, own = (series.cast(pl.Float64, strict=False).fill_nan(None) for series in (words, in_train))
    edges = np.unique(np.quantile(own.drop_nulls().to_numpy(), np.arange(1, BUCKETS) / BUCKETS))
    ids = 1 + np.searchsorted(edges, numbers.fill_null(0.0).to_numpy(), side="right")
    ids[numbers.is_null().to_numpy()] = 0
    return SideColumn(name, feature, of, len(edges) + 2, ids.astype(np.int32), None, tuple(edges.tolist()), is_number=True)


def _without_unknown(ids: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Cells of lists without id 0, but for cells that have no other: these keep one."""
    cell, known = np.repeat(np.arange(len(counts)), counts), ids > 0
    has_known = np.bincount(cell[known], minlength=len(counts)) > 0
    firsts = np.zeros(len(ids), bool)
    firsts[np.cumsum(counts) - counts] = True
    kept = known | (firsts & ~has_known[cell])
    return ids[kept], np.bincount(cell[kept], minlength=len(counts)).astype(np.int64)


def side_files(folder: Path, number: int) -> list[Path]:
    """Those that `SideColumn.save` wrote."""
    return [path for path in (folder / f"side_{number}.bin", folder / f"side_{number}_ends.bin") if path.is_file()]
