"""Any sharder, with what does not fit a rank's memory brought to the host's memory or a disk."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeAlias

from recsys_lab.errors import PlanDoesNotFit
from recsys_lab.plan import ShardingPlan
from recsys_lab.sharders.base import PlanInputs
from recsys_lab.sharders.stores.choice import memory_span_gb, with_caches
from recsys_lab.store_names import AUTO, DISK_CACHED, HOST, HOST_CACHED, LFU, NONE

#: The room that a sharder is given in turn, as a multiple of what a rank holds on average, until its plan can be made to fit.
ROOM = (1.25, 2.0, 4.0, math.inf)
Plans: TypeAlias = Callable[[PlanInputs], ShardingPlan]


@dataclass(frozen=True)
class Stores:
    """Where rows go that do not fit, under any sharder.

    `budget_gb`: what a rank may use of its device's memory; None: all. `store`, `policy`: as the sharder's keys have them. `in_flight`:
    batches whose rows are in use at a time.
    """

    budget_gb: float | None = None
    store: str = AUTO
    policy: str = LFU
    in_flight: int = 1

    def within(self, inputs: PlanInputs) -> PlanInputs:
        """`inputs` for a cluster with no more memory a rank than the budget."""
        if self.budget_gb is None or self.budget_gb >= inputs.cluster.device.memory_gb:
            return inputs
        return with_memory(inputs, self.budget_gb)

    def plan(self, inputs: PlanInputs, plan_of: Plans, refused: PlanDoesNotFit) -> ShardingPlan:
        """What `plan_of` plans where ranks have more memory, with caches so that it fits all the same. `refused`: why it does not without.

        Raises PlanDoesNotFit where no cache is small enough.
        """
        if not (kinds := self._kinds(inputs)):
            raise refused
        last = refused
        for room in ROOM:
            try:
                return with_caches(plan_of(_roomy(inputs, room)), inputs, kinds, self.policy, self.in_flight)
            except PlanDoesNotFit as error:
                last = error
        raise last

    def span_gb(self, inputs: PlanInputs, plan: ShardingPlan) -> tuple[float, float]:
        """The memory a rank that `plan`, whatever its stores, needs: with the smallest caches that work, and with all rows in it."""
        return memory_span_gb(plan.without_stores(), inputs, self._kinds(inputs), self.policy, self.in_flight)

    def at(self, inputs: PlanInputs, plan: ShardingPlan, memory_gb: float) -> ShardingPlan:
        """`plan`, whatever its stores, with those for so much memory a rank. Raises PlanDoesNotFit."""
        given = with_memory(inputs, memory_gb)
        return with_caches(plan.without_stores(), given, self._kinds(inputs), self.policy, self.in_flight)

    def _kinds(self, inputs: PlanInputs) -> tuple[str, ...]:
        """Stores that tables may have: the one that is named; else the nearest that the cluster has and that holds all of them."""
        if self.store != AUTO:
            return () if self.store == NONE else (self.store,)
        cluster, host = inputs.cluster, inputs.cluster.host
        if cluster.device.kind == "cuda" and host is not None and _bytes_of_tables(inputs) <= host.memory_gb * 1e9 * cluster.hosts:
            return (HOST, HOST_CACHED)
        return (DISK_CACHED,) if cluster.disk is not None or self.budget_gb is not None else ()


def with_memory(inputs: PlanInputs, memory_gb: float) -> PlanInputs:
    """`inputs` for a cluster whose ranks have so much memory."""
    return replace(inputs, cluster=replace(inputs.cluster, device=replace(inputs.cluster.device, memory_gb=memory_gb)))


def _bytes_of_tables(inputs: PlanInputs) -> int:
    """Weights and optimizer state of all tables."""
    return sum(table.weight_bytes + inputs.workload.table_state_bytes(table.rows, table.dim) for table in inputs.tables)


def _roomy(inputs: PlanInputs, room: float) -> PlanInputs:
    """The same with as much memory a rank as `room` times what it would hold on average, beside what it has."""
    cluster = inputs.cluster
    each = _bytes_of_tables(inputs) / cluster.world_size / 1e9
    more = each * (room if math.isfinite(room) else cluster.world_size)
    return with_memory(inputs, cluster.device.memory_gb + more / (1 - cluster.reserved_memory_share))
