"""In which of FlexShard's tiers the rows of a plan are: how often a row is there."""

from __future__ import annotations

from recsys_lab.plan.scheme import scheme_of
from recsys_lab.plan.sharding_plan import Placement, Shard
from recsys_lab.tables.tiers import TIERS


def tier_of_shard(placement: Placement, shard: Shard) -> str:
    """The tier of the shard's rows."""
    return shard.tier or scheme_of(placement).tier


def tier_rows(placement: Placement) -> dict[str, int]:
    """How many of the table's rows are in each tier. They lie one tier after the other, in this order."""
    rows = dict.fromkeys(TIERS, 0)
    for shard in placement.shards:
        if shard.col_start == 0:
            rows[tier_of_shard(placement, shard)] += shard.rows
    return rows


def is_alone(placement: Placement) -> bool:
    """Whether no row is on several ranks, so that the table can leave device memory."""
    return not is_tiered(placement) and all(len(shard.ranks) == 1 for shard in placement.shards)


def is_tiered(placement: Placement) -> bool:
    """Whether the table is placed row by row, each of its shards in a tier of its own."""
    return any(shard.tier for shard in placement.shards)
