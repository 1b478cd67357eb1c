"""A table's rows in three tiers (arXiv 2301.02959, sections 4.4 and 4.5), each exchanged in its own way.

    replicated     looked up at home; gradients all-reduced over all ranks
    host-sharded   exchanged within the host; gradients all-reduced between peers
    row-sharded    exchanged over all ranks

What the tiers give for a pooled table is added up in memory in the step tiers.merge. That step also counts the sorting of its ids by tier.
Its gradient is taken apart in tiers.gradient.split. A sequence's rows only go to their places, which no step counts.
"""

from __future__ import annotations

from dataclasses import replace

from recsys_lab.plan.context import ID_BYTES, Context, behind, last_of
from recsys_lab.plan.sharding_plan import Placement
from recsys_lab.plan.steps import HOST_TIER, TIER, Step
from recsys_lab.schemes.replicated.lower import lower_replicated
from recsys_lab.schemes.row_blocks.lower import lower_row_blocks
from recsys_lab.tables import AccessStatistics, Table
from recsys_lab.tables.tiers import HOST_SHARDED, REPLICATED, TIERS

#: How often sorting an id out reads or writes a number as large as an id. There is one figure for all tiers, and one for each.
PASSES, PASSES_A_TIER = 36, 11
FP32_BYTES = 4


def lower_tiers(context: Context) -> tuple[list[Step], list[Step]]:
    """(input and forward, backward) steps, tier by tier. A table takes part in the tiers that hold rows of it."""
    ahead: list[Step] = []
    back: list[Step] = []
    columns: list[int] = []
    for tier in TIERS:
        part = tier_of(context, tier)
        if part.placed:
            tier_ahead, tier_back = (lower_replicated if tier == REPLICATED else lower_row_blocks)(part)
            ahead, back = ahead + tier_ahead, tier_back + back
            columns.append(part.output_columns)
    if context.is_sequence:
        return ahead, back
    return _in_memory(context, columns, ahead, back)


def _in_memory(context: Context, columns: list[int], ahead: list[Step], back: list[Step]) -> tuple[list[Step], list[Step]]:
    """The steps of the tiers, which give `columns` for a sample.

    With them come the steps that add up the parts and take the gradient apart.
    """
    part_columns, together = sum(columns), context.output_columns
    sorting = ID_BYTES * context.ids_per_sample * (PASSES + PASSES_A_TIER * len(columns))
    adding = FP32_BYTES * (3 * (part_columns - together) + 2 * together)  # two are read and one is written; then all side by side
    last = last_of([step for step in ahead if step.phase == "forward"], "")
    merge = context.in_memory("tiers.merge", "forward", context.batch * (sorting + adding), last)
    split = context.in_memory("tiers.gradient.split", "backward", context.batch * FP32_BYTES * 2 * part_columns, ("dense.backward",))
    return [*ahead, merge], [split, *behind(split, back)]


def tier_of(context: Context, tier: str) -> Context:
    """The tables' rows that are in `tier`, as tables of their own with the look-ups that go to them."""
    members: list[tuple[Table, Placement]] = []
    access = {}
    for table, placement in context.placed:
        shards = tuple(shard for shard in placement.shards if shard.tier == tier)
        rows = sum(shard.rows for shard in shards)
        if rows:
            begin = min(shard.row_start for shard in shards)
            members.append((table.with_rows(rows), replace(placement, shards=shards)))
            access[table.name] = context.access[table.name].between(begin, begin + rows)
    in_host = tier == HOST_SHARDED
    return replace(
        context,
        prefix=tier,
        role=HOST_TIER if in_host else TIER,
        within=context.hosts if in_host else (),
        averaged=in_host and context.plan.hosts > 1,
        placed=tuple(members),
        access=AccessStatistics(access),
    )
