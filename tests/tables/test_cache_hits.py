"""What a cache of some of a table's rows hits, by hand and by what must hold. Beside the C++ cache: tests/stores/test_hits.py."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recsys_lab.store_names import LFU, LRU
from recsys_lab.tables.access import TableAccess, power_law_access
from recsys_lab.tables.cache_hits import Hits, cache_hits, needed_rows, rows_in_store

ROWS, LENGTH, SAMPLES = 8_000, 5.0, 40


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


def test_figures_of_hits_by_hand() -> None:
    made = Hits(10.0, 4.0, first=1.5, leaves=2.0)
    assert (made.misses, made.read, made.rate) == (6.0, 4.5, 0.4)
    assert Hits(10.0, 4.0, first=7.0).read == 0.0 and Hits(0.0, 0.0).rate == 1.0


def test_needed_rows_by_hand() -> None:
    """A thousand rows, each in a batch of a hundred: 10 and six deviations of the root of 9.9, and one."""
    access = power_law_access("t", 1000, 10.0, 0.0)
    assert needed_rows(access, 1, 1) == math.ceil(10 + 6 * math.sqrt(9.9)) + 1 == 30
    assert needed_rows(access, 1, 1, share=0.5) == math.ceil(5 + 6 * math.sqrt(1000 * 0.005 * 0.995)) + 1 == 20
    two = 1000 * (1 - 0.99**2)
    assert needed_rows(access, 1, 2) == math.ceil(two + 6 * math.sqrt(two * 0.99**2)) + 1
    assert needed_rows(access, 10_000, 1, share=0.25) == 250  # not more than the shard has


def test_first_rows_and_those_that_leave_by_hand() -> None:
    """A thousand rows with a chance of a hundredth. After 100 batches 1 - 0.99 ** 100 of them were read."""
    access, never = power_law_access("t", 1000, 10.0, 0.0), 0.99**100
    early = cache_hits(access, LFU, 1, 800, after=100)  # all that were read are in the cache
    assert early.first == pytest.approx(10 * never) and early.hits == pytest.approx(10 * (1 - never))
    assert early.read == pytest.approx(0.0, abs=1e-9) and early.leaves == pytest.approx(0.0, abs=1e-9)
    full = cache_hits(access, LFU, 1, 100, after=100)
    assert (full.rows, full.hits) == (pytest.approx(10.0), pytest.approx(1.0))
    assert full.leaves == pytest.approx(9.0) and full.read == pytest.approx(9.0 - 10 * never)
    assert rows_in_store(access, 1, 100, 100) == pytest.approx(1000 * (1 - never) - 100)
    assert rows_in_store(access, 1, 100, math.inf) == 900 and rows_in_store(access, 1, 1000, 100) == 0.0


def test_what_is_in_flight_stays_beside_what_was_read_most() -> None:
    """10 rows of 0.5, 100 of 0.1 and 1,000 of 0.01 a batch; 60 cached, one batch in flight.

    The ten stay. Of the thousand only the batch's own ten are there, so that 40 of the hundred stay, which are more than its own ten.
    """
    access = TableAccess("t", 25.0, (10, 100, 1000), (0.5, 0.1, 0.01), "by hand", "")
    for after in (5000, math.inf):
        assert cache_hits(access, LFU, 1, 60, 1, after).hits == pytest.approx(10 * 0.5 + 40 * 0.1 + 10 * 0.01, rel=0.01)
        in_two = 1000 * (1 - 0.99**2)
        assert cache_hits(access, LFU, 1, 60, 2, after).hits == pytest.approx(5 + (60 - 10 - in_two) * 0.1 + in_two * 0.01, rel=0.01)
