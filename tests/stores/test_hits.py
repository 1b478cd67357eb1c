"""What a cache is expected to hit, beside what the C++ cache does on ids drawn by the same law."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from recsys_lab.kernels.row_cache import RowCache
from recsys_lab.plan.store import LFU, LRU
from recsys_lab.tables.access import power_law_access
from recsys_lab.tables.cache_hits import cache_hits, needed_rows

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


def test_the_long_run_is_where_early_batches_lead() -> None:
    access = power_law_access("t", ROWS, LENGTH, 1.05)
    for policy in (LFU, LRU):
        long, late = (cache_hits(access, policy, SAMPLES, 900, 2, n) for n in (math.inf, 1e5))
        assert long.first == 0.0 and long.read == long.leaves == long.misses
        assert (late.read, late.leaves) == (pytest.approx(long.read, rel=0.02), pytest.approx(long.leaves, rel=0.02))
    everything = cache_hits(access, LFU, SAMPLES, ROWS, 2, 30)
    assert everything.read == pytest.approx(0.0, abs=1e-9) and everything.leaves == pytest.approx(0.0, abs=1e-9)


laws = st.tuples(st.integers(50, 5000), st.floats(0.5, 20), st.floats(0, 2))


@settings(max_examples=80, deadline=None)
@given(laws, st.sampled_from([LFU, LRU]), st.integers(1, 200), st.integers(1, 2), st.sampled_from([0.0, 3.0, 40.0, math.inf]))
def test_more_cache_and_more_batches_never_hit_less(law: tuple, policy: str, samples: int, in_flight: int, after: float) -> None:
    access = power_law_access("t", law[0], law[1], law[2])
    least = needed_rows(access, samples, in_flight)
    assert 0 < least <= law[0]
    found = [cache_hits(access, policy, samples, c, in_flight, after) for c in np.linspace(least, law[0], 6)]
    assert all(0 <= h.hits <= h.rows * (1 + 1e-9) for h in found)
    assert all(a.hits <= b.hits + 1e-6 * b.rows for a, b in zip(found, found[1:]))
    assert found[-1].hits <= cache_hits(access, policy, samples, law[0], in_flight).hits + 1e-6
    assert cache_hits(access, policy, samples, law[0], in_flight).rate == pytest.approx(1.0)


def test_by_hand() -> None:
    """Ten rows, each in every second batch: a cache of all but one misses a tenth of those that it does not have."""
    access = power_law_access("t", 10, 5.0, 0.0)  # p = 0.5 a sample
    assert needed_rows(access, 1, 1) == 10  # 5, and six deviations of 1.6
    settled = cache_hits(access, LRU, 1, 5.0)
    # Che: 1 - 0.5 ** T = 0.5, so T = 1: half of the rows were in the last batch.
    assert (settled.rows, settled.hits) == (pytest.approx(5.0), pytest.approx(2.5))
    assert cache_hits(access, LFU, 1, 10, after=0).hits == 0.0
    assert cache_hits(access, LFU, 1, 10, after=1).hits == pytest.approx(2.5)
