"""Rows to and from stores, figure by figure: bytes, records, shards and look-ups of each rank."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from recsys_lab.plan import Shard
from recsys_lab.plan.steps import FETCH, WRITE_BACK, Step
from recsys_lab.plan.store import DISK_CACHED, DISK_HOST_CACHED, HOST, HOST_CACHED, HOST_PAGED, Store
from recsys_lab.plan.store_steps import Held, pages_touched, record_bytes, store_steps
from recsys_lab.tables import Table
from recsys_lab.tables.cache_hits import cache_hits
from tests.plan.plans import access, workload

TABLE = Table("t", 1000, 4, ("a",))
STATISTICS = access((TABLE, replace(TABLE, name="u", features=("b",))), {"a": 2.0, "b": 3.0})
WORK = workload(4, sparse_optimizer="row_wise_adagrad")
RECORD = 4 * 4 + 4
SAMPLES = 8


def held(store: Store | None, *ranks: int, rows: int = 1000, table: Table = TABLE, served: float = 1.0) -> Held:
    return Held(table, Shard(ranks, 0, rows, 0, 4), store, SAMPLES, served)


def steps(*of: Held, batch: float = float("inf")) -> tuple[list[Step], list[Step]]:
    return store_steps("p", of, STATISTICS, WORK, 2, ("ids",), 2, batch)


def test_a_record_has_the_weights_and_the_state_of_its_columns() -> None:
    assert record_bytes(TABLE, 4, WORK) == RECORD and record_bytes(TABLE, 2, WORK) == 2 * 4 + 4
    assert record_bytes(TABLE, 4, replace(WORK, sparse_optimizer="adagrad")) == 2 * 4 * 4


@pytest.mark.parametrize("kind", [HOST_CACHED, DISK_CACHED])
def test_a_cache_takes_misses_in_and_gives_as_many_up(kind: str) -> None:
    store = Store(kind, 0.1)
    before, behind = steps(held(store, 0), held(store, 0, rows=500, served=0.5), held(None, 1))
    back, fetch = before
    misses = 1.5 * cache_hits(STATISTICS["t"], store.policy, SAMPLES, 100.0, 2).misses  # a half shard has half of them
    assert behind == [] and (back.kind, fetch.kind) == (WRITE_BACK, FETCH)
    assert (back.after, fetch.after, back.phase, fetch.phase) == (("ids",), (back.name,), "input", "input")
    for step in before:
        assert step.bytes_of_rank == pytest.approx((misses * RECORD, 0.0)) and step.rows_of_rank == pytest.approx((misses, 0.0))
        assert (step.tables, step.store) == (("t",), kind)
    assert (fetch.shards_of_rank, fetch.asked_of_rank) == ((2.0, 0.0), (SAMPLES * 2.0 * 1.5, 0.0))
    assert back.shards_of_rank == back.asked_of_rank == back.missed_of_rank == () and fetch.missed_of_rank == pytest.approx((misses, 0.0))


def test_rows_in_host_memory_are_read_and_written_where_they_are() -> None:
    (fetch,), (back,) = steps(held(Store(HOST), 0), held(Store(HOST), 1, table=replace(TABLE, name="u", features=("b",)), rows=500))
    distinct = [STATISTICS[name].distinct_rows(SAMPLES) * share for name, share in (("t", 1.0), ("u", 0.5))]
    assert fetch.rows_of_rank == (SAMPLES * 2.0, SAMPLES * 3.0) and fetch.bytes_of_rank == (SAMPLES * 2.0 * 16, SAMPLES * 3.0 * 16)
    assert back.rows_of_rank == pytest.approx([2 * rows for rows in distinct])
    assert back.bytes_of_rank == pytest.approx([2 * rows * RECORD for rows in distinct])
    assert (fetch.phase, fetch.after, back.phase, back.after) == ("forward", ("ids",), "backward", ("p.update",))
    assert fetch.tables == ("t", "u") and fetch.asked_of_rank == ()


def test_ranks_that_do_the_same_share_an_entry() -> None:
    back, fetch = steps(held(Store(HOST_CACHED, 0.1), 0, 1))[0]
    assert {len(getattr(fetch, name)) for name in ("bytes_of_rank", "rows_of_rank", "shards_of_rank", "asked_of_rank")} == {1}
    assert len(back.rows_of_rank) == 1


def test_in_the_first_batches_rows_are_made_and_none_leaves() -> None:
    back, fetch = steps(held(Store(HOST_CACHED, 0.5), 0), batch=0)[0]
    assert back.bytes_of_rank == fetch.bytes_of_rank == fetch.rows_of_rank == (0.0,) and fetch.asked_of_rank == (16.0, 0.0)
    made = cache_hits(STATISTICS["t"], "lfu", SAMPLES, 500.0, 2, 0.0).first
    assert 0 < made == pytest.approx(fetch.missed_of_rank[0]) and fetch.missed_of_rank[1] == 0.0


def test_a_cache_of_every_row_writes_none_back() -> None:
    back, _ = steps(held(Store(DISK_CACHED, 1.0), 0))[0]
    assert back.bytes_of_rank == back.rows_of_rank == (0.0,)


def test_what_has_no_store_or_no_rows_moves_nothing() -> None:
    assert steps(held(None, 0), held(Store(HOST), 1, rows=0)) == ([], [])


def test_three_levels_are_a_cache_before_a_disk_and_one_before_the_host() -> None:
    """Rows leave the device, then the host; those that come pass both. A table beside it that the host alone caches shares the link."""
    store = Store(DISK_HOST_CACHED, 0.1, host_share=0.4)
    before, behind = steps(held(store, 0), held(Store(HOST_CACHED, 0.2), 1, rows=500, served=0.5))
    from_host, of_file = (cache_hits(STATISTICS["t"], "lfu", SAMPLES, cached, 2).misses for cached in (100.0, 400.0))
    beside = 0.5 * cache_hits(STATISTICS["t"], "lfu", SAMPLES, 200.0, 2).misses
    assert behind == [] and [(step.store, step.kind) for step in before] == [
        *((DISK_HOST_CACHED, kind) for kind in (WRITE_BACK, FETCH)),
        *((HOST_CACHED, kind) for kind in (WRITE_BACK, FETCH)),
    ]
    disk, link = before[1], before[3]
    assert link.after == (before[2].name, disk.name) and disk.after == (before[0].name,)
    assert disk.bytes_of_rank == pytest.approx((of_file * RECORD, 0.0)) and 0 < of_file < from_host
    assert link.bytes_of_rank == pytest.approx((from_host * RECORD, beside * RECORD))


@pytest.mark.parametrize(("rows", "record", "distinct"), [(10_000, 128, 300), (10_000, 1024, 5000), (1000, 5000, 77), (64, 64, 64)])
def test_pages_that_hold_a_batch_s_rows_are_those_of_rows_drawn_at_random(rows: int, record: int, distinct: int) -> None:
    """Rows lie one after another in pages of 4 KiB, or each in its own."""
    random = np.random.default_rng(1)
    touched = []
    for _ in range(200):
        drawn = random.choice(rows, distinct, replace=False)
        touched.append(len(np.unique(drawn // (4096 // record))) if record < 4096 else distinct * -(-record // 4096))
    assert pages_touched(distinct, rows, record) == pytest.approx(np.mean(touched), rel=0.01)


def test_unified_memory_moves_pages_both_ways_and_no_fewer_bytes_than_rows() -> None:
    (fetch,), (back,) = steps(held(Store(HOST_PAGED), 0), held(Store(HOST_PAGED), 1, rows=500))
    distinct = STATISTICS["t"].distinct_rows(SAMPLES)
    pages = [pages_touched(distinct, 1000, RECORD), pages_touched(distinct / 2, 500, RECORD)]
    for step in (fetch, back):
        assert step.rows_of_rank == pytest.approx(pages) and step.bytes_of_rank == pytest.approx([4096 * number for number in pages])
        assert step.store == HOST_PAGED and step.asked_of_rank == ()
    assert (fetch.phase, fetch.after, back.phase, back.after) == ("forward", ("ids",), "backward", ("p.update",))
    assert pages[0] * 4096 >= distinct * RECORD
