"""2D parallelism, TorchRec's DMPCollection: its planner's plan for a group of ranks, the same in every group (arXiv 2508.03854)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Annotated

from annotated_types import Interval
from pydantic import Strict

from recsys_lab.base.schema import check_fields
from recsys_lab.cluster import Cluster
from recsys_lab.errors import PlanDoesNotFit, UserError
from recsys_lab.plan import ShardingPlan
from recsys_lab.plan.lower import lower
from recsys_lab.plan.memory import check_fits
from recsys_lab.plan.steps import Step
from recsys_lab.schemes.replica_groups import BASES, NAMES, SUFFIX, ReplicaGroups
from recsys_lab.schemes.replica_groups.placement import in_each_group
from recsys_lab.schemes.replicated.placement import DATA_PARALLEL, on_every_rank
from recsys_lab.sharders.base import PlanInputs, Sharder
from recsys_lab.sharders.neo.costs import all_to_all_ms, latency_ms, ring_ms
from recsys_lab.sharders.options import KEY
from recsys_lab.sharders.torchrec import TorchRec
from recsys_lab.tables.spec import ELEMENT_BYTES
from recsys_lab.units import transfer_ms

#: What a table may have within a group. A host's part of a group has no exchange of its own here.
TYPES = [DATA_PARALLEL, *(name.removesuffix(SUFFIX) for name in NAMES)]


@dataclass(frozen=True, kw_only=True)
class TorchRec2D(Sharder):
    """Tables sharded within groups of ranks. Each group has a copy, and the copies are averaged.

    Attributes:
        sharding_group_size: ranks of a group; None: of the divisors of all ranks, the one whose exchanges and look-ups cost least, by
            bandwidths and latencies, of those that fit in memory. All ranks: one group, as sharder=torchrec.
        use_inter_host_allreduce: true: a group's ranks are neighbours, and copies are averaged across hosts. false: copies are
            neighbours, and averaged within hosts. None: what costs less.
    """

    sharding_group_size: Annotated[int, Strict(), Interval(ge=1, le=2**16)] | None = None
    use_inter_host_allreduce: bool | None = None

    def plan(self, inputs: PlanInputs) -> ShardingPlan:
        """Raises UserError for a size that does not divide the ranks evenly over hosts, PlanDoesNotFit if no plan fits."""
        check_fields(self, KEY)
        plans, refused = [], None
        for groups in self._candidates(inputs.cluster):
            try:
                plans.append(_plan_of(groups, inputs))
            except PlanDoesNotFit as error:
                refused = error
        if not plans:
            assert refused is not None
            raise refused
        return min(plans, key=lambda plan: cost_ms(plan, inputs)) if len(plans) > 1 else plans[0]

    def adapt(self, named: PlanInputs, here: PlanInputs) -> ShardingPlan:
        """As many groups as on the named cluster, or as there can be here with more than one rank each."""
        plan = self.plan(named)
        if not any(placement.scheme in NAMES for placement in plan.placements):
            return replace(self, sharding_group_size=here.cluster.world_size).plan(here)
        groups, ranks = ReplicaGroups.of(plan), here.cluster.world_size
        sizes = [g.size for g in _even_groups(here.cluster) if g.between_hosts == groups.between_hosts]
        size = next((size for size in sizes if ranks // size <= len(groups.groups)), ranks)
        return replace(self, sharding_group_size=size, use_inter_host_allreduce=groups.between_hosts).plan(here)

    def _candidates(self, cluster: Cluster) -> list[ReplicaGroups]:
        """The largest groups last: they need least memory."""
        allowed = [*_even_groups(cluster), ReplicaGroups(cluster.world_size, cluster.world_size, True)]
        between, size = self.use_inter_host_allreduce, self.sharding_group_size
        own = [one for one in allowed if between in (None, one.between_hosts) or one.size == cluster.world_size]
        chosen = [one for one in own if size in (None, one.size)]
        if not chosen:
            raise UserError(
                "no such size of a group of ranks",
                where=f"{KEY}.sharding_group_size",
                given=size,
                allowed=", ".join(map(str, dict.fromkeys(one.size for one in own))),
            )
        return chosen


def _even_groups(cluster: Cluster) -> Iterator[ReplicaGroups]:
    """Several groups of more than one rank, each with as many ranks on every host that it is on. The smallest first."""
    world, per_host = cluster.world_size, cluster.ranks_per_host
    for size in (size for size in range(2, world) if world % size == 0):
        for groups in (ReplicaGroups(world, size, True), ReplicaGroups(world, size, False)):
            run = size if groups.between_hosts else world // size
            if run % per_host == 0 or per_host % run == 0:
                yield groups


def _plan_of(groups: ReplicaGroups, inputs: PlanInputs) -> ShardingPlan:
    """TorchRec's plan for one of `groups`, in all of them. Raises PlanDoesNotFit."""
    cluster, tables = inputs.cluster, inputs.tables
    if groups.size == cluster.world_size:
        return replace(TorchRec().plan(inputs), sharder="torchrec_2d")
    within = replace(inputs, cluster=_with_room(part_of(cluster, groups.groups[0]), inputs))
    of_group = TorchRec(sharding_types=TYPES).plan(within)
    placements = [
        in_each_group(p, groups) if p.scheme in BASES else on_every_rank(table, cluster.ranks)
        for table, p in zip(tables, of_group.placements)
    ]
    plan = ShardingPlan("torchrec_2d", cluster.hosts, cluster.ranks_per_host, tables, tuple(placements))
    check_fits(plan, inputs.workload, cluster)
    return plan


def _with_room(part: Cluster, inputs: PlanInputs) -> Cluster:
    """`part` with less memory: copies have a gradient of all rows too, of which TorchRec knows nothing."""
    workload = inputs.workload
    tables = sum(table.weight_bytes + workload.table_state_bytes(table.rows, table.dim) for table in inputs.tables)
    gradients = ELEMENT_BYTES[workload.replica_format] * sum(table.parameters for table in inputs.tables)
    room = max(part.usable_memory_bytes - workload.dense_bytes, 0)
    taken_gb = room * gradients / (tables + gradients) / (1 - part.reserved_memory_share) / 1e9
    return replace(part, device=replace(part.device, memory_gb=part.device.memory_gb - taken_gb))


def cost_ms(plan: ShardingPlan, inputs: PlanInputs) -> float:
    """Of an iteration's look-ups, updates and exchanges of tables, one after another: bytes over bandwidth, and latencies."""
    steps = lower(plan, inputs.access, inputs.precision, inputs.workload).steps
    return sum(_step_ms(step, inputs.cluster) for step in steps if step.tables)


def _step_ms(step: Step, cluster: Cluster) -> float:
    size = max(*step.bytes_of_rank, *step.received_of_rank, 0.0)
    if not step.is_collective:
        return transfer_ms(size, cluster.device.memory_bandwidth_gb_s)
    part = part_of(cluster, step.groups[0])
    rounds = {"all_reduce": 2.0, "all_gather": float(part.world_size)}.get(step.kind, 1.0)
    ms = all_to_all_ms(size, part) if step.kind == "all_to_all" else ring_ms(rounds * size, part)
    return ms + latency_ms(part) / 2


def part_of(cluster: Cluster, ranks: tuple[int, ...]) -> Cluster:
    """The cluster that those ranks are. They are as many on each host that they are on."""
    hosts = len({cluster.host_of(rank) for rank in ranks})
    return cluster.reshaped(hosts, len(ranks) // hosts)
