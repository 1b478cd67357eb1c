"""What a cache of some of a table's rows hits, by hand and by what must hold. Beside the C++ cache: tests/stores/test_hits.py."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recsys_lab.base.store_names import LFU, LRU
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


@settings(max_examples=80)
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
    assert (Hits(10.0, 4.0).read, Hits(10.0, 4.0).leaves) == (6.0, 0.0)
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


def test_the_rows_that_most_batches_read_stay_after_two() -> None:
    """Rows of 0.5 and of 0.2 a batch, a hundred each, 80 cached.

    Both of two batches read a quarter and a 25th. One did half and 0.32: with a share f of these, 0.25 + f / 2 and 0.04 + 0.32 f.
    """
    access, share = TableAccess("t", 70.0, (100, 100), (0.5, 0.2), "by hand", ""), (80 - 29) / 82
    found = cache_hits(access, LFU, 1, 80, 1, after=2)
    assert found.hits == pytest.approx(50 * (0.25 + share / 2) + 20 * (0.04 + 0.32 * share)) and found.rows == pytest.approx(70.0)
    never = 50 * 0.25 + 20 * 0.64
    assert found.first == pytest.approx(never) and found.leaves == pytest.approx(70 - found.hits)
    few = cache_hits(access, LFU, 1, 112, after=2)  # of 111 that were read all stay
    assert few.hits == pytest.approx(50 * 0.75 + 20 * 0.36) and few.leaves == pytest.approx(never - 1)
    in_flight = cache_hits(access, LFU, 1, 75, 1, after=2)  # rows of the last batch stay: half and a fifth
    assert in_flight.hits == pytest.approx(50 * (0.25 + (75 - 29) / 82 / 2) + 20 * (0.04 + 0.32 * (75 - 29) / 82))


def test_what_was_read_longest_ago_leaves() -> None:
    """Of rows of 0.5 and 0.1 a batch, a hundred each: a cache holds those of the last T batches, fewer at first."""
    access = TableAccess("t", 60.0, (100, 100), (0.5, 0.1), "by hand", "")
    for batches in (2, 3):
        held = [1 - 0.5**batches, 1 - 0.9**batches]
        settled = cache_hits(access, LRU, 1, 100 * sum(held))
        assert settled.hits == pytest.approx(50 * held[0] + 10 * held[1]) and settled.leaves == pytest.approx(60 - settled.hits)
        assert cache_hits(access, LRU, 1, 100 * sum(held), after=batches + 1).hits == pytest.approx(settled.hits)
        early = cache_hits(access, LRU, 1, 100 * sum(held), after=1)
        assert early.hits == pytest.approx(50 * 0.5 + 10 * 0.1) and early.read == pytest.approx(0.0, abs=1e-9)
        assert early.first == pytest.approx(50 * 0.5 + 10 * 0.9)


def test_a_row_looked_up_more_than_once_a_sample_is_in_every_batch() -> None:
    access = TableAccess("t", 13.0, (4, 10), (3.0, 0.1), "by hand", "")
    found = cache_hits(access, LFU, 1, 10)
    assert found.rows == pytest.approx(5.0) and found.hits == pytest.approx(4 + 0.1 * 6 + 0.1 * 0.1 * 4, rel=0.05)
    more = TableAccess("t", 22.0, (4, 100), (3.0, 0.1), "by hand", "")
    assert needed_rows(more, 2, 1) == math.ceil(4 + 19 + 6 * math.sqrt(19 * 0.81)) + 1
