"""Prepared splits: flat binary columns in a folder, memory-mapped. Row-major, so that a row is one read.

labels.bin uint8 [N]; dense.bin float32 [N, K]; ids.bin int32 [N, F]; row_counts.bin int64 [sum of table rows], feature after feature.
Of a feature f with several ids a row, bag_f.bin has them, int32, row after row, and bag_f_ends.bin where those of each row end, int64 [N].
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from recsys_lab.data.dataset import one_hot_rows
from recsys_lab.data.protocol import Rows
from recsys_lab.data.text import Columns


class ColumnSplit:
    """A split in a prepared folder. One id a feature, but for the features `bags`, by their position."""

    def __init__(self, folder: Path, rows: int, dense_features: int, features: int, bags: Sequence[int] = ()):
        self.rows = rows
        self._labels = mapped(folder / "labels.bin", np.uint8, (rows,))
        self._dense = mapped(folder / "dense.bin", np.float32, (rows, dense_features)) if dense_features else None
        self._ids = mapped(folder / "ids.bin", np.int32, (rows, features))
        self._bags = {position: _Bag(folder, position, rows) for position in bags}

    def read(self, rows: np.ndarray) -> Rows:
        dense = None if self._dense is None else self._dense.take(rows, axis=0)
        one_hot = one_hot_rows(self._labels.take(rows).astype(np.float32), dense, self._ids.take(rows, axis=0))
        if not self._bags:
            return one_hot
        lengths, ids = one_hot.lengths, list(one_hot.ids.reshape(-1, len(rows)))
        for position, bag in self._bags.items():
            lengths[position], ids[position] = bag.read(rows)
        return replace(one_hot, ids=np.concatenate(ids))


class _Bag:
    """The ids of a feature that has several a row."""

    def __init__(self, folder: Path, position: int, rows: int):
        self._ends = mapped(folder / f"bag_{position}_ends.bin", np.int64, (rows,))
        self._ids = mapped(folder / f"bag_{position}.bin", np.int32, (int(self._ends[-1]) if rows else 0,))

    def read(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Lengths int32 [B] and ids int64 of `rows`."""
        ends = self._ends.take(rows)
        starts = np.where(rows > 0, self._ends.take(np.maximum(rows - 1, 0)), 0)
        lengths = ends - starts
        return lengths.astype(np.int32), self._ids.take(stretches(starts, lengths)).astype(np.int64)


def stretches(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """int64 [lengths.sum()]: starts[0], starts[0] + 1, ... lengths[0] of them, then those from starts[1], and so on."""
    before = np.cumsum(lengths) - lengths
    return np.repeat(starts - before, lengths) + np.arange(int(lengths.sum()))


def write_bag(folder: Path, position: int, ids: np.ndarray, lengths: np.ndarray, order: np.ndarray) -> None:
    """The ids of rows, `lengths` [N] of each, in `order` [N]."""
    starts = np.cumsum(lengths) - lengths
    moved = lengths[order]
    ids[stretches(starts[order], moved)].astype(np.int32).tofile(folder / f"bag_{position}.bin")
    np.cumsum(moved).astype(np.int64).tofile(folder / f"bag_{position}_ends.bin")


def write_columns(folder: Path, blocks: Iterator[Columns]) -> int:
    """Appends the blocks to the files of `folder`. Returns the rows written."""
    rows = 0
    with (
        (folder / "labels.bin").open("wb") as labels,
        (folder / "dense.bin").open("wb") as dense,
        (folder / "ids.bin").open("wb") as ids,
        (folder / "missing.bin").open("wb") as missing,
    ):
        for block in blocks:
            rows += len(block.labels)
            labels.write(np.ascontiguousarray(block.labels, np.uint8))
            ids.write(np.ascontiguousarray(block.ids))
            if block.dense is not None:
                dense.write(np.ascontiguousarray(block.dense, np.float32))
            if block.missing is not None:
                missing.write(np.ascontiguousarray(block.missing, np.uint32))
    return rows


def count_rows(counts: Sequence[np.ndarray], ids: np.ndarray) -> None:
    """Adds the look-ups of `ids` [n, F] to `counts`, one int64 array [rows] a feature."""
    for feature, table in enumerate(counts):
        if len(table) <= 8 * len(ids):
            table += np.bincount(ids[:, feature], minlength=len(table))
        else:  # a large table: touch only the rows that occur
            rows, seen = np.unique(ids[:, feature], return_counts=True)
            table[rows] += seen


def write_row_counts(folder: Path, counts: Sequence[np.ndarray]) -> None:
    with (folder / "row_counts.bin").open("wb") as file:
        for table in counts:
            file.write(np.ascontiguousarray(table, np.int64))


def read_row_counts(folder: Path, table_rows: Sequence[int]) -> list[np.ndarray]:
    """int64 [rows] for each feature, memory-mapped."""
    whole = mapped(folder / "row_counts.bin", np.int64, (sum(table_rows),))
    return np.split(whole, np.cumsum(table_rows)[:-1])


def mapped(path: Path, dtype: type, shape: tuple[int, ...]) -> np.ndarray:
    """A file of the folder as an array that is read where it is touched."""
    if 0 in shape:
        return np.empty(shape, dtype)
    return np.memmap(path, dtype=dtype, mode="r", shape=shape).view(np.ndarray)
