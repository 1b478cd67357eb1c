"""The rows of all tables as one list in falling p (FlexShard, section 4.6), compressed to buckets."""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from recsys_lab.tables import Table, TableAccess


@dataclass(frozen=True)
class Rows:
    """`count` int64 [n] rows with probability `p` float64 [n], falling, of `dim` [n] elements each; `table` [n] is each bucket's table.

    A row's memory and traffic both scale with its dimension. So the gain of a row for its memory depends on p alone. Falling p is the right
    order for tables of different dimensions too.
    """

    count: np.ndarray
    p: np.ndarray
    dim: np.ndarray
    table: np.ndarray
    tables: int

    @staticmethod
    def merged(parts: Sequence[tuple[np.ndarray, np.ndarray, int]]) -> Rows:
        """From (rows of each bucket, p of each bucket, dimension) of each table. Of equal p the earlier table comes first."""
        count = np.concatenate([np.asarray(rows, np.int64) for rows, _, _ in parts])
        p = np.concatenate([np.asarray(frequencies, np.float64) for _, frequencies, _ in parts])
        lengths = [len(rows) for rows, _, _ in parts]
        dim = np.repeat(np.array([d for _, _, d in parts], np.int64), lengths)
        table = np.repeat(np.arange(len(parts), dtype=np.int64), lengths)
        order = np.argsort(-p, kind="stable")
        return Rows(count[order], p[order], dim[order], table[order], len(parts))

    @staticmethod
    def of_tables(tables: Sequence[Table], access: Sequence[TableAccess]) -> Rows:
        return Rows.merged([(np.array(a.bucket_rows), np.array(a.bucket_p), t.dim) for t, a in zip(tables, access)])

    @property
    def total(self) -> int:
        return int(self.rows_before[-1])

    @cached_property
    def rows_before(self) -> np.ndarray:
        """[n + 1] rows in earlier buckets."""
        return _running_sums(self.count)

    @cached_property
    def elements_before(self) -> np.ndarray:
        """[n + 1] elements in earlier buckets."""
        return _running_sums(self.count * self.dim)

    @cached_property
    def traffic_before(self) -> np.ndarray:
        """[n + 1] elements that a sample looks up in earlier buckets."""
        return _running_sums(self.count * self.dim * self.p)

    def elements(self, k: np.ndarray | float) -> np.ndarray:
        """Elements of the first `k` rows. `k` may lie between rows."""
        return _upto(k, self.rows_before, self.elements_before)

    def traffic(self, k: np.ndarray | float) -> np.ndarray:
        """Elements that a sample looks up in the first `k` rows: the sum of p times dimension."""
        return _upto(k, self.rows_before, self.traffic_before)

    def rows_of_elements(self, elements: np.ndarray | float) -> np.ndarray:
        """How many of the first rows have that many elements together: the inverse of `elements`, between rows too."""
        return _upto(elements, self.elements_before, self.rows_before)

    def above(self, p: float) -> int:
        """How many rows have a greater probability than `p`."""
        return int(self.rows_before[bisect.bisect_left(self.p, -p, key=lambda value: -value)])

    def p_of(self, row: int) -> float:
        """The probability of one row, 0 behind the last."""
        bucket = int(np.searchsorted(self.rows_before, row, side="right")) - 1
        return float(self.p[bucket]) if bucket < len(self.p) else 0.0

    def of_each_table(self, k: int) -> np.ndarray:
        """int64 [tables]: how many of the first `k` rows belong to each table."""
        whole = int(np.searchsorted(self.rows_before, k, side="right")) - 1
        counts = np.zeros(self.tables, np.int64)
        np.add.at(counts, self.table[:whole], self.count[:whole])
        if whole < len(self.count):
            counts[self.table[whole]] += k - int(self.rows_before[whole])
        return counts


def _running_sums(values: np.ndarray) -> np.ndarray:
    """Sums as float64, which holds whole numbers up to 9e15. np.searchsorted would copy another type at every call."""
    summed = np.empty(len(values) + 1)
    summed[0] = 0
    np.cumsum(values, out=summed[1:])
    return summed


def _upto(x: np.ndarray | float, edges: np.ndarray, values: np.ndarray) -> np.ndarray:
    """`values` at `x` on a line through the edges. np.interp would first copy its arrays, which are long."""
    at = np.clip(np.searchsorted(edges, x, side="right") - 1, 0, len(edges) - 2)
    step = edges[at + 1] - edges[at]
    part = np.where(step > 0, (x - edges[at]) / np.where(step > 0, step, 1), 0.0)
    return values[at] + np.clip(part, 0.0, 1.0) * (values[at + 1] - values[at])
