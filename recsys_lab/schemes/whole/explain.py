"""Whole tables and column shards in words."""

from __future__ import annotations

from recsys_lab.cluster import ranks_words
from recsys_lab.plan.sharding_plan import Placement, ShardingPlan
from recsys_lab.tables import Table
from recsys_lab.units import human_bytes

TABLE_TRAVELS = "ids to its rank, pooled rows back, by all-to-all"
COLUMNS_TRAVEL = "ids to each column shard's rank, pooled columns back, by all-to-all"
HOST_COLUMNS_TRAVEL = "ids to each column shard's rank on one host, pooled columns back, by all-to-all"


def table_words(table: Table, placement: Placement, most_bytes: str, plan: ShardingPlan) -> tuple[str, str]:
    """(where, why) of a whole table."""
    return f"whole on rank {placement.ranks[0]}", f"{human_bytes(table.weight_bytes)} fit on one rank, so ids and rows travel once"


def column_words(table: Table, placement: Placement, most_bytes: str, plan: ShardingPlan) -> tuple[str, str]:
    """(where, why) of column shards."""
    columns = len({shard.col_start for shard in placement.shards})
    where = f"{columns} column shards on {ranks_words(placement.ranks)}"
    return where, f"bytes and look-ups are divided, at most {most_bytes} a rank; ids are sent {columns} times"
