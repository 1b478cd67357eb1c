"""What two pieces of a tensor share: by extents, or by the ids of their rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def overlap(
    offset: Sequence[int], shape: Sequence[int], saved_offset: Sequence[int], saved_shape: Sequence[int]
) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
    """What two blocks share, as slices of the saved one and of the other."""
    starts = [max(a, b) for a, b in zip(offset, saved_offset)]
    stops = [min(a + n, b + m) for a, n, b, m in zip(offset, shape, saved_offset, saved_shape)]
    there, here = (tuple(slice(s - o, e - o) for s, e, o in zip(starts, stops, of)) for of in (saved_offset, offset))
    return there, here


def matches(ids: np.ndarray | range, saved: np.ndarray | range) -> tuple[np.ndarray, np.ndarray]:
    """Where both have one id: its index in `ids`, and in `saved`, these rising. At most one of them is a range."""
    if isinstance(ids, range):
        inside = np.flatnonzero((np.asarray(saved) >= ids.start) & (np.asarray(saved) < ids.stop))
        return np.asarray(saved)[inside] - ids.start, inside
    order = np.argsort(ids)
    if isinstance(saved, range):
        first, last = np.searchsorted(ids, [saved.start, saved.stop], sorter=order)
        return order[first:last], ids[order[first:last]] - saved.start
    at = np.minimum(np.searchsorted(ids, saved, sorter=order), len(ids) - 1)
    both = np.flatnonzero(ids[order[at]] == saved)
    return order[at[both]], both
