"""Figures of tables whose rows lie beneath device memory, by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from recsys_lab.base.store_names import places_of
from recsys_lab.plan import Placement, Shard, ShardingPlan
from recsys_lab.plan.explain import explain
from recsys_lab.plan.store import DISK_CACHED, HOST, HOST_CACHED, Store
from recsys_lab.plan.store_facts import Files, _batches, _sum_of_batches, expected_counts, files_of, store_facts
from recsys_lab.tables import Table
from recsys_lab.tables.cache_hits import cache_hits
from tests.plan.plans import access, workload

TABLES = (Table("near", 50, 4, ("a",)), Table("host", 100, 4, ("b",)), Table("cached", 100, 4, ("c",)), Table("disk", 200, 4, ("d",)))
ACCESS = access(TABLES, {"a": 1.0, "b": 1.0, "c": 1.0, "d": 1.0})
WORK = workload(10, sparse_optimizer="sgd")  # which has no state: a record is a row of 16 bytes


def placed(table: Table, store: Store | None, edge: int) -> Placement:
    """By rows on two ranks: `edge` of them on the first."""
    shards = (Shard((0,), 0, edge, 0, table.dim), Shard((1,), edge, table.rows, 0, table.dim))
    return Placement(table.name, "row_wise", shards, store=store)


STORES = (None, Store(HOST), Store(HOST_CACHED, 0.5), Store(DISK_CACHED, 0.25))
PLAN = ShardingPlan("mine", 1, 2, TABLES, tuple(placed(table, store, table.rows // 2) for table, store in zip(TABLES, STORES)))


def test_rows_of_a_cache_by_rank() -> None:
    """Each rank has half of the rows, so half of the hits and misses of 20 samples."""
    found = expected_counts(PLAN, ACCESS, 10, 1, 0, 3)
    assert list(found) == ["cached", "disk"] and found == expected_counts(PLAN, ACCESS, 10, 1, 1, 3)
    for table, cached in ((TABLES[2], 50.0), (TABLES[3], 50.0)):
        batches = [cache_hits(ACCESS[table.name], "lfu", 20, cached, 1, float(number)) for number in range(3)]
        hits, rows = sum(one.hits for one in batches) / 3, sum(one.rows for one in batches) / 3
        assert found[table.name] == pytest.approx({"hits_expected": hits / 2, "misses_expected": (rows - hits) / 2})
    only = replace(PLAN, placements=(*PLAN.placements[:3], Placement("disk", "table_wise", (Shard((1,), 0, 200, 0, 4),), store=STORES[3])))
    assert list(expected_counts(only, ACCESS, 10, 1, 0, 3)) == ["cached"]
    assert expected_counts(only, ACCESS, 10, 1, 1, 3)["disk"]["hits_expected"] == pytest.approx(2 * found["disk"]["hits_expected"])


def test_files_hold_the_rows_that_left_a_cache() -> None:
    leaves = sum(cache_hits(ACCESS["disk"], "lfu", 20, 50.0, 1, float(number)).leaves for number in range(3))
    uneven = replace(PLAN, placements=(*PLAN.placements[:3], placed(TABLES[3], STORES[3], 50)))
    early, late = (files_of(uneven, ACCESS, WORK, 1, number) for number in (3, 10**6))
    assert 0 < leaves < 200 and early.bytes == pytest.approx((leaves / 4 * 16, leaves * 3 / 4 * 16)) and early.rewritten == (0.0, 0.0)
    assert late.bytes == pytest.approx((places_of(50) * 16, places_of(150) * 16)) == files_of(uneven, ACCESS, WORK, 1, math.inf).bytes


def test_a_full_file_is_written_where_records_are_free() -> None:
    """150 of a table's 200 rows have left its cache of 50. So of 314 records of a file 164 are free, and of two files as many in each."""
    whole = replace(PLAN, placements=(*PLAN.placements[:3], Placement("disk", "table_wise", (Shard((1,), 0, 200, 0, 4),), store=STORES[3])))
    assert places_of(200) == 314
    assert files_of(whole, ACCESS, WORK, 1, math.inf).rewritten == pytest.approx((0.0, 314 / 164))
    halves = files_of(PLAN, ACCESS, WORK, 1, math.inf).rewritten
    assert places_of(100) == 189 and halves == pytest.approx((189 / (189 - 75),) * 2)


def test_records_further_apart_than_a_page_are_written_alone() -> None:
    """Of a row of 16 KiB and its neighbours at most a page is written."""
    wide = Table("disk", 2_000_000, 4096, ("d",))
    placement = Placement("disk", "table_wise", (Shard((0,), 0, wide.rows, 0, wide.dim),), store=Store(DISK_CACHED, 0.001))
    full = files_of(ShardingPlan("mine", 1, 1, (wide,), (placement,)), access((wide,), {"d": 1.0}), WORK, 1, math.inf)
    assert full.rewritten == pytest.approx(((4 * 4096 + 4096) / (4 * 4096),))


def test_files_in_which_all_rows_are_cached_stay_empty() -> None:
    cached = replace(PLAN, placements=(*PLAN.placements[:3], placed(TABLES[3], Store(DISK_CACHED, 1.0), 50)))
    assert files_of(cached, ACCESS, WORK, 1, math.inf) == Files((0.0, 0.0), (0.0, 0.0))
    assert files_of(cached, ACCESS, WORK, 1, 10**6).bytes == pytest.approx((0.0, 0.0), abs=1e-6)


def test_facts() -> None:
    host, cached, disk = store_facts(PLAN, ACCESS, WORK, 1)
    assert (host.table, host.kind, host.cached_share, host.least_share, host.hit_rate) == ("host", HOST, 0.0, 0.0, 0.0)
    distinct = 100 * (1 - 0.99**20)
    assert host.bytes_moved == pytest.approx(20 * 16 + 2 * distinct * 16)  # each look-up in FP32; each row there and back
    for facts, table, rows in ((cached, TABLES[2], 50.0), (disk, TABLES[3], 50.0)):
        seen = cache_hits(ACCESS[table.name], "lfu", 20, rows, 1)
        assert (facts.table, facts.policy, facts.cached_share) == (table.name, "lfu", rows / table.rows)
        assert facts.hit_rate == seen.rate and facts.bytes_moved == pytest.approx(2 * seen.misses * 16)
        assert 0 < facts.least_share <= 1


@pytest.mark.parametrize(("steps", "batches"), [(0, [0.0]), (1, [0.0]), (3, [0.0, 1.0, 2.0])])
def test_all_of_a_few_batches_are_looked_at(steps: int, batches: list[float]) -> None:
    assert _batches(steps) == batches and len(_batches(10**9)) == 24 and _batches(10**9)[-1] == 1e9 - 1


def test_batches_between_are_on_a_straight_line() -> None:
    assert _sum_of_batches([0.0], [7.0]) == 7.0 and _sum_of_batches([0.0, 1.0], [7.0, 5.0]) == 12.0
    assert _sum_of_batches([0.0, 1.0, 5.0], [1.0, 2.0, 6.0]) == sum((1.0, 2.0, 3.0, 4.0, 5.0, 6.0))


def test_stores_in_words() -> None:
    (line,) = [line for line in explain(replace(PLAN, placements=(*PLAN.placements[:1], placed(TABLES[1], Store(HOST), 50), *(
        replace(one, store=None) for one in PLAN.placements[2:])))) if "cached" in line]  # fmt: skip
    assert line.startswith("1 table (1.6 kB) has its rows in ") and line.endswith("; no row is cached.")
    shares = (Store(HOST_CACHED, 0.5), Store(HOST_CACHED, 0.125), Store(HOST_CACHED, 0.25))
    several = [placed(table, store, 10) for table, store in zip(TABLES[1:], shares)]
    (line,) = [line for line in explain(replace(PLAN, placements=(PLAN.placements[0], *several))) if "caches" in line]
    assert line.startswith("3 tables (6.4 kB) have their rows in ") and line.endswith("; the ranks' memory caches 12.5 % to 50 % of them.")
    one = replace(PLAN, placements=(*(replace(p, store=None) for p in PLAN.placements[:3]), PLAN.placements[3]))
    (line,) = [line for line in explain(one) if "caches" in line]
    assert line.startswith("1 table (3.2 kB) has its rows in ") and line.endswith("; the ranks' memory caches 25 % of them.")
