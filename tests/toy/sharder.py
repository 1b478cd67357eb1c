"""Tables dealt to the local ranks of every host, the largest first, each to the rank that has least."""

from __future__ import annotations

from dataclasses import dataclass

from recsys_lab.plan import ShardingPlan
from recsys_lab.plan.memory import check_fits
from recsys_lab.sharders.base import PlanInputs, Sharder
from tests.toy import on_local_rank


@dataclass(frozen=True, kw_only=True)
class OnceAHost(Sharder):
    """`largest_first`: false deals tables in their order."""

    largest_first: bool = True

    def plan(self, inputs: PlanInputs) -> ShardingPlan:
        cluster, tables = inputs.cluster, inputs.tables
        held, placements = [0] * cluster.ranks_per_host, {}
        for table in sorted(tables, key=lambda t: -t.weight_bytes) if self.largest_first else tables:
            local = held.index(min(held))
            held[local] += table.weight_bytes
            placements[table.name] = on_local_rank(table, local, cluster.hosts, cluster.ranks_per_host)
        plan = ShardingPlan("toy", cluster.hosts, cluster.ranks_per_host, tables, tuple(placements[t.name] for t in tables))
        check_fits(plan, inputs.workload, cluster)
        return plan
