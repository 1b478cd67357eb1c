"""Stragglers by skew: hot rows lie on some ranks, and those serve more look-ups; none is lost."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recsys_lab.plan.lower import lower
from recsys_lab.simulate import simulate
from recsys_lab.tables import AccessStatistics, power_law_access
from recsys_lab.tables.hot_rows import served_shares
from tests.plan.plans import FLAT_SCHEMES, FP32, LENGTHS, TABLES, access, plan, workload
from tests.simulate.clusters import cluster, profile


def skewed(exponent: float) -> AccessStatistics:
    even = access(TABLES, LENGTHS)
    return AccessStatistics({t.name: power_law_access(t.name, t.rows, even[t.name].mean_length, exponent) for t in TABLES})


@settings(max_examples=100)
@given(st.integers(1, 10**7), st.floats(0.01, 50), st.floats(0, 2), st.lists(st.integers(1, 10**6), min_size=1, max_size=64))
def test_every_look_up_is_served_once(rows: int, length: float, exponent: float, sizes: list[int]) -> None:
    starts = np.cumsum([0, *sizes[:-1]])
    shares = served_shares(power_law_access("t", rows, length, exponent), list(zip(map(int, starts), sizes)))
    assert len(shares) == len(sizes) and min(shares.values()) >= 0 and sum(shares.values()) == pytest.approx(1)


def test_without_skew_ranks_are_nearly_alike_and_with_it_one_has_the_hottest_row() -> None:
    ranges = [(i * 10_000, 10_000) for i in range(64)]
    even, hot = (np.array(list(served_shares(power_law_access("t", 640_000, 1.0, e), ranges).values())) * 64 for e in (0.0, 1.1))
    assert even.max() < 1.01
    hottest = power_law_access("t", 640_000, 1.0, 1.1).bucket_p[0] * 64
    assert hot.max() >= hottest > 5


@settings(max_examples=60)
@given(st.lists(st.sampled_from(FLAT_SCHEMES), min_size=1, max_size=3).map(tuple), st.integers(1, 4), st.integers(1, 4), st.floats(0, 1.5))
def test_skew_moves_work_between_ranks_and_makes_none(kinds: tuple[str, ...], hosts: int, ranks: int, exponent: float) -> None:
    sharding, work, statistics = plan(kinds, hosts, ranks), workload(512, dense_parameters=1_000_000), skewed(exponent)
    even, hot = (lower(sharding, statistics, FP32, work, hot_rows=on) for on in (False, True))

    def total(figures: tuple[float, ...]) -> float:
        return sum(figures) * (hosts * ranks if len(figures) == 1 else 1)

    for a, b in zip(even.steps, hot.steps, strict=True):
        assert (a.name, a.kind, a.groups) == (b.name, b.kind, b.groups)
        assert total(b.rows_of_rank) == pytest.approx(total(a.rows_of_rank))
        assert total(b.bytes_of_rank) == pytest.approx(total(a.bytes_of_rank))
        if b.kind == "all_to_all" and b.received_of_rank:
            assert total(b.received_of_rank) == pytest.approx(total(b.bytes_of_rank))
    times = [simulate(s, cluster(hosts, ranks), profile("input", "dense_sync"), sharding, work)[0].iteration_ms for s in (even, hot)]
    assert times[1] >= times[0] * (1 - 0.02)  # an uneven plan may by chance come out more even


def test_a_straggler_holds_the_others_up() -> None:
    sharding, work, statistics = plan(("row_wise",), 4, 4), workload(8192), skewed(1.2)
    even, hot = (lower(sharding, statistics, FP32, work, hot_rows=on) for on in (False, True))
    read = [next(s.max_bytes for s in steps.steps if s.kind == "lookup") for steps in (even, hot)]
    assert read[1] > read[0]
    times = [simulate(steps, cluster(4, 4), profile(), sharding, work)[0].iteration_ms for steps in (even, hot)]
    assert times[1] - times[0] >= (read[1] - read[0]) / (1000e9 * 0.5) * 1e3  # no less than its look-ups take longer
