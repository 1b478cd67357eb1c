"""Which stores are tried for a plan and in which memory its sharder plans, by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from recsys_lab.base.store_names import AUTO, DISK_CACHED, HOST, HOST_CACHED, LFU, LRU, NONE
from recsys_lab.cluster import Disk, Host
from recsys_lab.errors import PlanDoesNotFit
from recsys_lab.plan import ShardingPlan
from recsys_lab.plan.store import Store
from recsys_lab.schemes.row_blocks.placement import in_row_blocks
from recsys_lab.schemes.whole.placement import on_rank
from recsys_lab.sharders.base import PlanInputs
from recsys_lab.sharders.stores import Stores
from recsys_lab.sharders.stores import planner as rooms
from recsys_lab.tables import AccessStatistics, Table, power_law_access
from tests.executor.sharded import FP32, small_cluster
from tests.plan.plans import workload

#: 16 and 8 GB, without optimizer state.
A, B = Table("a", 10**9, 4, ("fa",)), Table("b", 5 * 10**8, 4, ("fb",))
ACCESS = AccessStatistics({t.name: power_law_access(t.name, t.rows, 2.0, 0.5) for t in (A, B)})
WORK = workload(1, 0, sparse_optimizer="sgd", activation_bytes_per_sample=0.0)
DISK = Disk("disk", 1000.0, 2.0, 1.0, 5e5, "test")
BOTH = (HOST, HOST_CACHED)


def inputs_of(memory_gb: float, host_gb: float | None = 100.0, disk: bool = True, kind: str = "cuda", hosts: int = 1) -> PlanInputs:
    host = None if host_gb is None else Host("host", host_gb, 100.0, "test")
    on = replace(small_cluster(hosts, 2, kind, memory_gb), host=host, disk=DISK if disk else None, reserved_memory_share=0.0)
    return PlanInputs((A, B), ACCESS, on, FP32, WORK)


def test_a_budget_is_the_memory_of_a_rank_where_it_has_more() -> None:
    inputs = inputs_of(10.0)
    assert all(Stores(budget).within(inputs) is inputs for budget in (None, 10.0, 11.0))
    assert Stores(9.0).within(inputs) == inputs_of(9.0)
    assert Stores() == Stores(None, AUTO, LFU, 1)


@pytest.mark.parametrize(
    ("inputs", "budget", "kinds"),
    [
        (inputs_of(4.0, 24.0), None, (BOTH,)),  # the host holds all 24 GB
        (inputs_of(4.0, 23.0), None, (BOTH, (DISK_CACHED,))),  # with the devices
        (inputs_of(4.0, 16.0), None, (BOTH, (DISK_CACHED,))),  # with all of them
        (inputs_of(4.0, 15.0), None, ((DISK_CACHED,),)),
        (inputs_of(4.0, 12.0, hosts=2), None, (BOTH,)),  # two hosts do
        (inputs_of(4.0, 16.0, disk=False), None, (BOTH,)),
        (inputs_of(4.0, 16.0, disk=False), 4.0, (BOTH, (DISK_CACHED,))),  # a budget: whatever disk there is
        (inputs_of(4.0, 15.0, disk=False), None, ()),
        (inputs_of(4.0, None), None, ((DISK_CACHED,),)),
        (inputs_of(4.0, 100.0, kind="cpu"), None, ((DISK_CACHED,),)),  # ranks have the host's memory already
        (inputs_of(4.0, 100.0, disk=False, kind="cpu"), None, ()),
    ],
)
def test_which_stores_are_tried(inputs: PlanInputs, budget: float | None, kinds: tuple[tuple[str, ...], ...]) -> None:
    assert Stores(budget)._kinds(inputs) == kinds
    assert Stores(budget, HOST)._kinds(inputs) == ((HOST,),) and Stores(budget, NONE)._kinds(inputs) == ()


def test_the_rooms_of_a_sharder() -> None:
    """24 GB are 12 a rank. Beside 3 GB that it has: 5/4, 2 and 4 times that, and all of it. Last 102 % of 12 alone, or what it has."""
    memories = [given.cluster.device.memory_gb for given in rooms._rooms(inputs_of(3.0))]
    assert memories == pytest.approx([3 + 15, 3 + 24, 3 + 48, 3 + 24, 12.24])
    assert [given.cluster.device.memory_gb for given in rooms._rooms(inputs_of(13.0))][-1] == 13
    reserving = inputs_of(3.0)
    reserving = replace(reserving, cluster=replace(reserving.cluster, reserved_memory_share=0.25))
    memories = [given.cluster.device.memory_gb for given in rooms._rooms(reserving)]
    assert memories == pytest.approx([3 + 20, 3 + 32, 3 + 64, 3 + 32, 16.32])


def plan_with(*placements: Store | None) -> ShardingPlan:
    a, b = in_row_blocks(A, range(2)), on_rank(B, 1)
    return ShardingPlan("by_hand", 1, 2, (A, B), (replace(a, store=placements[0]), replace(b, store=placements[1])))


def test_rooms_are_tried_in_turn_for_one_store_after_another() -> None:
    """What is reported is the last refusal in a room of its own size: in 102 % of the tables' bytes another is no news."""
    seen: list[float] = []

    def refuses(inputs: PlanInputs) -> ShardingPlan:
        seen.append(inputs.cluster.device.memory_gb)
        raise PlanDoesNotFit(f"call {len(seen)}", where="test", given="1", allowed="2")

    refused = PlanDoesNotFit("without stores", where="test", given="1", allowed="2")
    inputs = inputs_of(4.0, 16.0)
    with pytest.raises(PlanDoesNotFit, match="call 9"):
        Stores().plan(inputs, refuses, refused)
    assert seen == pytest.approx([4 + 15, 4 + 24, 4 + 48, 4 + 24, 12.24] * 2)
    with pytest.raises(PlanDoesNotFit, match="without stores"):
        Stores(store=NONE).plan(inputs, refuses, refused)

    def third(given: PlanInputs) -> ShardingPlan:
        return plan_with(None, None) if given.cluster.device.memory_gb == pytest.approx(4 + 48) else refuses(given)

    found = Stores(store=HOST, policy=LRU).plan(inputs_of(4.0), third, refused)
    assert {placement.store for placement in found.placements} == {Store(HOST, 0.0, LRU)}


def test_a_plan_for_other_memory_keeps_to_the_stores_that_it_has() -> None:
    inputs, stores = inputs_of(4.0, 16.0), Stores(policy=LRU)
    host, cached, disk = Store(HOST), Store(HOST_CACHED, 0.5), Store(DISK_CACHED, 0.5)
    for placements in ((None, None), (host, None), (None, cached), (host, cached)):
        assert stores._kinds_of(plan_with(*placements), inputs) == BOTH
    assert stores._kinds_of(plan_with(disk, None), inputs) == (DISK_CACHED,)
    assert stores._kinds_of(plan_with(disk, host), inputs) == ()
    small, whole = stores.span_gb(inputs, plan_with(disk, None))
    assert whole == pytest.approx(16, rel=1e-6)  # rank 1: half of `a` and all of `b`
    assert small == pytest.approx(4, rel=1e-3)  # places of 4 bytes for as many rows, and a few of these
    for memory in (small * 1.001, whole * 1.001):
        made = stores.at(inputs, plan_with(disk, disk), memory)
        held = {placement.store for placement in made.placements}
        assert held == {None} if memory > whole else {store.kind for store in held if store is not None} == {DISK_CACHED}
        assert all(store is None or store.policy == LRU for store in held)
