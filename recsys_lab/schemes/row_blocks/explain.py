"""Rows in blocks over all ranks, in words."""

from __future__ import annotations

from recsys_lab.cluster import ranks_words
from recsys_lab.plan.sharding_plan import Placement, ShardingPlan
from recsys_lab.tables import Table
from recsys_lab.units import human_bytes

TRAVELS = "each id to the rank with its row; parts of pooled rows are summed over all ranks by reduce-scatter"


def words(table: Table, placement: Placement, most_bytes: str, plan: ShardingPlan) -> tuple[str, str]:
    """(where, why)."""
    size = human_bytes(table.weight_bytes)
    where = f"rows in equal blocks on {ranks_words(placement.ranks)}"
    return where, f"{size} are divided evenly, at most {most_bytes} a rank; every rank takes part in each look-up"
