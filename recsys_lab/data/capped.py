"""The same data with smaller tables: for training here what was planned for a larger cluster. Ids are taken modulo the new size."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from recsys_lab.data.batch import DataSet, Rows, Split
from recsys_lab.data.cache import digest
from recsys_lab.data.dataset import OpenDataSet
from recsys_lab.errors import UserError
from recsys_lab.tables import AccessStatistics, TableAccess, measured_access


@dataclass(frozen=True)
class CappedSplit:
    """A split whose ids are in tables of `table_rows` [F] rows."""

    whole: Split
    table_rows: tuple[int, ...]

    @property
    def rows(self) -> int:
        return self.whole.rows

    def read(self, rows: np.ndarray) -> Rows:
        read = self.whole.read(rows)
        limits = np.repeat(np.array(self.table_rows, np.int64), read.lengths.sum(axis=1))
        return replace(read, ids=read.ids % limits)


def capped(dataset: DataSet, max_rows: int) -> DataSet:
    """`dataset` with at most `max_rows` rows a table; itself if no table is larger. What became of the rows is in its notes.

    Statistics are folded exactly where the rows were counted, else by `fold_access`.
    """
    if max_rows < 1:
        raise UserError("too small", where="rows a table", given=max_rows, allowed="1 or more")
    if all(f.rows <= max_rows for f in dataset.features):
        return dataset
    features = tuple(replace(f, rows=min(f.rows, max_rows)) for f in dataset.features)
    table_rows = tuple(f.rows for f in features)
    before, after = sum(f.rows for f in dataset.features), sum(table_rows)
    smaller = sum(f.rows > max_rows for f in dataset.features)
    note = f"{smaller} of {len(features)} tables capped at {max_rows:,} rows (ids modulo that): {before:,} rows became {after:,}"
    counted: Callable[[], list[np.ndarray]] | None = getattr(dataset, "row_counts", None)
    row_counts = None if counted is None else (lambda: [fold_counts(c, rows) for c, rows in zip(counted(), table_rows)])
    return OpenDataSet(
        features,
        dataset.dense_features,
        {name: CappedSplit(split, table_rows) for name, split in dataset.splits.items()},
        _folded(dataset, table_rows, row_counts),
        digest([dataset.fingerprint, "capped", max_rows]),
        (*dataset.notes, note),
        dataset.best_auc,
        dataset.learnable,
        row_counts,
    )


def fold_counts(counts: np.ndarray, rows: int) -> np.ndarray:
    """int64 [rows]: look-ups after ids modulo `rows`."""
    folded = np.zeros(rows, np.int64)
    for first in range(0, len(counts), rows):
        part = counts[first : first + rows]
        folded[: len(part)] += part
    return folded


def fold_access(access: TableAccess, rows: int) -> TableAccess:
    """As if the `rows` hottest rows kept apart and the others spread evenly over them, which hashed ids nearly do."""
    if sum(access.bucket_rows) <= rows:
        return access
    kept_rows, kept_p, left, total = [], [], rows, 0.0
    for count, p in zip(access.bucket_rows, access.bucket_p):
        total += count * p
        take = min(count, left)
        if take:
            kept_rows.append(take)
            kept_p.append(p)
            left -= take
    spread = (total - sum(n * p for n, p in zip(kept_rows, kept_p))) / rows
    detail = f"{access.detail}, {sum(access.bucket_rows):,} rows folded into {rows:,}"
    return replace(access, bucket_rows=tuple(kept_rows), bucket_p=tuple(p + spread for p in kept_p), detail=detail)


def _folded(dataset: DataSet, table_rows: tuple[int, ...], row_counts: Callable[[], list[np.ndarray]] | None) -> AccessStatistics:
    counts = row_counts() if row_counts else [None] * len(table_rows)
    folded = {}
    for feature, rows, count in zip(dataset.features, table_rows, counts):
        access = dataset.access[feature.name]
        if feature.rows > rows:
            if count is None:
                access = fold_access(access, rows)
            else:
                detail = f"{access.detail}, {feature.rows:,} rows folded into {rows:,}"
                access = measured_access(feature.name, count, dataset.splits["train"].rows, detail)
        folded[feature.name] = access
    return AccessStatistics(folded)
