"""A host's memory bounds what may leave its devices': the rest stays there as a whole."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from recsys_lab.base.store_names import AUTO, DISK_CACHED, HOST, HOST_CACHED
from recsys_lab.errors import PlanDoesNotFit
from recsys_lab.plan import ShardingPlan
from recsys_lab.plan.memory import bytes_of_ranks, check_fits
from recsys_lab.sharders.base import PlanInputs
from recsys_lab.sharders.neo import Neo4D
from recsys_lab.sharders.stores import Stores
from recsys_lab.sharders.torchrec_row_wise import RowWise
from recsys_lab.tables import AccessStatistics, Table, power_law_access
from tests.executor.sharded import FP32
from tests.plan.plans import workload
from tests.sharders.test_stores import cluster, planned

#: A row of 64 columns in FP32 with one state: 260 bytes. So 26, 260 and 52 GB; the first has most look-ups a row.
HOT, COLD, IDLE = (Table(name, rows, 64, (name,)) for name, rows in (("hot", 100_000_000), ("cold", 1_000_000_000), ("idle", 200_000_000)))
TABLES = (COLD, IDLE, HOT)
LENGTHS = {"hot": 8.0, "cold": 2.0, "idle": 1.0}
ACCESS = AccessStatistics({t.name: power_law_access(t.name, t.rows, LENGTHS[t.name], 1.05) for t in TABLES})
WORK = replace(workload(dense_parameters=0, activation_bytes_per_sample=0.0, sparse_optimizer="row_wise_adagrad"), batch_size=32_768)


def inputs_of(host_gb: float, device_gb: float, hosts: int = 1, disk: bool = True) -> PlanInputs:
    on = cluster("cuda", device_gb, hosts, 2)
    assert on.host is not None
    on = replace(on, host=replace(on.host, memory_gb=host_gb), disk=on.disk if disk else None, reserved_memory_share=0.0)
    return PlanInputs(TABLES, ACCESS, on, FP32, WORK)


def stores_of(plan: ShardingPlan) -> dict[str, str | None]:
    return {p.table: None if p.store is None else p.store.kind for p in plan.placements}


def beneath_gb(plan: ShardingPlan) -> list[float]:
    of_rank = bytes_of_ranks(plan, WORK).beneath
    return [sum(of_rank[host * 2 : host * 2 + 2]) / 1e9 for host in range(plan.hosts)]


def test_what_the_host_cannot_hold_stays_on_the_devices() -> None:
    """338 GB of tables, rows in caches included. In 340 all of them may leave; in 330 the hottest 26 stay, in 290 the idle 52 too."""
    wide, narrow = (planned(RowWise(), inputs_of(host_gb, 20.0), None, HOST_CACHED) for host_gb in (340.0, 330.0))
    assert set(stores_of(wide).values()) == {HOST_CACHED} and beneath_gb(wide) == [338.0]
    assert stores_of(narrow) == {"cold": HOST_CACHED, "idle": HOST_CACHED, "hot": None} and beneath_gb(narrow) == [312.0]
    wide, narrow = (planned(RowWise(), inputs_of(host_gb, 46.0), None, HOST_CACHED) for host_gb in (340.0, 290.0))
    assert stores_of(wide) == {"cold": HOST_CACHED, "idle": HOST_CACHED, "hot": None} and beneath_gb(wide) == [312.0]
    assert stores_of(narrow) == {"cold": HOST_CACHED, "idle": None, "hot": None} and beneath_gb(narrow) == [260.0]
    with pytest.raises(PlanDoesNotFit, match=r"take 260\.0 GB of a host.*given 250 GB"):
        planned(RowWise(), inputs_of(250.0, 46.0), None, HOST_CACHED)


def test_by_itself_a_plan_takes_host_and_devices_together_and_else_the_disk() -> None:
    """Two devices of 46 GB hold 92 of 338: a host of 290 is enough. 250 are too, but no tables of 88 GB; with 240 nothing would do."""
    assert stores_of(planned(RowWise(), inputs_of(290.0, 46.0), None, AUTO))["cold"] in (HOST, HOST_CACHED)
    for host_gb in (250.0, 240.0):
        assert set(stores_of(planned(RowWise(), inputs_of(host_gb, 46.0), None, AUTO)).values()) == {None, DISK_CACHED}
        with pytest.raises(PlanDoesNotFit):
            planned(RowWise(), inputs_of(host_gb, 46.0, disk=False), None, AUTO)


def test_neo_spreads_tables_over_hosts_with_little_room() -> None:
    """Two hosts of 150 GB: half of the cold table's 260 and at most 3 % more, as each shard of columns has the row's state."""
    plan = planned(Neo4D(), inputs_of(150.0, 30.0, hosts=2), None, HOST_CACHED)
    assert stores_of(plan)["hot"] is None and all(130.0 <= held <= 136.0 for held in beneath_gb(plan))
    plan = planned(Neo4D(), inputs_of(135.0, 30.0, hosts=2), None, HOST_CACHED)
    assert beneath_gb(plan) == [130.0, 130.0] and {p.scheme for p in plan.placements} == {"row_wise"}


def test_the_least_memory_has_what_must_stay() -> None:
    """A rank's half of the hot table, and places of 1.2 G cached rows on two ranks, 8 bytes each: 13 and 4.8 GB, beside caches."""
    inputs, stores = inputs_of(330.0, 500.0), Stores(store=HOST_CACHED)
    plan = RowWise().plan(inputs)
    least, whole = stores.span_gb(inputs, plan)
    assert 17.8 < least < 20.0 and 169.0 < whole < 170.0
    assert beneath_gb(stores.at(inputs, plan, least * 1.0001)) == [312.0]
    with pytest.raises(PlanDoesNotFit):
        stores.at(inputs, plan, least * 0.9999)


@settings(max_examples=40)
@given(st.floats(50.0, 400.0), st.floats(5.0, 200.0), st.sampled_from([AUTO, HOST, HOST_CACHED]), st.sampled_from([1, 2]))
def test_a_plan_fits_its_hosts_or_is_refused(host_gb: float, device_gb: float, store: str, hosts: int) -> None:
    inputs = inputs_of(host_gb, device_gb, hosts)
    try:
        plan = planned(RowWise(), inputs, None, store)
    except PlanDoesNotFit:
        assume(False)
    check_fits(plan, WORK, inputs.cluster)
    if DISK_CACHED not in stores_of(plan).values():
        assert max(beneath_gb(plan)) <= host_gb
