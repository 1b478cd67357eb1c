"""Every table row-wise over all ranks: the baseline of FlexShard (arXiv 2301.02959, section 5)."""

from __future__ import annotations

from dataclasses import dataclass

from recsys_lab.plan import ShardingPlan
from recsys_lab.plan.memory import check_fits
from recsys_lab.schemes.row_blocks.placement import in_row_blocks
from recsys_lab.sharders.base import PlanInputs, Sharder


@dataclass(frozen=True, kw_only=True)
class RowWise(Sharder):
    """The rows of every table in equal blocks over all ranks."""

    def plan(self, inputs: PlanInputs) -> ShardingPlan:
        """Blocks of ceil(E / R) rows, as TorchRec cuts them: the last blocks may be short or empty.

        Raises PlanDoesNotFit if a rank cannot hold its blocks.
        """
        cluster = inputs.cluster
        placements = tuple(in_row_blocks(table, cluster.ranks) for table in inputs.tables)
        plan = ShardingPlan("torchrec_row_wise", cluster.hosts, cluster.ranks_per_host, inputs.tables, placements)
        check_fits(plan, inputs.workload, cluster)
        return plan
