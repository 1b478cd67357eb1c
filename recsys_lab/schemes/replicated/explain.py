"""A replicated table in words."""

from __future__ import annotations

from recsys_lab.plan.sharding_plan import Placement, ShardingPlan
from recsys_lab.tables import Table
from recsys_lab.units import human_bytes

TRAVELS = "no ids or rows; the gradients of all rows are all-reduced"


def words(table: Table, placement: Placement, most_bytes: str, plan: ShardingPlan) -> tuple[str, str]:
    """(where, why)."""
    size, gradient = human_bytes(table.weight_bytes), human_bytes(4 * table.parameters)
    return f"a copy on each of {plan.world_size} ranks", f"{size} a rank is the price of looking up at home; {gradient} are all-reduced"
