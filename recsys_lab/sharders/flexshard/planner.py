"""FlexShard's planner (arXiv 2301.02959, section 4): rows of all tables, most frequent first, into two or three tiers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from recsys_lab.cluster import Cluster
from recsys_lab.errors import PlanDoesNotFit, UserError, did_you_mean
from recsys_lab.plan import Placement, Shard, ShardingPlan, Workload
from recsys_lab.plan.memory import check_fits
from recsys_lab.plan.tiers import tier_rows as tier_rows_of
from recsys_lab.precision import Precision
from recsys_lab.schemes.tiers import FLEXSHARD
from recsys_lab.sharders.flexshard.allocate import Split, Trade, optimal_three_tier, three_tier, two_tier
from recsys_lab.sharders.flexshard.costs import setting_of
from recsys_lab.sharders.flexshard.rows import Rows
from recsys_lab.sharders.flexshard.whole_tables import forced_schemes, whole_placements
from recsys_lab.tables import AccessStatistics, Table
from recsys_lab.units import GB, human_bytes

GOALS = ("memory_neutral", "max_memory_savings", "max_communication_savings", "all_replicated")
RULES = ("paper", "optimal")


def plan(
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
) -> ShardingPlan:
    """The rows of every table in falling frequency: replicated, then (three tiers) host-sharded, the rest row-sharded.

    `tiers`: 2 or 3. `goal`, the points of figure 5: memory_neutral (B: no more memory a rank than row-wise sharding, plus
    `extra_memory_gb`, which may be negative), max_memory_savings (A), max_communication_savings (C), all_replicated (D).
    `rule`, of three tiers: paper (section 4.5) or optimal (the least communication within the same memory). `replica_multiplier`: memory
    of a replicated row over that of its weights; None is our executor's, the paper has 6. `bandwidths`: fields of `Bandwidths` in GB/s
    in place of those that follow from the cluster. `align`: tiers of a table are multiples of the number of ranks, as in table 5.
    `force`: table name or glob -> data_parallel, row_wise or table_wise for the whole table; a later entry wins.

    One host, or one rank a host, has no middle tier: three tiers are two there.

    A pooled table is planned as if its rows were not pooled, so that its tiers follow p alone, as the paper's do. What a pooled table
    really gains is less: TorchRec's reduce-scatter moves a whole pooled row of each sample however few rows are left in a tier, so rows
    that leave the row-sharded tier save the traffic of their ids and even out look-ups, and only a table without any row-sharded row
    leaves the global exchange. `reasons` tells what that is.

    Raises UserError for options that cannot be, PlanDoesNotFit if `extra_memory_gb` asks for more than can be saved, or the plan is too
    big for a rank.
    """
    options = Options(tiers, goal, extra_memory_gb, rule, replica_multiplier, bandwidths, align, force)
    options.check()
    schemes = forced_schemes(tables, force or {})
    by_row = [table for table in tables if table.name not in schemes]
    split_of = dict(zip((t.name for t in by_row), tier_rows(by_row, access, cluster, precision, workload, options)))
    whole = whole_placements(tables, schemes, cluster)
    placements = tuple(whole[t.name] if t.name in whole else place(t, split_of[t.name], cluster) for t in tables)
    made = ShardingPlan(f"flexshard_{tiers}tier", cluster.hosts, cluster.ranks_per_host, tables, placements)
    check_fits(made, workload, cluster)
    return made


@dataclass(frozen=True)
class Options:
    """The planner's options; see `plan`."""

    tiers: int
    goal: str = "memory_neutral"
    extra_memory_gb: float = 0.0
    rule: str = "paper"
    replica_multiplier: float | None = None
    bandwidths: dict[str, float] | None = None
    align: bool = False
    force: dict[str, str] | None = None

    def check(self) -> None:
        """Raises UserError for what cannot be."""
        for name, allowed in (("tiers", (2, 3)), ("goal", GOALS), ("rule", RULES)):
            given = getattr(self, name)
            if given not in allowed:
                words = [word for word in allowed if isinstance(word, str)]
                raise UserError(
                    "unknown choice",
                    where=f"sharder.planner.{name}",
                    given=given,
                    allowed=", ".join(map(str, allowed)),
                    remedy=did_you_mean(str(given), words),
                )
        if self.goal != "memory_neutral" and self.extra_memory_gb:
            raise UserError(
                "another memory budget needs the goal that keeps to one",
                where="sharder.planner.extra_memory_gb",
                given=self.extra_memory_gb,
                allowed="0 with this goal",
                remedy="set sharder.planner.goal=memory_neutral",
            )
        if self.replica_multiplier is not None and self.replica_multiplier < 1:
            where, given = "sharder.planner.replica_multiplier", self.replica_multiplier
            raise UserError("a replicated row needs at least its weights", where=where, given=given, allowed="1 or more")


def trade_of(
    tables: Sequence[Table], access: AccessStatistics, cluster: Cluster, precision: Precision, workload: Workload, options: Options
) -> Trade:
    """The merged rows of `tables` and what they cost in each tier."""
    setting = setting_of(cluster, precision, workload, options.replica_multiplier, options.bandwidths)
    return Trade(Rows.of_tables(tables, [access[t.name] for t in tables]), setting)


def split_for(trade: Trade, options: Options) -> Split:
    """How many of the merged rows each tier gets. Raises PlanDoesNotFit where the budget cannot be met."""
    setting = trade.setting
    three = options.tiers == 3 and setting.hosts > 1 and setting.ranks_per_host > 1
    if options.goal == "all_replicated":
        return Split(trade.rows.total, 0)
    if options.goal == "max_memory_savings":
        return Split(trade.least_memory(), 0)
    if options.goal == "max_communication_savings":
        found = optimal_three_tier(trade, float("inf")) if three else two_tier(trade, float("inf"))
    else:
        rule = two_tier if not three else three_tier if options.rule == "paper" else optimal_three_tier
        found = rule(trade, options.extra_memory_gb * GB)
    if found is None:
        most = -float(trade.memory_bytes(trade.least_memory()))
        raise PlanDoesNotFit(
            "no plan saves as much memory",
            where="sharder.planner.extra_memory_gb",
            given=options.extra_memory_gb,
            allowed=f"{-most / GB:.6g} or more: replicating rows saves {human_bytes(most)} a rank at most",
        )
    return found


def tier_rows(
    tables: Sequence[Table], access: AccessStatistics, cluster: Cluster, precision: Precision, workload: Workload, options: Options
) -> list[Split]:
    """The split of each of `tables`, planned together (section 4.6)."""
    if not tables:
        return []
    trade = trade_of(tables, access, cluster, precision, workload, options)
    return splits_of(trade, split_for(trade, options), tables, cluster, options)


def splits_of(trade: Trade, split: Split, tables: Sequence[Table], cluster: Cluster, options: Options) -> list[Split]:
    """Each table's part of a split of all their rows."""
    replicated = trade.rows.of_each_table(split.replicated)
    both = trade.rows.of_each_table(split.replicated + split.host_sharded)
    splits = [Split(int(hot), int(end - hot)) for hot, end in zip(replicated, both)]
    return [_aligned(s, t.rows, cluster.world_size) for s, t in zip(splits, tables)] if options.align else splits


def _aligned(split: Split, rows: int, world: int) -> Split:
    """Rounded down to multiples of the ranks, tier by tier; a tier that reaches the table's end stays whole."""
    if split.replicated == rows:
        return split
    replicated = split.replicated // world * world
    reaches_end = split.replicated + split.host_sharded == rows
    return Split(replicated, rows - replicated if reaches_end else split.host_sharded // world * world)


def place(table: Table, split: Split, cluster: Cluster) -> Placement:
    """`table` by row, rows numbered after the remapping. Within a tier, blocks of ceil(rows / holders), the last short or empty."""
    tiers = (
        ("replicated", split.replicated, [cluster.ranks]),
        ("host_sharded", split.host_sharded, [cluster.peers(local) for local in range(cluster.ranks_per_host)]),
        ("row_sharded", table.rows - split.replicated - split.host_sharded, [(rank,) for rank in cluster.ranks]),
    )
    shards, begin = [], 0
    for tier, rows, holders in tiers:
        block = -(-rows // len(holders))
        for number, ranks in enumerate(holders if rows else []):
            start, stop = (begin + min(i * block, rows) for i in (number, number + 1))
            shards.append(Shard(ranks, start, stop, 0, table.dim, tier))
        begin += rows
    return Placement(table.name, FLEXSHARD, tuple(shards))


def same_tiers(plan: ShardingPlan, cluster: Cluster) -> ShardingPlan:
    """`plan` on other ranks: each row in the tier that it has, tables that are placed as a whole by the same scheme."""
    schemes = {p.table: p.scheme for p in plan.placements if p.scheme != FLEXSHARD}
    whole = whole_placements(plan.tables, schemes, cluster)
    rows = {p.table: tier_rows_of(p) for p in plan.placements}
    placements = tuple(
        whole[t.name] if t.name in whole else place(t, Split(rows[t.name]["replicated"], rows[t.name]["host_sharded"]), cluster)
        for t in plan.tables
    )
    return replace(plan, hosts=cluster.hosts, ranks_per_host=cluster.ranks_per_host, placements=placements)
