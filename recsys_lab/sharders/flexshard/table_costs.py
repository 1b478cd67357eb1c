"""What a whole table costs in its tiers, sequence or pooled: the figures that a plan is judged by.

A pooled feature sends one row a sample, however long it is (figure 1 of FlexShard, right column). Sharded by row, TorchRec makes a partial
sum for every sample of the global batch and reduce-scatters these. The exchange is dense, and the same however few rows or look-ups remain.
So a tier of a pooled table costs that as soon as it has a row. Taking rows out of it saves ids and look-ups only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from recsys_lab.sharders.flexshard.allocate import Split, Trade
from recsys_lab.sharders.flexshard.costs import TIER_COSTS, Costs, Setting
from recsys_lab.sharders.flexshard.reasons import Choice
from recsys_lab.tables import AccessStatistics, Table, TableAccess
from recsys_lab.tables.tiers import HOST_SHARDED, REPLICATED, ROW_SHARDED
from recsys_lab.units import transfer_ms


def table_costs(table: Table, access: TableAccess, split: Split, setting: Setting) -> dict[str, Costs]:
    """Costs of each tier's part of `table`.

    A pooled table's reduce-scatter is priced as half an all-reduce over all ranks. Within a host it is priced at the all-to-all's
    bandwidth.
    """
    ends = [0, split.replicated, split.replicated + split.in_host, table.rows]
    costs_of_tier = {}
    for (tier, strategy), start, stop in zip(TIER_COSTS.items(), ends, ends[1:]):
        if stop == start:
            costs_of_tier[tier] = Costs()
            continue
        costs = strategy(stop - start, table.dim, access.length_of(start, stop), setting)
        costs_of_tier[tier] = costs if table.pooling == "none" else _pooled(costs, table, tier, setting)
    return costs_of_tier


def _pooled(costs: Costs, table: Table, tier: str, setting: Setting) -> Costs:
    """`costs` with the dynamic parts of pooled rows in place of every look-up's."""
    own = setting.batch_size * len(table.features) * table.dim  # elements of a rank's own pooled rows
    holders = {REPLICATED: 0, HOST_SHARDED: setting.ranks_per_host, ROW_SHARDED: setting.world_size}[tier]
    bandwidth = setting.bandwidths.a2a_intra_gb_s if tier == HOST_SHARDED else 2 * setting.bandwidths.ar_global_gb_s
    return replace(
        costs,
        dynamic_memory_bytes=(1 + holders) * own * setting.buffer_bytes,
        dynamic_communication_ms=transfer_ms(holders * own * setting.summed_bytes, bandwidth),
    )


def choice_of(
    name: str, tables: Sequence[Table], access: AccessStatistics, splits: Sequence[Split], trade: Trade, memory_bytes: float
) -> Choice:
    """What all of `tables` cost a rank with these `splits`, one a table. `memory_bytes`: of the fullest rank, as our executor has it."""
    costs, look_ups, exchanged = Costs(), 0.0, 0.0
    for table, split in zip(tables, splits):
        costs = sum(table_costs(table, access[table.name], split, trade.setting).values(), costs)
        look_ups += access[table.name].length_of(0, table.rows)
        exchanged += access[table.name].length_of(split.replicated + split.in_host, table.rows)
    replicated, in_host = sum(split.replicated for split in splits), sum(split.in_host for split in splits)
    others = trade.rows.total - replicated - in_host
    share = exchanged / look_ups if look_ups else 0.0
    return Choice(name, replicated, in_host, others, float(memory_bytes), float(costs.communication_ms), share)
