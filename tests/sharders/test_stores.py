"""Every sharder of conf/sharder brings its plan within a budget, or says what budget would do."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recsys_lab.base.store_names import DISK_CACHED, HOST, HOST_CACHED, LFU, LRU, NONE, POLICIES
from recsys_lab.cluster import Cluster, Disk, Host
from recsys_lab.config.schema import build
from recsys_lab.errors import PlanDoesNotFit
from recsys_lab.plan import ShardingPlan
from recsys_lab.plan.lower import lower
from recsys_lab.plan.memory import bytes_of_ranks, missing_bytes
from recsys_lab.plan.store import Store
from recsys_lab.plan.store_facts import store_facts
from recsys_lab.plan.tiers import is_tiered
from recsys_lab.plan.validate import validate
from recsys_lab.sharders.base import PlanInputs, Sharder
from recsys_lab.sharders.stores import Stores
from recsys_lab.sharders.stores.choice import STORE_MS, _ms
from recsys_lab.sharders.torchrec_row_wise import RowWise
from recsys_lab.tables import AccessStatistics, Table, power_law_access
from recsys_lab.tables.cache_hits import cache_hits
from tests.executor.sharded import FP32, small_cluster
from tests.plan.plans import workload
from tests.sharders.test_every_sharder import SHARDERS, chosen

TABLES = tuple(Table(f"t{i}", rows, 16, (f"f{i}",)) for i, rows in enumerate([300_000, 40, 70_000, 500, 120_000, 9]))
ACCESS = AccessStatistics({t.name: power_law_access(t.name, t.rows, 2.0, 1.1) for t in TABLES})
WORK = replace(workload(), batch_size=32)


def cluster(kind: str, memory_gb: float, hosts: int = 1, ranks_per_host: int = 2) -> Cluster:
    one = small_cluster(hosts, ranks_per_host)
    device = replace(one.device, kind=kind, memory_gb=memory_gb, host_link_gb_s=25.0)
    host, disk = Host("host", 64.0, 100.0, "test"), Disk("disk", 1000.0, 2.0, 1.0, 5e5, "test")
    return replace(one, device=device, host=host, disk=disk)


def inputs_on(where: Cluster, sharder: str = "torchrec_row_wise") -> PlanInputs:
    config, _ = chosen(sharder)
    towers = build(config.towers).towers(TABLES, where) if "towers" in config else ()
    return PlanInputs(TABLES, ACCESS, where, FP32, WORK, towers)


def planned(sharder: Sharder, inputs: PlanInputs, *stores: object) -> ShardingPlan:
    """As `planning` does it."""
    rows = Stores(*stores)  # type: ignore[arg-type]
    within = rows.within(inputs)
    try:
        return sharder.plan(within)
    except PlanDoesNotFit as refused:
        return rows.plan(within, sharder.plan, refused)


def check(plan: ShardingPlan, inputs: PlanInputs, budget_gb: float) -> None:
    """It fits, each cache holds the rows of a batch, and rows on their way are as the steps have them."""
    validate(plan)
    assert missing_bytes(bytes_of_ranks(plan, WORK), Stores(budget_gb).within(inputs).cluster)[0] <= 0
    facts = store_facts(plan, ACCESS, WORK, 1)
    assert all(one.kind == HOST or one.cached_share >= one.least_share for one in facts)
    assert all(p.store is None for p in plan.placements if is_tiered(p) or any(len(s.ranks) > 1 for s in p.shards))
    moved = [s for s in lower(plan, ACCESS, FP32, WORK).steps if s.store]
    total = sum(b * (plan.world_size if len(s.bytes_of_rank) == 1 else 1) for s in moved for b in s.bytes_of_rank)
    assert total == pytest.approx(sum(one.bytes_moved for one in facts), rel=1e-6)
    assert ShardingPlan.from_json(plan.to_json()).fingerprint == plan.fingerprint


def test_where_the_page_cache_serves_reads_bytes_that_are_written_count_more() -> None:
    """A disk with slow requests and slow writes: without them, the wide table is the dearer one."""
    tables = (Table("narrow", 200_000, 4, ("f0",)), Table("wide", 12_000, 256, ("f1",)))
    access = AccessStatistics({t.name: power_law_access(t.name, t.rows, 2.0, 0.6) for t in tables})
    shares = []
    for cached in (None, 1e7):
        drive = Disk("disk", 1000.0, 2.0, 0.01, 2e3, "test", cached)
        inputs = replace(inputs_on(replace(cluster("cpu", 0.008, 1, 1), disk=drive)), tables=tables, access=access)
        plan = planned(RowWise(), inputs, None, DISK_CACHED)
        shares.append({p.table: 1.0 if p.store is None else p.store.cached_share for p in plan.placements})
    assert shares[0]["narrow"] > shares[1]["narrow"] and shares[0]["wide"] < shares[1]["wide"]


def test_what_rows_on_their_way_cost_by_hand() -> None:
    """A link of 25 GB/s carries 25 MB a ms. From the host each look-up is read, and each row that changes is read and written."""
    inputs, table, access = inputs_on(cluster("cuda", 1.0)), TABLES[0], ACCESS["t0"]
    read, changed = 64 * 2.0 * 16 * 4, 2 * access.distinct_rows(64) * 68
    assert _ms(table, Store(HOST), inputs, 64, 68, 2, 1) == pytest.approx(2 * STORE_MS + (read + changed) / 25e6)
    misses = cache_hits(access, LFU, 64, 30_000.0, 1).misses
    assert _ms(table, Store(HOST_CACHED, 0.1, LFU), inputs, 64, 68, 2, 1) == pytest.approx(2 * STORE_MS + 2 * misses * 68 / 25e6)
    assert _ms(table, None, inputs, 64, 68, 2, 1) == 0.0


@pytest.mark.parametrize("sharder", SHARDERS)
@pytest.mark.parametrize("kind", ["cpu", "cuda"])
def test_every_sharder_keeps_a_budget(sharder: str, kind: str) -> None:
    _, planner = chosen(sharder)
    whole = inputs_on(cluster(kind, 16.0, 2, 2), sharder)
    fits = planned(planner, whole)
    assert not fits.has_stores and fits.fingerprint == planner.plan(whole).fingerprint
    tables = sum(t.weight_bytes + WORK.table_state_bytes(t.rows, t.dim) for t in TABLES)
    budget = (max(bytes_of_ranks(fits, WORK).buffers) + 0.5 * tables / 4) / 1e9  # half of the tables, evenly divided
    try:
        small = planned(planner, whole, budget)
    except PlanDoesNotFit as error:  # FlexShard's rows are placed one by one, and none of them leaves the memory
        assert sharder.startswith("flexshard"), str(error)
        return
    check(small, whole, budget)
    kinds = {p.store.kind for p in small.placements if p.store is not None}
    assert kinds and kinds <= ({DISK_CACHED} if kind == "cpu" else {HOST, HOST_CACHED})


@settings(max_examples=25)
@given(st.floats(0.004, 0.04), st.sampled_from(POLICIES), st.sampled_from([1, 2]), st.sampled_from(["auto", HOST_CACHED, DISK_CACHED]))
def test_any_budget_is_kept_or_refused_with_one_that_works(budget: float, policy: str, in_flight: int, store: str) -> None:
    inputs = inputs_on(cluster("cuda", 16.0))
    try:
        plan = planned(RowWise(), inputs, budget, store, policy, in_flight)
    except PlanDoesNotFit as error:
        enough = re.search(r"allowed: ([\d.]+) GB or more", str(error))
        assert enough and float(enough[1]) > budget
        plan, budget = planned(RowWise(), inputs, float(enough[1]), store, policy, in_flight), float(enough[1])
    check(plan, inputs, budget)
    assert all(p.store is None or p.store.policy == policy for p in plan.placements)


def test_more_memory_moves_fewer_rows() -> None:
    inputs = inputs_on(cluster("cpu", 16.0))
    moved = []
    for budget in (0.012, 0.016, 0.02, 0.024, 0.03):
        plan = planned(RowWise(), inputs, budget, "auto", LRU)
        moved.append(sum(one.bytes_moved for one in store_facts(plan, ACCESS, WORK, 1)))
    assert moved == sorted(moved, reverse=True) and moved[0] > 2 * moved[-1], moved


def test_without_stores_or_without_room_for_them_the_plan_is_refused() -> None:
    inputs = inputs_on(cluster("cuda", 16.0))
    with pytest.raises(PlanDoesNotFit, match="the plan lacks"):
        planned(RowWise(), inputs, 0.01, NONE)
    bare = replace(inputs, cluster=replace(inputs.cluster, host=None, disk=None, device=replace(inputs.cluster.device, memory_gb=0.01)))
    with pytest.raises(PlanDoesNotFit, match="the plan lacks"):
        planned(RowWise(), bare)


def test_rows_in_two_parts_are_read_from_the_host_as_the_kernels_read_them() -> None:
    inputs = inputs_on(cluster("cuda", 16.0))
    tables = tuple(replace(table, dtype="split_bf16") for table in TABLES)
    check(planned(RowWise(), replace(inputs, tables=tables), 0.02, HOST), inputs, 0.02)
