"""Every table row-wise over all ranks: the baseline of FlexShard (arXiv 2301.02959, section 5)."""

from __future__ import annotations

from dataclasses import dataclass

from recsys_lab.plan import Placement, Shard, ShardingPlan
from recsys_lab.plan.memory import check_fits
from recsys_lab.sharders.base import PlanInputs, Sharder
from recsys_lab.tables import Table


@dataclass(frozen=True, kw_only=True)
class RowWise(Sharder):
    """The rows of every table in equal blocks over all ranks."""

    def plan(self, inputs: PlanInputs) -> ShardingPlan:
        """Blocks of ceil(E / R) rows, as TorchRec cuts them: the last blocks may be short or empty.

        Raises PlanDoesNotFit if a rank cannot hold its blocks.
        """
        cluster = inputs.cluster
        placements = tuple(Placement(table.name, "row_wise", row_blocks(table, cluster.ranks)) for table in inputs.tables)
        plan = ShardingPlan("torchrec_row_wise", cluster.hosts, cluster.ranks_per_host, inputs.tables, placements)
        check_fits(plan, inputs.workload, cluster)
        return plan


def row_blocks(table: Table, ranks: tuple[int, ...]) -> tuple[Shard, ...]:
    """`table` cut into one block of whole rows a rank. Five rows on four ranks are blocks of 2, 2, 1 and 0."""
    block = -(-table.rows // len(ranks))
    starts = [min(i * block, table.rows) for i in range(len(ranks) + 1)]
    return tuple(Shard((rank,), start, stop, 0, table.dim) for rank, start, stop in zip(ranks, starts, starts[1:]))
