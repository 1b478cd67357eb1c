"""Splits from p row by row, in any order, without sorting them. It goes by coarse buckets first, then row by row where a tier ends.

30 million rows take half a second. Sorting them and summing along takes several, most of it spent on memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from recsys_lab.sharders.flexshard.allocate import Split, Trade
from recsys_lab.sharders.flexshard.costs import Setting
from recsys_lab.sharders.flexshard.rows import Rows

#: Bits of a float64 below its first ten of mantissa: the p of a coarse bucket lie within 0.1 % of each other.
SHIFT = 42
#: Coarse buckets below the most frequent row's: 64 powers of two. What is less frequent shares the last one.
DEEPEST = 64 << (52 - SHIFT)
CHUNK = 1 << 18  # rows that stay in the cache


def split_rows(tables: Sequence[tuple[np.ndarray, int]], setting: Setting, rule: Callable[[Trade], Split | None]) -> Split | None:
    """What `rule` makes of all rows of `tables`: (p float64 [E] >= 0 in any order, dimension) each.

    Two tiers, and three by the paper's rule, are exactly what all rows in order would give. A bucket in which no tier ends lies in one tier
    as a whole, and its sums are exact. The optimal rule may look for its end in a neighbouring bucket, which is as good to a part in 1e6.
    """
    top = max(int(_keys(np.array([p.max()]))[0]) for p, _ in tables if len(p))
    coarse = [_coarse(p, top) for p, _ in tables]
    fine: set[int] = set()
    while True:
        parts = [_with_fine(p, buckets, fine, top) + (dim,) for (p, dim), buckets in zip(tables, coarse)]
        rows = Rows.merged(parts)
        split = rule(Trade(rows, setting))
        if split is None:
            return None
        ends = {split.replicated, split.replicated + split.in_host}
        beside = {row for end in ends for row in (end - 1, end) if 0 <= row < rows.total}
        unrefined = {int(_bucket(np.array([rows.p_of(row)]), top)[0]) for row in beside} - fine
        if not unrefined:
            return split
        fine |= unrefined


def _keys(p: np.ndarray) -> np.ndarray:
    """Whole numbers that rise with `p`: the leading bits of a float64."""
    return p.view(np.int64) >> SHIFT


def _bucket(p: np.ndarray, top: int) -> np.ndarray:
    """0 for the most frequent rows."""
    return np.minimum(top - _keys(p), DEEPEST)


def _chunks(p: np.ndarray) -> Iterator[np.ndarray]:
    return (np.ascontiguousarray(p[start : start + CHUNK], np.float64) for start in range(0, len(p), CHUNK))


def _coarse(p: np.ndarray, top: int) -> tuple[np.ndarray, np.ndarray]:
    """(rows, sum of p) of each bucket."""
    rows, sums = np.zeros(DEEPEST + 1, np.int64), np.zeros(DEEPEST + 1)
    for chunk in _chunks(p):
        bucket = _bucket(chunk, top)
        deepest = int(bucket.max()) + 1
        rows[:deepest] += np.bincount(bucket, minlength=deepest)
        sums[:deepest] += np.bincount(bucket, chunk, minlength=deepest)
    return rows, sums


def _with_fine(p: np.ndarray, coarse: tuple[np.ndarray, np.ndarray], fine: set[int], top: int) -> tuple[np.ndarray, np.ndarray]:
    """(rows, p) of the coarse buckets, those in `fine` row by row instead."""
    rows, sums = coarse
    is_fine = np.zeros(DEEPEST + 1, bool)
    is_fine[list(fine)] = True
    least = _least(max(fine), top) if fine else 0.0
    single = [np.empty(0)]
    for chunk in _chunks(p) if fine else ():
        candidates = chunk[chunk >= least]  # few: tiers end among the most frequent rows
        single.append(candidates[is_fine[_bucket(candidates, top)]])
    alone, coarse_rows, coarse_sums = np.concatenate(single), rows[(rows > 0) & ~is_fine], sums[(rows > 0) & ~is_fine]
    return np.concatenate([coarse_rows, np.ones(len(alone), np.int64)]), np.concatenate([coarse_sums / coarse_rows, alone])


def _least(bucket: int, top: int) -> float:
    """The least p that a bucket can hold."""
    return 0.0 if bucket == DEEPEST else float(np.array([(top - bucket) << SHIFT]).view(np.float64)[0])
