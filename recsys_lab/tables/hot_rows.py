"""Where a table's hottest rows lie.

It says which of the table's ranks serve more look-ups than their share of its rows: stragglers by skew.

Ids are hashed, so a row lies on a rank by chance. The chance is the rank's share of the table's rows. Of rows with few look-ups every rank
has its share. The few rows with many look-ups make the difference. They are dealt one by one, in one draw by the table's name that is the
same every time. The hottest row lies where its id says, if that is known.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from recsys_lab.tables.access import TableAccess

#: Rows that are dealt one by one, for each range of rows, and in all at most.
OF_RANGE, MOST = 16, 16_384


def served_shares(access: TableAccess, ranges: Sequence[tuple[int, int]]) -> dict[int, float]:
    """Of a table's look-ups, the share that goes to each of its `ranges` (start, rows), by start. They add up to 1."""
    hottest = access.hottest_row
    place = None if hottest is None else next((i for i, (start, rows) in enumerate(ranges) if start <= hottest < start + rows), None)
    shares = _shares(access.table, access.bucket_rows, access.bucket_p, tuple(n for _, n in ranges), place)
    return dict(zip((start for start, _ in ranges), shares))


def shares_of(access: TableAccess, ranges: Sequence[tuple[int, int]]) -> np.ndarray:
    """The same for each of `ranges`, which may be there several times, as copies are, or be empty."""
    shares = served_shares(access, sorted({one for one in ranges if one[1]}))
    return np.array([shares[start] if rows else 0.0 for start, rows in ranges])


@lru_cache(maxsize=4096)
def _shares(
    name: str, bucket_rows: tuple[int, ...], bucket_p: tuple[float, ...], sizes: tuple[int, ...], place: int | None
) -> tuple[float, ...]:
    """`place`: of the range with the hottest row; None: by chance, as the others."""
    rows, even = np.asarray(bucket_rows), np.asarray(sizes) / sum(sizes)
    total = float(np.dot(rows, bucket_p))
    if len(sizes) == 1 or not total:
        return tuple(even)
    draws = min(OF_RANGE * len(sizes), MOST, int(rows.sum()))
    of_bucket = np.diff(np.minimum(np.cumsum(rows), draws), prepend=0)  # of each bucket, the hottest first
    hot = np.repeat(np.asarray(bucket_p), of_bucket)
    on = np.random.default_rng(zlib.crc32(name.encode())).choice(len(sizes), size=len(hot), p=even)
    if place is not None:
        on[0] = place
    dealt = np.bincount(on, weights=hot, minlength=len(sizes))
    return tuple((dealt + max(total - hot.sum(), 0.0) * even) / total)
