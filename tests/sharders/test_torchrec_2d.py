"""sharder=torchrec_2d: which group sizes it considers, that it takes the cheapest that fits, and what trains here in its place."""

from __future__ import annotations

from dataclasses import replace

import pytest

from recsys_lab.errors import PlanDoesNotFit, UserError
from recsys_lab.plan import ShardingPlan
from recsys_lab.plan.memory import bytes_of_ranks
from recsys_lab.plan.validate import validate
from recsys_lab.schemes.replica_groups import NAMES, ReplicaGroups
from recsys_lab.sharders.base import PlanInputs
from recsys_lab.sharders.torchrec import TorchRec
from recsys_lab.sharders.torchrec_2d import TorchRec2D, cost_ms
from recsys_lab.tables import AccessStatistics, Table, power_law_access
from tests.executor.sharded import FP32, small_cluster
from tests.plan.plans import workload

#: Few rows that are read often: 200 bags of each in a sample's rows would be exchanged, were there one group.
HOT = tuple(Table(f"t{i}", 3000 + i, 64, (f"f{i}",)) for i in range(8))
#: Many rows that are seldom read.
COLD = tuple(replace(table, rows=100 * table.rows) for table in HOT)


def inputs_for(tables: tuple[Table, ...], hosts: int, ranks_per_host: int, memory_gb: float = 16.0, batch: int = 512) -> PlanInputs:
    access = AccessStatistics({t.name: power_law_access(t.name, t.rows, 1.0, 1.0) for t in tables})
    return PlanInputs(tables, access, small_cluster(hosts, ranks_per_host, memory_gb=memory_gb), FP32, workload(batch))


def groups_of(plan: ShardingPlan) -> tuple[int, bool] | None:
    if not any(placement.scheme in NAMES for placement in plan.placements):
        return None
    groups = ReplicaGroups.of(plan)
    return groups.size, groups.between_hosts


@pytest.mark.parametrize(("size", "between"), [(2, True), (2, False), (4, True), (4, False)])
def test_a_group_size_is_kept(size: int, between: bool) -> None:
    inputs = inputs_for(COLD, 2, 4)
    plan = TorchRec2D(sharding_group_size=size, use_inter_host_allreduce=between).plan(inputs)
    validate(plan)
    assert plan.sharder == "torchrec_2d" and groups_of(plan) == (size, between)
    total = sum(table.weight_bytes for table in COLD)
    assert sum(plan.weight_bytes_of_ranks()) >= total * 8 // size, "each group has a copy"


def test_one_group_is_torchrec_s_plan() -> None:
    inputs = inputs_for(COLD, 2, 2)
    assert TorchRec2D(sharding_group_size=4).plan(inputs) == replace(TorchRec().plan(inputs), sharder="torchrec_2d")


@pytest.mark.parametrize("tables", [HOT, COLD], ids=["hot", "cold"])
def test_it_takes_the_cheapest_that_fits(tables: tuple[Table, ...]) -> None:
    inputs = inputs_for(tables, 2, 2, batch=4096)
    each = [TorchRec2D(sharding_group_size=size, use_inter_host_allreduce=b).plan(inputs) for size in (2, 4) for b in (True, False)]
    assert cost_ms(TorchRec2D().plan(inputs), inputs) == min(cost_ms(plan, inputs) for plan in each)


def test_smaller_groups_need_more_memory() -> None:
    """Where each rank has room for two copies among four groups' worth of tables, only large groups fit."""
    room_gb = 3 * sum(table.weight_bytes for table in COLD) / 4 / 1e9
    inputs = inputs_for(COLD, 2, 2, memory_gb=room_gb)
    with pytest.raises(PlanDoesNotFit):
        TorchRec2D(sharding_group_size=2).plan(inputs)
    plan = TorchRec2D().plan(inputs)
    assert groups_of(plan) is None
    assert max(bytes_of_ranks(plan, inputs.workload).totals) <= room_gb * 1e9


def test_sizes_that_cannot_be() -> None:
    with pytest.raises(UserError) as error:
        TorchRec2D(sharding_group_size=3).plan(inputs_for(HOT, 2, 2))
    assert str(error.value).startswith("sharder.planner.sharding_group_size: no such size of a group of ranks; given 3; allowed: 2, 4")
    with pytest.raises(UserError, match="allowed: 2, 6"):  # three neighbours of two hosts would be one rank here, two there
        TorchRec2D(sharding_group_size=3, use_inter_host_allreduce=True).plan(inputs_for(HOT, 3, 2))
    with pytest.raises(UserError, match="sharding_group_size"):
        TorchRec2D(sharding_group_size=0).plan(inputs_for(HOT, 2, 2))


def test_what_trains_here_has_as_many_groups_where_it_can() -> None:
    named, here = inputs_for(COLD, 4, 4), inputs_for(COLD, 2, 2)

    def adapted(size: int, between: bool, to: PlanInputs = here) -> tuple[int, bool] | None:
        return groups_of(TorchRec2D(sharding_group_size=size, use_inter_host_allreduce=between).adapt(named, to))

    assert adapted(8, False) == (2, False)  # two groups here and there
    assert adapted(2, True) == (2, True)  # eight groups become two: a group of one rank would exchange nothing
    assert adapted(16, True) is None
    assert adapted(4, True, inputs_for(COLD, 1, 2)) is None
