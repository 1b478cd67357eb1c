"""The remapping of a table that is sharded by row: ids in falling frequency to FlexShard's tiers (arXiv 2301.02959, section 4.5).

    remapped row   0 ........ a | a ............ a + b | a + b ............. E
    tier           replicated   | host_sharded         | row_sharded

Only the a + b hot ids are held. A cold id keeps its place among the cold ones. So an id that was never seen in planning is row-sharded, and
a table of a billion rows costs no array of that length.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from recsys_lab.errors import UserError
from recsys_lab.tables.spec import ELEMENT_BYTES, Table

#: A rank keeps the ids of so many last look-ups of each table that is sharded by row. It judges its plan by them.
KEPT_IDS = 1 << 16


def kept_id_bytes(tables: Iterable[Table]) -> int:
    """Of an id of `tables`, where many are kept: half of an int64 where that is enough."""
    return ELEMENT_BYTES["int32" if all(table.rows < 2**31 for table in tables) else "int64"]


@dataclass(frozen=True)
class Remap:
    """Of one table with E = `rows` rows. `sorted_ids` int64 [a + b]: the hot ids, rising; `position` [a + b]: the remapped row of each."""

    rows: int
    sorted_ids: np.ndarray
    position: np.ndarray

    @staticmethod
    def of(table: str, hot_ids: np.ndarray, replicated: int, host_sharded: int, ranks_per_host: int, rows: int) -> Remap:
        """From `hot_ids` int64 [a + b], in falling frequency. Raises UserError where they are not distinct rows of the table.

        The i-th hottest host-sharded row is dealt to local rank i mod W. So the ranks of a host serve equal load.
        """
        hot_ids = np.asarray(hot_ids, np.int64)
        order = np.argsort(hot_ids)
        _check(table, hot_ids[order], replicated + host_sharded, rows)
        position = np.concatenate([np.arange(replicated), replicated + dealt(host_sharded, ranks_per_host)])
        return Remap(rows, hot_ids[order], position[order])

    @property
    def hot_rows(self) -> int:
        return len(self.sorted_ids)

    def to_row(self, ids: np.ndarray) -> np.ndarray:
        """Remapped rows of `ids` (int64, any shape)."""
        below = np.searchsorted(self.sorted_ids, ids)
        if not self.hot_rows:
            return np.asarray(ids, np.int64)
        at = np.minimum(below, self.hot_rows - 1)
        return np.where(self.sorted_ids[at] == ids, self.position[at], ids - below + self.hot_rows)

    def to_id(self, rows: np.ndarray) -> np.ndarray:
        """Ids of remapped `rows` (int64, any shape): the inverse of `to_row`."""
        rows = np.asarray(rows, np.int64)
        of_position = np.empty(self.hot_rows, np.int64)
        of_position[self.position] = self.sorted_ids
        cold = np.maximum(rows - self.hot_rows, 0)
        cold_ids = cold + np.searchsorted(self.sorted_ids - np.arange(self.hot_rows), cold, side="right")
        if not self.hot_rows:
            return cold_ids
        return np.where(rows < self.hot_rows, of_position[np.minimum(rows, self.hot_rows - 1)], cold_ids)


def dealt(rows: int, ranks: int) -> np.ndarray:
    """int64 [rows]: where the i-th row goes. Rows are dealt round robin to `ranks` blocks of ceil(rows / ranks), the last ones short."""
    if rows == 0:
        return np.empty(0, np.int64)
    block = -(-rows // ranks)
    place = np.arange(rows)
    return place[np.lexsort((place // block, place % block))]


def _check(table: str, hot_ids: np.ndarray, expected: int, rows: int) -> None:
    """`hot_ids` sorted."""
    where = f"most frequent rows of table {table}"
    remedy = "measure the frequencies of these data again, and plan with them"
    if len(hot_ids) != expected:
        raise UserError(
            "the frequencies do not match the plan", where=where, given=f"{len(hot_ids)} rows", allowed=f"{expected}", remedy=remedy
        )
    outside = hot_ids[(hot_ids < 0) | (hot_ids >= rows)]
    if len(outside):
        raise UserError(
            "the frequencies do not match the table",
            where=where,
            given=f"{len(outside)} ids outside it, such as {outside[0]}",
            allowed=f"0 to {rows - 1}",
            remedy=remedy,
        )
    twice = int((hot_ids[1:] == hot_ids[:-1]).sum())
    if twice:
        raise UserError("the frequencies name rows twice", where=where, given=f"{twice} rows", allowed="each once", remedy=remedy)
