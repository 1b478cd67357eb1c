"""The rows of a table over the ranks of one host; or of each column shard, over those of a host of its own."""

from __future__ import annotations

from collections.abc import Sequence

from recsys_lab.errors import UserError
from recsys_lab.plan.checks import check_all_columns, check_blocks, check_one_host, check_one_rank_each
from recsys_lab.plan.sharding_plan import Placement, ShardingPlan
from recsys_lab.schemes.row_blocks.placement import row_blocks
from recsys_lab.tables import Table

TABLE_ROW_WISE = "table_row_wise"
GRID_SHARD = "grid_shard"


def on_host(table: Table, ranks: Sequence[int]) -> Placement:
    """`ranks` of the host."""
    return Placement(table.name, TABLE_ROW_WISE, row_blocks(table, ranks))


def on_hosts(table: Table, columns: Sequence[tuple[Sequence[int], int, int]]) -> Placement:
    """Column shards (ranks of the host, first, one behind the last)."""
    shards = tuple(shard for ranks, start, stop in columns for shard in row_blocks(table, ranks, start, stop))
    return Placement(table.name, GRID_SHARD, shards)


def validate(where: str, table: Table, placement: Placement, plan: ShardingPlan) -> None:
    """Raises UserError."""
    shards, per_host = placement.shards, plan.ranks_per_host
    check_one_rank_each(where, shards)
    if placement.scheme == TABLE_ROW_WISE:
        check_all_columns(where, table, shards)
        check_one_host(where, shards, per_host)
    for host in {shard.ranks[0] // per_host for shard in shards}:
        own = [shard for shard in shards if shard.ranks[0] // per_host == host]
        ranks = range(host * per_host, (host + 1) * per_host)
        for columns in {(shard.col_start, shard.col_stop) for shard in own}:
            check_blocks(where, table.rows, [s for s in own if (s.col_start, s.col_stop) == columns], ranks)


def check_execution(placed: Sequence[tuple[Table, Placement]]) -> None:
    """Raises UserError for means that TorchRec gets wrong."""
    for table, placement in placed:
        if placement.scheme == GRID_SHARD and table.pooling == "mean":
            raise UserError(
                f"TorchRec computes mean pooling wrongly under {GRID_SHARD}",
                where=f"table {table.name}",
                remedy=f"use {TABLE_ROW_WISE}",
            )
