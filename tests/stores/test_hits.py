"""What a cache is expected to hit, beside what the C++ cache does on ids drawn by the same law."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from recsys_lab.kernels.row_cache import RowCache
from recsys_lab.plan.store import LFU, LRU
from recsys_lab.tables.access import power_law_access
from recsys_lab.tables.cache_hits import cache_hits

ROWS, LENGTH, SAMPLES = 8_000, 5.0, 40
EARLY, LATE, STEPS = slice(5, 25), slice(200, 260), 260


def counts(policy: str, exponent: float, slots: int, in_flight: int, file: Path) -> dict[str, np.ndarray]:
    """Of each batch, as the cache has them. Ids are hashed: the rank of a row says nothing of its number."""
    rng = np.random.default_rng(3)
    access = power_law_access("t", ROWS, LENGTH, exponent, buckets=ROWS)
    p = np.repeat(access.bucket_p, access.bucket_rows)
    rows, cumulative = rng.permutation(ROWS), np.cumsum(p / p.sum())
    weights = torch.zeros(slots, 1)
    file.write_bytes(bytes(4 * ROWS))
    found = []
    with file.open("r+b", buffering=0) as opened:
        cache, pinned = RowCache(ROWS, slots, policy == LFU, opened.fileno(), [weights]), []
        for _ in range(STEPS):
            ids = rows[np.minimum(np.searchsorted(cumulative, rng.random(int(SAMPLES * LENGTH))), ROWS - 1)]
            if len(pinned) == in_flight:
                cache.release(pinned.pop(0), True)
            before = cache.counts()
            pinned.append(cache.take(torch.from_numpy(ids))[1])
            found.append({name: n - before[name] for name, n in cache.counts().items()})
    return {name: np.asarray([one[name] for one in found]) for name in found[0]}


@pytest.mark.parametrize("policy", [LFU, LRU])
@pytest.mark.parametrize(("exponent", "slots", "in_flight"), [(0.0, 700, 1), (0.8, 900, 2), (1.05, 500, 1), (1.05, 2000, 2), (1.3, 900, 1)])
def test_it_hits_reads_and_writes_what_is_expected_within_two_points(
    policy: str, exponent: float, slots: int, in_flight: int, tmp_path: Path
) -> None:
    access = power_law_access("t", ROWS, LENGTH, exponent)
    seen = counts(policy, exponent, slots, in_flight, tmp_path / "rows")
    for which in (EARLY, LATE):
        expected = [cache_hits(access, policy, SAMPLES, slots, in_flight, n) for n in range(STEPS)[which]]
        rows = np.mean([one.rows for one in expected])
        for name, of in {"hits": "hits", "made": "first", "rows_read": "read", "rows_written": "leaves"}.items():
            assert seen[name][which].mean() / rows == pytest.approx(np.mean([getattr(one, of) for one in expected]) / rows, abs=0.02), name
