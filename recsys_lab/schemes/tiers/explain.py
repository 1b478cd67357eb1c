"""A table that is placed row by row, in words."""

from __future__ import annotations

from recsys_lab.plan.sharding_plan import Placement, ShardingPlan
from recsys_lab.plan.tiers import tier_rows
from recsys_lab.tables import Table
from recsys_lab.units import human_count

TRAVELS = (
    "hot rows: gradients all-reduced over all ranks (replicated), or ids and rows inside the host and gradients between "
    "peers (host-sharded); cold rows: ids and rows between all ranks"
)


def words(table: Table, placement: Placement, most_bytes: str, plan: ShardingPlan) -> tuple[str, str]:
    """(where, why)."""
    rows = ", ".join(f"{human_count(n)} {tier.replace('_', '-')}" for tier, n in tier_rows(placement).items() if n)
    return f"row by row: {rows}", f"the more often a row is read, the more ranks have a copy; at most {most_bytes} a rank"
