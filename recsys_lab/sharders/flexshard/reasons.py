"""Why a plan of FlexShard is as it is: where each tier begins and what decided it, what the next-best plans cost, what would flip it."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

from recsys_lab.cluster import Cluster
from recsys_lab.plan import ShardingPlan, Workload
from recsys_lab.plan.tiers import tier_rows as tier_rows_of
from recsys_lab.precision import Precision
from recsys_lab.schemes.tiers import FLEXSHARD
from recsys_lab.sharders.flexshard.allocate import Split, Trade
from recsys_lab.sharders.flexshard.costs import Costs, Setting, break_point, data_parallel, flex, row_wise
from recsys_lab.sharders.flexshard.flips import flips_of
from recsys_lab.sharders.flexshard.planner import Options, split_for, splits_of, trade_of
from recsys_lab.sharders.flexshard.table_costs import table_costs
from recsys_lab.sharders.flexshard.told import ALL_ROWS, Boundary, Choice, Reasons
from recsys_lab.tables import AccessStatistics, Table
from recsys_lab.units import GB

#: How much more memory the alternative of that name may use, as a share of what row-wise tables take.
MORE_MEMORY = 0.1
Decided = tuple[str, float | None]  # what decided, and the break-point's p if it was one
BUDGET_SPENT: Decided = ("the memory budget is spent", None)


def reasons(
    plan: ShardingPlan,
    tables: tuple[Table, ...],
    access: AccessStatistics,
    cluster: Cluster,
    precision: Precision,
    workload: Workload,
    *,
    tiers: int,
    goal: str = "memory_neutral",
    extra_memory_gb: float = 0.0,
    rule: str = "paper",
    replica_multiplier: float | None = None,
    bandwidths: dict[str, float] | None = None,
    align: bool = False,
    force: dict[str, str] | None = None,
) -> Reasons:
    """Why `plan`, which the planner made of the same arguments, is as it is."""
    options = Options(tiers, goal, extra_memory_gb, rule, replica_multiplier, bandwidths, align, force)
    placed = [table for table in tables if plan.by_table[table.name][1].scheme == FLEXSHARD]
    trade = trade_of(placed, access, cluster, precision, workload, options)
    split = split_for(trade, options)

    def choice(name: str, splits: list[Split]) -> Choice:
        costs, look_ups, far = Costs(), 0.0, 0.0
        for table, own in zip(placed, splits):
            parts = table_costs(table, access[table.name], own, trade.setting)
            costs = sum(parts.values(), costs)
            cold = table.rows - own.replicated - own.host_sharded
            look_ups += access[table.name].length_of(0, table.rows)
            far += access[table.name].length_of(table.rows - cold, table.rows)
        hot, warm = sum(own.replicated for own in splits), sum(own.host_sharded for own in splits)
        share = far / look_ups if look_ups else 0.0
        size, ms = float(costs.memory_bytes), float(costs.communication_ms)
        return Choice(name, hot, warm, trade.rows.total - hot - warm, size, ms, share)

    def other(name: str, **changes: Any) -> Choice:
        return choice(name, splits_of(trade, split_for(trade, replace(options, **changes)), placed, cluster, options))

    tier_rows = [tier_rows_of(plan.by_table[table.name][1]) for table in placed]
    chosen = choice("this plan", [Split(rows["replicated"], rows["host_sharded"]) for rows in tier_rows])
    baseline = choice("row-wise only", [Split(0, 0)] * len(placed))
    alternatives = [baseline]
    if options.goal == "memory_neutral":
        more = options.extra_memory_gb + MORE_MEMORY * baseline.memory_bytes / GB
        three = _three(options, trade.setting)
        alternatives += [other("two tiers", tiers=2)] if three else []
        alternatives += [other("three tiers", tiers=3)] if options.tiers == 2 and _three(replace(options, tiers=3), trade.setting) else []
        alternatives += [other("rule=optimal", rule="optimal")] if three and options.rule == "paper" else []
        alternatives += [other(f"{MORE_MEMORY:.0%} more memory", extra_memory_gb=more)]
    return Reasons(
        setting=asdict(trade.setting),
        boundaries=_boundaries(trade, split, Split(chosen.replicated, chosen.host_sharded), options),
        chosen=chosen,
        alternatives=tuple(alternatives),
        flips=flips_of(trade, split),
        pooled=tuple(table.name for table in placed if table.pooling != "none"),
    )


def _three(options: Options, setting: Setting) -> bool:
    return options.tiers == 3 and setting.hosts > 1 and setting.ranks_per_host > 1


def _boundaries(trade: Trade, split: Split, placed: Split, options: Options) -> tuple[Boundary, ...]:
    """Where the host-sharded tier (if it has rows) and the row-sharded tier begin in `placed`, which is `split` but for alignment."""
    setting, total = trade.setting, trade.rows.total
    hot, both = split.replicated, split.replicated + split.host_sharded
    replica_memory: Decided = (
        "from here a replica takes more memory than it saves",
        break_point(data_parallel, row_wise, "memory_bytes", setting),
    )
    replica_time: Decided = (
        "from here a replica takes longer than row-sharding",
        break_point(data_parallel, row_wise, "communication_ms", setting),
    )
    flex_time: Decided = "from here host-sharding takes longer than row-sharding", break_point(flex, row_wise, "communication_ms", setting)
    least_time: Decided = "the least communication" + (" within the memory budget" if options.goal == "memory_neutral" else ""), None
    begins, ends = replica_memory, BUDGET_SPENT
    if _three(options, setting) and (options.rule == "optimal" or options.goal == "max_communication_savings"):
        begins = ends = least_time
    elif split.host_sharded:
        ends = flex_time if both >= trade.worth_host_sharding() else ("the memory that the replicas save is spent", None)
    elif options.goal == "max_memory_savings":
        ends = replica_memory
    elif hot == trade.least_communication():
        ends = replica_time

    def boundary(tier: str, row: int, decided: Decided) -> Boundary:
        return Boundary(tier, row, trade.rows.p_of(row), *(decided if row < total else (ALL_ROWS, None)))

    host_sharded = [boundary("host_sharded", placed.replicated, begins)] if placed.host_sharded else []
    return *host_sharded, boundary("row_sharded", placed.replicated + placed.host_sharded, ends)
