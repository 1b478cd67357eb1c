"""flexshard: a table's rows in three tiers (arXiv 2301.02959, sections 4.4 and 4.5), each exchanged in its own way.

replicated     looked up at home; gradients all-reduced over all ranks
host_sharded   exchanged within the host; gradients all-reduced between peers
row_sharded    exchanged over all ranks
"""

from __future__ import annotations

from dataclasses import replace

from recsys_lab.plan.lower.context import Context
from recsys_lab.plan.lower.replicated import lower_replicated
from recsys_lab.plan.lower.row_blocks import lower_row_blocks
from recsys_lab.plan.sharding_plan import TIERS, Placement
from recsys_lab.plan.steps import Step
from recsys_lab.tables import AccessStatistics, Table


def lower_tiers(context: Context) -> tuple[list[Step], list[Step]]:
    """(input and forward, backward) steps, tier by tier. A table takes part in the tiers that hold rows of it."""
    ahead: list[Step] = []
    back: list[Step] = []
    for tier in TIERS:
        part = tier_of(context, tier)
        if part.placed:
            there, home = (lower_replicated if tier == "replicated" else lower_row_blocks)(part)
            ahead, back = ahead + there, home + back
    return ahead, back


def tier_of(context: Context, tier: str) -> Context:
    """The tables' rows that are in `tier`, as tables of their own with the look-ups that go to them."""
    placed: list[tuple[Table, Placement]] = []
    access = {}
    for table, placement in context.placed:
        shards = tuple(shard for shard in placement.shards if shard.tier == tier)
        rows = sum(shard.rows for shard in shards)
        if rows:
            begin = min(shard.row_start for shard in shards)
            placed.append((table.with_rows(rows), replace(placement, shards=shards)))
            access[table.name] = context.access[table.name].between(begin, begin + rows)
    return replace(context, scheme=tier, placed=tuple(placed), access=AccessStatistics(access))
