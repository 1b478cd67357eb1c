"""Maps Criteo's 32-bit values to rows of tables. It hashes them into a chosen number of rows, or builds a vocabulary on the train rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np

from recsys_lab.data import hashing


class Tables(Protocol):
    """Which row of its feature's table a value has. Row 0 is the missing value's."""

    rows: tuple[int, ...]  # of each feature's table

    def encode(self, values: np.ndarray, missing: np.ndarray) -> np.ndarray:
        """int32 [n, F] from values [n, F] uint32 and the bit mask [n] of the missing ones."""
        ...


@dataclass(frozen=True)
class HashedTables:
    """Row 0 for missing, the others by the hash of the value. A table of one row holds everything in it."""

    rows: tuple[int, ...]

    def encode(self, values: np.ndarray, missing: np.ndarray) -> np.ndarray:
        others = np.maximum(np.array(self.rows, np.uint64) - np.uint64(1), np.uint64(1))
        hashed = hashing.bits(np.uint64(0), values) % others + np.uint64(1)
        hashed = np.minimum(hashed, np.array(self.rows, np.uint64) - np.uint64(1))
        hashed[is_missing(missing, len(self.rows))] = 0
        return hashed.astype(np.int32)


@dataclass(frozen=True)
class Vocabulary:
    """Row 0 for missing, row 1 for values that are rare or unknown, then the others by falling frequency in the train rows.

    `values[f]`: the known values of feature f in rising order; `value_rows[f]`: their rows.
    """

    OWN_ROWS: ClassVar[int] = 2  # missing, and rare or unknown
    RARE: ClassVar[int] = 1

    values: tuple[np.ndarray, ...]
    value_rows: tuple[np.ndarray, ...]

    @property
    def rows(self) -> tuple[int, ...]:
        return tuple(len(v) + self.OWN_ROWS for v in self.values)

    def encode(self, values: np.ndarray, missing: np.ndarray) -> np.ndarray:
        out = np.ones(values.shape, np.int32)
        for feature, (known, value_rows) in enumerate(zip(self.values, self.value_rows)):
            if len(known):
                column = values[:, feature]
                positions = np.minimum(np.searchsorted(known, column), len(known) - 1)
                hit = known[positions] == column
                out[hit, feature] = value_rows[positions[hit]]
        out[is_missing(missing, values.shape[1])] = 0
        return out


class ValueCounter:
    """How often each value of each feature occurs. Memory grows with the distinct values, not with the rows."""

    def __init__(self, features: int):
        self._counted = [(np.empty(0, np.uint32), np.empty(0, np.int64)) for _ in range(features)]

    def add(self, values: np.ndarray, missing: np.ndarray) -> None:
        """Counts the present values of `values` [n, F]."""
        absent = is_missing(missing, values.shape[1])
        for feature, counted in enumerate(self._counted):
            new = np.unique(values[~absent[:, feature], feature], return_counts=True)
            self._counted[feature] = _merged(counted, new)

    def vocabulary(self, min_count: int) -> Vocabulary:
        """Of the values that were seen `min_count` times or more. Ties are broken by value."""
        values, value_rows = [], []
        for seen, counts in self._counted:
            kept, kept_counts = seen[counts >= min_count], counts[counts >= min_count]
            by_frequency = np.lexsort((kept, -kept_counts))
            rows = np.empty(len(kept), np.int32)
            rows[by_frequency] = np.arange(len(kept)) + Vocabulary.OWN_ROWS
            values.append(kept)
            value_rows.append(rows)
        return Vocabulary(tuple(values), tuple(value_rows))


def is_missing(mask: np.ndarray, features: int) -> np.ndarray:
    """bool [n, F] from the bit mask [n]."""
    return (mask[:, None] >> np.arange(features, dtype=np.uint32)) & np.uint32(1) != 0


def _merged(a: Sequence[np.ndarray], b: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    values, inverse = np.unique(np.concatenate([a[0], b[0]]), return_inverse=True)
    counts = np.zeros(len(values), np.int64)
    np.add.at(counts, inverse, np.concatenate([a[1], b[1]]))
    return values, counts
