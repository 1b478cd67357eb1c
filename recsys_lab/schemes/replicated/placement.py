"""Every rank holds the table."""

from __future__ import annotations

from collections.abc import Sequence

from recsys_lab.errors import UserError
from recsys_lab.plan.checks import check_no_tier
from recsys_lab.plan.sharding_plan import Placement, Shard, ShardingPlan
from recsys_lab.tables import Table

DATA_PARALLEL = "data_parallel"


def on_every_rank(table: Table, ranks: Sequence[int]) -> Placement:
    return Placement(table.name, DATA_PARALLEL, (Shard(tuple(ranks), 0, table.rows, 0, table.dim),))


def validate(where: str, placement: Placement, plan: ShardingPlan) -> None:
    """One shard, on all ranks. Raises UserError."""
    shards = placement.shards
    check_no_tier(where, shards)
    if len(shards) != 1 or shards[0].ranks != tuple(range(plan.world_size)):
        raise UserError("a replicated table is one shard on every rank", where=where, given=f"{len(shards)} shards")
