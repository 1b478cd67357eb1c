"""Rows that nobody has read yet, in a checkpoint: it leaves them out, since a few figures say what they are.

They are of tables whose rows are in a file. Their weights follow from the seed, their optimizer state is zero.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch

from recsys_lab.executor.store.row_field import RowField
from recsys_lab.models.table_weights import FirstValues
from recsys_lab.train.tensor_file import Content, row_steps

#: Of a shard's rows, those that a checkpoint lists at most: eight bytes a row. With more it has all of them.
MOST_LISTED = 0.5


@dataclass(frozen=True)
class Uninitialised:
    """Of `count` rows of the whole tensor, from `start`, all that a piece does not list. `origin` None: they are zero."""

    start: int
    count: int
    origin: FirstValues | None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(figures: Mapping[str, Any]) -> Uninitialised:
        """Raises ValueError, TypeError, LookupError for anything else than `to_json` gives."""
        origin = figures["origin"]
        rows = Uninitialised(figures["start"], figures["count"], None if origin is None else FirstValues(**origin))
        counts = [rows.start, rows.count, *((rows.origin.rows, rows.origin.dim, rows.origin.seed) if rows.origin else ())]
        known = all(isinstance(one, int) and one >= 0 for one in counts)
        if not known or (rows.origin is not None and rows.start + rows.count > rows.origin.rows):
            raise ValueError(f"rows that were not read: {figures}")
        return rows

    def rows_in(self, ids: np.ndarray, listed: np.ndarray) -> np.ndarray:
        """Which of `ids` (int64) it says the values of: bool. `listed` rise."""
        at = np.minimum(np.searchsorted(listed, ids), max(len(listed) - 1, 0))
        named = listed[at] == ids if len(listed) else np.zeros(len(ids), dtype=bool)
        return (ids >= self.start) & (ids < self.start + self.count) & ~named

    def values(self, ids: np.ndarray, columns: Sequence[slice]) -> torch.Tensor:
        """Of those rows and columns of the whole tensor, FP32."""
        if self.origin is not None:
            return self.origin.of(ids, columns[0].start, columns[0].stop)
        return torch.zeros(len(ids), *(cut.stop - cut.start for cut in columns))


@dataclass(frozen=True)
class Listed:
    """The rows of a shard that a checkpoint has: `only` by the shard's numbers, `rows` by the table's."""

    only: np.ndarray
    rows: np.ndarray


def listed_rows(fields: Iterable[tuple[RowField, int]]) -> dict[int, Listed | None]:
    """By the identity of a shard, given with its first row. None where all of its rows are written."""
    lists: dict[int, Listed | None] = {}
    for field, first_row in fields:
        if id(field.rows) not in lists:
            only = field.known() if field.origin is not None else np.empty(0, np.int64)
            many = field.origin is None or len(only) > MOST_LISTED * field.rows.rows
            lists[id(field.rows)] = None if many else Listed(only, only + first_row)
    return lists


def of_listed(field: RowField, listed: Listed, first_row: int) -> tuple[RowField, Uninitialised]:
    """`field` with the listed rows only, and what says the others."""
    return replace(field, only=listed.only), Uninitialised(first_row, field.shape[0], None if field.name else field.origin)


def missing_parts(
    content: Content, ids: np.ndarray | range, uninitialised: Uninitialised, listed: np.ndarray, columns: Sequence[slice]
) -> Iterable[tuple[int, np.ndarray, torch.Tensor | None]]:
    """Of `content`, whose rows are `ids`, those that `uninitialised` says, a few at a time: (elements, rows in it, values).

    Rows of a store that are still as they were first are counted, and have no values to set.
    """
    for part in row_steps(0, len(ids), tuple(content.shape)):
        own = np.arange(ids[part].start, ids[part].stop) if isinstance(ids, range) else ids[part]
        inside = uninitialised.rows_in(own, listed)
        at, own = np.flatnonzero(inside) + part.start, own[inside]
        elements = len(at) * math.prod(cut.stop - cut.start for cut in columns)
        if isinstance(content, RowField):
            changed = ~content.is_first(at, uninitialised.origin)
            at, own = at[changed], own[changed]
        yield elements, at, uninitialised.values(own, columns) if len(at) else None
