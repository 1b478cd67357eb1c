"""Any sharder, with what does not fit a rank's memory brought to the host's memory or a disk."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TypeAlias

from recsys_lab.base.store_names import AUTO, DISK_CACHED, DISK_HOST_CACHED, HOST, HOST_CACHED, LFU, NONE
from recsys_lab.errors import HotRankDoesNotFit, PlanDoesNotFit
from recsys_lab.plan import ShardingPlan
from recsys_lab.plan.memory import check_fits
from recsys_lab.sharders.base import PlanInputs
from recsys_lab.sharders.stores.choice import bytes_of_tables, host_share, memory_span_gb, store_with, with_caches, with_share

#: The room that a sharder is given in turn, until its plan can be made to fit. It is a multiple of what a rank holds on average.
ROOM = (1.25, 2.0, 4.0, math.inf)
#: The last one is all that a rank holds. Tables are then spread so evenly that hosts with little room hold them.
EVEN = 1.02
Plans: TypeAlias = Callable[[PlanInputs], ShardingPlan]


@dataclass(frozen=True)
class Stores:
    """Where rows go that do not fit, under any sharder.

    `budget_gb`: what a rank may use of its device's memory; None: all. `store`, `policy`: as the sharder's keys have them. `in_flight`:
    batches whose rows are in use at a time. `cached_share`: of the rows of each table that can leave memory; None: as many as fit.
    `host_share`: of disk_host_cached, the rows in the hosts' memory; None: as many as fit.
    """

    budget_gb: float | None = None
    store: str = AUTO
    policy: str = LFU
    in_flight: int = 1
    cached_share: float | None = None
    host_share: float | None = None

    def within(self, inputs: PlanInputs) -> PlanInputs:
        """`inputs` for a cluster with no more memory a rank than the budget."""
        if self.budget_gb is None or self.budget_gb >= inputs.cluster.device.memory_gb:
            return inputs
        return with_memory(inputs, self.budget_gb)

    def at_share(self, inputs: PlanInputs, plan_of: Plans) -> ShardingPlan:
        """What `plan_of` plans, with caches of `cached_share`. Ranks have more memory where the tables do not fit as a whole.

        Raises PlanDoesNotFit.
        """
        assert self.cached_share is not None
        store = store_with(self.store, self.cached_share, self.policy, self._of_host(inputs))
        for given in (inputs, *_rooms(inputs)):
            try:
                plan = with_share(plan_of(given), inputs, store, self.in_flight)
                check_fits(plan, inputs.workload, inputs.cluster)
                return plan
            except PlanDoesNotFit as error:
                last = error
        raise last

    def plan(self, inputs: PlanInputs, plan_of: Plans, refused: PlanDoesNotFit) -> ShardingPlan:
        """What `plan_of` plans where ranks have more memory, with caches so that it fits all the same. `refused`: why it does not without.

        Raises PlanDoesNotFit where no cache is small enough, a share of cached rows was named, or hot rows alone make a rank too small:
        another plan spreads them, and caches only where a store is named.
        """
        if self.cached_share is not None or (isinstance(refused, HotRankDoesNotFit) and self.store == AUTO):
            raise refused
        last = refused
        for kinds in self._kinds(inputs):
            for number, given in enumerate(_rooms(inputs)):
                try:
                    return with_caches(
                        plan_of(given), inputs, kinds, self.policy, self.in_flight, self.budget_gb is not None, self._of_host(inputs)
                    )
                except PlanDoesNotFit as error:
                    last = error if number < len(ROOM) else last
        raise last

    def span_gb(self, inputs: PlanInputs, plan: ShardingPlan) -> tuple[float, float]:
        """The memory a rank that `plan` needs, whatever its stores.

        The least is with the smallest caches that work, the most with all rows in it.
        """
        return memory_span_gb(
            plan.without_stores(), inputs, self._kinds_of(plan, inputs), self.policy, self.in_flight, self._of_host(inputs)
        )

    def at(self, inputs: PlanInputs, plan: ShardingPlan, memory_gb: float) -> ShardingPlan:
        """`plan`, whatever its stores, with those for so much memory a rank. Raises PlanDoesNotFit."""
        given = with_memory(inputs, memory_gb)
        return with_caches(
            plan.without_stores(), given, self._kinds_of(plan, inputs), self.policy, self.in_flight, host_share=self._of_host(inputs)
        )

    def _of_host(self, inputs: PlanInputs) -> float:
        if self.store != DISK_HOST_CACHED:
            return 0.0
        return host_share(inputs) if self.host_share is None else self.host_share

    def _kinds_of(self, plan: ShardingPlan, inputs: PlanInputs) -> tuple[str, ...]:
        """Of those that tables may have, the first that the plan's are of."""
        held = {placement.store.kind for placement in plan.placements if placement.store is not None}
        return next((kinds for kinds in self._kinds(inputs) if held <= set(kinds)), ())

    def _kinds(self, inputs: PlanInputs) -> tuple[tuple[str, ...], ...]:
        """Stores that tables may have, in the order in which they are tried.

        A named store is the only one. Else the hosts' memory comes first, where it holds all tables, alone or with the devices. The disk
        comes after it.
        """
        if self.store != AUTO:
            return () if self.store == NONE else ((self.store,),)
        cluster, host, tables = inputs.cluster, inputs.cluster.host, bytes_of_tables(inputs)
        of_hosts = host.memory_gb * 1e9 * cluster.hosts if cluster.device.kind == "cuda" and host is not None else -math.inf
        nearest = ((HOST, HOST_CACHED),) if tables <= of_hosts + cluster.usable_memory_bytes * cluster.world_size else ()
        disk = cluster.disk is not None or self.budget_gb is not None
        return (*nearest, (DISK_CACHED,)) if disk and tables > of_hosts else nearest


def with_memory(inputs: PlanInputs, memory_gb: float) -> PlanInputs:
    """`inputs` for a cluster whose ranks have so much memory."""
    return replace(inputs, cluster=replace(inputs.cluster, device=replace(inputs.cluster.device, memory_gb=memory_gb)))


def _rooms(inputs: PlanInputs) -> Iterator[PlanInputs]:
    """The same with more memory a rank than it has: `ROOM` of what it would hold on average beside what it has, then `EVEN` in all."""
    cluster = inputs.cluster
    left = 1 - cluster.reserved_memory_share
    each = bytes_of_tables(inputs) / cluster.world_size / 1e9
    for room in ROOM:
        more = each * (room if math.isfinite(room) else cluster.world_size)
        yield with_memory(inputs, cluster.device.memory_gb + more / left)
    yield with_memory(inputs, max(cluster.device.memory_gb, EVEN * each / left))
