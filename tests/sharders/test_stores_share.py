"""`sharder.cached_share`: one share of the rows in the plan, in the simulator and in what trains."""

from __future__ import annotations

import re

import pytest

from recsys_lab.errors import PlanDoesNotFit, UserError
from recsys_lab.experiment import Experiment, of_words
from recsys_lab.plan import ShardingPlan
from recsys_lab.plan.memory import bytes_of_ranks
from recsys_lab.plan.store import DISK_CACHED, DISK_HOST_CACHED, HOST, HOST_CACHED, HOST_PAGED, LFU, LRU, Store
from recsys_lab.plan.store_steps import record_bytes
from recsys_lab.planning import Planned, plan_for, plan_here, price
from recsys_lab.sharders.stores.choice import host_share
from recsys_lab.store_curve import store_curve
from recsys_lab.tables.cache_hits import cache_hits

WORDS = (
    *("model=dcn", "data=random", "data.rows_per_table=[2000000,1000000,40]", "optimizer=row_wise_adagrad", "logger=none"),
    *("cluster=h100x8", "cluster.hosts=1", "cluster.ranks_per_host=2", "launcher.hosts=1", "launcher.ranks_per_host=2"),
    *("sharder=neo_4d", "sharder.planner.schemes=[table_wise]", "simulate.batch_size=64", "data.batch_size=128"),
)


def planned(*more: str) -> tuple[Experiment, Planned]:
    experiment = of_words([*WORDS, *more], where="tests")
    return experiment, plan_for(experiment, experiment.open_data())


@pytest.mark.parametrize("kind", [HOST_CACHED, DISK_CACHED])
def test_each_table_whose_cache_works_has_the_share(kind: str) -> None:
    """The table of 40 rows would need nearly all of them."""
    experiment, plan = planned("sharder.cached_share=0.2", f"sharder.store={kind}", "sharder.cache_policy=lru")
    assert [placement.store for placement in plan.plan.placements] == [Store(kind, 0.2, LRU)] * 2 + [None]
    assert [one.cached_share for one in plan.stores] == [0.2, 0.2] and all(one.least_share <= 0.2 for one in plan.stores)
    assert plan_here(experiment, experiment.open_data(), plan, None) is plan  # what trains here has the same stores
    assert store_curve(experiment, plan, price(plan, experiment.profile)[0]) is None


def test_memory_and_traffic_follow_from_the_share_by_hand() -> None:
    _, plan = planned("sharder.cached_share=0.25", "sharder.store=host_cached")
    table, access = plan.tables[0], plan.access[plan.tables[0].name]
    (rank,) = plan.plan.placements[0].shards[0].ranks
    whole = planned()[1]
    (elsewhere,) = whole.plan.placements[0].shards[0].ranks
    assert rank == elsewhere
    size, away = record_bytes(table, table.dim, plan.workload), table.rows - table.rows // 4
    less = bytes_of_ranks(whole.plan, plan.workload).lasting[rank] - bytes_of_ranks(plan.plan, plan.workload).lasting[rank]
    other = [t for t, p in plan.plan.by_table.values() if p.store is not None and p.shards[0].ranks == (rank,) and t is not table]
    assert less == sum((t.rows - t.rows // 4) * size - t.rows * 8 for t in (table, *other)) and away * size > table.rows * 8
    samples, in_flight = 2 * plan.workload.batch_size, plan.executor.in_flight
    missed = cache_hits(access, "lfu", samples, table.rows / 4, in_flight).misses
    assert plan.stores[0].bytes_moved == pytest.approx(2 * missed * size)
    fetch = next(step for step in plan.steps.steps if step.kind == "fetch")
    assert fetch.bytes_on(rank) >= missed * size * 0.999


def test_a_larger_share_moves_fewer_rows() -> None:
    moved = [planned(f"sharder.cached_share={share}", "sharder.store=host_cached")[1].stores[0].bytes_moved for share in (0.1, 0.3, 1.0)]
    assert moved[0] > moved[1] > moved[2] == 0


def test_three_levels_have_two_shares_and_pay_the_link_and_the_disk() -> None:
    experiment, plan = planned("sharder.cached_share=0.1", "sharder.host_share=0.5", "sharder.store=disk_host_cached")
    assert [placement.store for placement in plan.plan.placements] == [Store(DISK_HOST_CACHED, 0.1, LFU, 0.5)] * 2 + [None]
    assert ShardingPlan.from_json(plan.plan.to_json()).fingerprint == plan.plan.fingerprint
    table, access, in_flight = plan.tables[0], plan.access[plan.tables[0].name], plan.executor.in_flight
    missed = [cache_hits(access, LFU, 2 * plan.workload.batch_size, share * table.rows, in_flight).misses for share in (0.1, 0.5)]
    assert plan.stores[0].bytes_moved == pytest.approx(2 * sum(missed) * record_bytes(table, table.dim, plan.workload))
    assert plan.stores[0].host_share == 0.5
    with pytest.raises(PlanDoesNotFit, match="cluster.host.memory_gb"):
        planned("sharder.cached_share=0.1", "sharder.host_share=0.5", "sharder.store=disk_host_cached", "cluster.host.memory_gb=0.03")


def test_without_a_share_the_host_holds_what_its_memory_has_room_for() -> None:
    words = ("sharder.memory_budget_gb=0.03", "sharder.store=disk_host_cached", "cluster.host.memory_gb=0.06")
    _, plan = planned(*words)
    stores = [placement.store for placement in plan.plan.placements if placement.store is not None]
    room = host_share(plan.inputs)
    assert stores and 0 < room < 1
    assert all(store.kind == DISK_HOST_CACHED and store.host_share == max(room, store.cached_share) for store in stores)


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (["sharder.cached_share=0.2"], r"sharder.store: .*given auto with sharder.cached_share=0.2; allowed: host_cached"),
        (["sharder.cached_share=0.2", "sharder.store=host"], "sharder.store: .*given host with"),
        (["sharder.host_share=0.2", "sharder.store=host_cached"], "sharder.store=disk_host_cached"),
        (["sharder.host_share=0.2", "sharder.cached_share=0.3", "sharder.store=disk_host_cached"], "allowed: 0.3 to 1"),
        (["sharder.cached_share=0", "sharder.store=host_cached"], "sharder.cached_share"),
        (["sharder.cached_share=0.2", "sharder.store=host_cached", "sharder.memory_budget_gb=1"], "name one of them"),
        (["sharder.cached_share=1e-6", "sharder.store=host_cached"], "sharder.cached_share: no table leaves memory.*given 1e-06"),
        (["sharder.cached_share=0.5", "sharder.store=host_cached", "sharder.planner.schemes=[data_parallel]"], "no table leaves memory"),
    ],
)
def test_a_share_that_means_nothing_is_refused(more: list[str], says: str) -> None:
    with pytest.raises(UserError) as refused:
        planned(*more)
    assert re.search(says, str(refused.value)), str(refused.value)


def test_pages_of_unified_memory_move_more_than_rows_and_a_software_cache_less() -> None:
    """Neo, section 5.2: rows are few and far between, so that whole pages move for single ones."""
    words = ("sharder.memory_budget_gb=0.06", "simulate.batch_size=4096", "data.batch_size=8192")
    moved = {}
    for store in (HOST_PAGED, HOST, HOST_CACHED):
        _, plan = planned(*words, f"sharder.store={store}")
        kinds = {placement.store.kind for placement in plan.plan.placements if placement.store is not None}
        moved[store] = sum(step.bytes_on(rank) for step in plan.steps.steps if step.store for rank in (0, 1))
        assert kinds == {store} and moved[store] == pytest.approx(sum(one.bytes_moved for one in plan.stores))

    assert moved[HOST_PAGED] > 10 * moved[HOST] and moved[HOST] > moved[HOST_CACHED]
