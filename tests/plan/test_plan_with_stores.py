"""Plans with rows in the host's memory or in files: their blocks, bytes, words and facts, by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from recsys_lab.base.store_names import places_of
from recsys_lab.plan import Placement, Shard, ShardingPlan
from recsys_lab.plan.explain import explain
from recsys_lab.plan.memory import bytes_of_ranks
from recsys_lab.plan.sharding_plan import even_blocks
from recsys_lab.plan.store import DISK_CACHED, HOST, HOST_CACHED, LFU, LRU, Store
from recsys_lab.plan.store_facts import Files, expected_counts, files_of, store_facts
from recsys_lab.tables import Table
from recsys_lab.tables.cache_hits import cache_hits
from tests.plan.plans import access, plan, workload

BIG = Table("big", 1000, 4, ("a",))
TABLES = (BIG, replace(BIG, name="host", features=("b",)), replace(BIG, name="plain", features=("c",)))
WORK = workload(4, sparse_optimizer="row_wise_adagrad", activation_bytes_per_sample=0.0, dense_parameters=0)
LENGTHS = {"a": 2.0, "b": 3.0, "c": 1.0}
RECORD = 4 * 4 + 4  # bytes: four weights and the state of a row


def stored(*stores: Store | None) -> ShardingPlan:
    """The tables on rank 0, with these stores."""
    placements = tuple(Placement(t.name, "table_wise", (Shard((0,), 0, 1000, 0, 4),), store) for t, store in zip(TABLES, stores))
    return ShardingPlan("by_hand", 1, 2, TABLES[: len(stores)], placements)


THREE = (Store(DISK_CACHED, 0.1, LFU), Store(HOST), None)


def test_blocks_are_as_many_as_were_asked_for() -> None:
    assert even_blocks(5, 4) == [(0, 2), (2, 4), (4, 5), (5, 5)] and even_blocks(4, 1) == [(0, 4)]


def test_a_placement_without_a_store_has_no_such_key() -> None:
    data = stored(*THREE).to_json()
    assert ["store" in one for one in data["placements"]] == [True, True, False]
    assert ShardingPlan.from_json(data) == stored(*THREE)


@pytest.mark.parametrize("policy", [LFU, LRU])
def test_bytes_of_a_rank_with_stores_by_hand(policy: str) -> None:
    memory = bytes_of_ranks(stored(Store(DISK_CACHED, 0.1, policy), Store(HOST), None), WORK)
    assert memory.weights == ((100 + 0 + 1000) * 16, 0) and memory.optimizer_state == ((100 + 0 + 1000) * 4, 0)
    assert memory.places == (1000 * 4 * (2 if policy == LFU else 1), 0)
    assert memory.beneath == (2000 * RECORD, 0)


def test_a_sentence_for_each_kind_of_store() -> None:
    both = stored(Store(HOST_CACHED, 0.1), Store(HOST_CACHED, 0.25), None)
    assert "2 tables (32.0 kB) have their rows in the hosts' memory; the ranks' memory caches 10 % to 25 % of them." in explain(both)
    one = stored(Store(HOST_CACHED, 0.1), Store(HOST), None)
    assert "1 table (16.0 kB) has its rows in the hosts' memory; the ranks' memory caches 10 % of them." in explain(one)
    assert any("no row is cached" in line for line in explain(one))


def test_facts_of_each_store_by_hand() -> None:
    statistics, samples = access(TABLES, LENGTHS), 4 * 2
    cached, host = store_facts(stored(*THREE), statistics, WORK, 1)
    seen = cache_hits(statistics["big"], LFU, samples, 100.0, 1)
    assert (cached.table, cached.hit_rate, cached.bytes_moved) == (
        "big",
        pytest.approx(0.1, abs=0.01),
        pytest.approx(2 * seen.misses * RECORD),
    )
    distinct = 1000 * (1 - math.exp(-0.003 * samples))
    assert (host.hit_rate, host.bytes_moved) == (0.0, pytest.approx(samples * 3 * 16 + 2 * distinct * RECORD, rel=0.01))
    assert list(expected_counts(stored(*THREE), statistics, 4, 1, 0, 5)) == ["big"]
    assert expected_counts(stored(*THREE), statistics, 4, 1, 1, 5) == {}  # a rank without shards
    files = files_of(stored(*THREE), statistics, WORK, 1, 10**6)
    assert files.bytes == (places_of(1000) * RECORD, 0.0) and files.rewritten[0] > 1 and files.rewritten[1] == 0.0
    assert files_of(stored(None, None, None), statistics, WORK, 1, 100) == Files((0.0, 0.0), (0.0, 0.0))


def test_the_same_plan_without_stores_has_no_facts() -> None:
    assert store_facts(plan(("table_wise",), 1, 2, TABLES), access(TABLES, LENGTHS), WORK, 1) == ()
