"""What a whole table costs in its tiers, sequence or pooled: the figures that a plan is judged by.

A pooled feature sends one row a sample, however long it is (figure 1 of FlexShard, right column). Sharded by row, TorchRec makes a
partial sum for every sample of the global batch and reduce-scatters them: dense, the same however few rows or look-ups are left. So a
tier of a pooled table costs that as soon as it has a row, and taking rows out of it saves ids and look-ups only.
"""

from __future__ import annotations

from dataclasses import replace

from recsys_lab.sharders.flexshard.allocate import Split
from recsys_lab.sharders.flexshard.costs import TIER_COSTS, Costs, Setting
from recsys_lab.tables import Table, TableAccess
from recsys_lab.units import transfer_ms


def table_costs(table: Table, access: TableAccess, split: Split, setting: Setting) -> dict[str, Costs]:
    """Costs of each tier's part of `table`. A pooled table's reduce-scatter is priced as half an all-reduce over all ranks, and within
    a host at the all-to-all's bandwidth."""
    ends = [0, split.replicated, split.replicated + split.host_sharded, table.rows]
    found = {}
    for (tier, strategy), start, stop in zip(TIER_COSTS.items(), ends, ends[1:]):
        if stop == start:
            found[tier] = Costs()
            continue
        costs = strategy(stop - start, table.dim, access.length_of(start, stop), setting)
        found[tier] = costs if table.pooling == "none" else _pooled(costs, table, tier, setting)
    return found


def _pooled(costs: Costs, table: Table, tier: str, setting: Setting) -> Costs:
    """`costs` with the dynamic parts of pooled rows in place of every look-up's."""
    own = setting.batch_size * len(table.features) * table.dim  # elements of a rank's own pooled rows
    holders = {"replicated": 0, "host_sharded": setting.ranks_per_host, "row_sharded": setting.world_size}[tier]
    bandwidth = setting.bandwidths.a2a_intra_gb_s if tier == "host_sharded" else 2 * setting.bandwidths.ar_global_gb_s
    return replace(
        costs,
        dynamic_memory_bytes=(1 + holders) * own * setting.dtype_bytes,
        dynamic_communication_ms=transfer_ms(holders * own * (setting.forward_bytes + setting.backward_bytes), bandwidth),
    )
