"""The same data with smaller tables: for training here what was planned for a larger cluster. Ids are taken modulo the new size."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from recsys_lab.data.cache import digest
from recsys_lab.data.dataset import OpenDataSet
from recsys_lab.data.protocol import DataSet, HeldOutItems, Hottest, Rows, Split
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


@dataclass(frozen=True)
class CappedHeldOut:
    """Held-out items whose vectors are in a table of `item_rows` rows: items that share one score alike."""

    whole: HeldOutItems
    table_rows: tuple[int, ...]
    item_rows: int

    @property
    def rows(self) -> int:
        return self.whole.rows

    @property
    def items(self) -> int:
        return self.whole.items

    def target(self, rows: np.ndarray) -> np.ndarray:
        return self.whole.target(rows)

    def seen(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return self.whole.seen(rows)

    def sampled(self, rows: np.ndarray, wanted: int) -> np.ndarray:
        return self.whole.sampled(rows, wanted)

    def candidates(self, sampled: int) -> CappedSplit:
        return CappedSplit(self.whole.candidates(sampled), self.table_rows)


def capped(dataset: DataSet, max_rows: int) -> DataSet:
    """`dataset` with at most `max_rows` rows a table. Itself if no table is larger. What became of the rows is in its notes.

    Statistics are folded exactly where the rows were counted, else by `fold_access`.
    """
    assert isinstance(dataset, OpenDataSet), "openers return one"
    if max_rows < 1:
        raise UserError("too small", where="rows a table", given=max_rows, allowed="1 or more")
    if all(f.rows <= max_rows for f in dataset.features):
        return dataset
    features = tuple(replace(f, rows=min(f.rows, max_rows)) for f in dataset.features)
    table_rows = tuple(f.rows for f in features)
    before, after = sum(f.rows for f in dataset.features), sum(table_rows)
    smaller = sum(f.rows > max_rows for f in dataset.features)
    note = f"{smaller} of {len(features)} tables capped at {max_rows:,} rows (ids modulo that): {before:,} rows became {after:,}"
    rows_of = {f.table_name: f.rows for f in features}
    counts = dataset.row_counts
    row_counts = None if counts is None else (lambda: [fold_counts(c, rows) for c, rows in zip(counts(), rows_of.values())])
    return replace(
        dataset,
        features=features,
        splits={name: CappedSplit(split, table_rows) for name, split in dataset.splits.items()},
        access=_folded(dataset, rows_of, row_counts),
        fingerprint=digest([dataset.fingerprint, "capped", max_rows]),
        notes=(*dataset.notes, note),
        row_counts=row_counts,
        hottest_by_law=lambda table, rows: fold_hottest(dataset.hottest, table, rows, rows_of[table]),
        held_out={name: CappedHeldOut(whole, table_rows, min(whole.item_rows, max_rows)) for name, whole in dataset.held_out.items()},
    )


def fold_hottest(hottest: Hottest, table: str, rows: int, of_rows: int) -> np.ndarray:
    """int64 [rows]: where the most frequent rows of the whole table fell, each once, after ids modulo `of_rows`."""
    wanted, hottest_rows = rows, np.empty(0, np.int64)
    while len(hottest_rows) < rows:
        folded = hottest(table, wanted) % of_rows
        _, first = np.unique(folded, return_index=True)
        hottest_rows, wanted = folded[np.sort(first)][:rows], 2 * wanted
    return hottest_rows


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


def _folded(dataset: DataSet, rows_of: dict[str, int], row_counts: Callable[[], list[np.ndarray]] | None) -> AccessStatistics:
    """`rows_of`: rows by table, after the cap."""
    counts = row_counts() if row_counts else [None] * len(rows_of)
    before = {f.table_name: f.rows for f in dataset.features}
    folded = {}
    for (table, rows), count in zip(rows_of.items(), counts):
        access = dataset.access[table]
        if before[table] > rows:
            if count is None or "train" not in dataset.splits:
                access = fold_access(access, rows)
            else:
                detail = f"{access.detail}, {before[table]:,} rows folded into {rows:,}"
                access = replace(measured_access(table, count, dataset.splits["train"].rows, detail), alike=access.alike)
        folded[table] = access
    return AccessStatistics(folded)
