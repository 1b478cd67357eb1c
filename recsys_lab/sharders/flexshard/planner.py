"""FlexShard's planner (arXiv 2301.02959, section 4): rows of all tables, most frequent first, into two or three tiers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Annotated, Any, Literal

from annotated_types import Interval
from pydantic import Strict

from recsys_lab.base.ranges import OneOf
from recsys_lab.base.schema import check_fields
from recsys_lab.cluster import Cluster
from recsys_lab.errors import PlanDoesNotFit, UserError
from recsys_lab.plan import Placement, ShardingPlan
from recsys_lab.plan.memory import bytes_of_ranks, check_fits
from recsys_lab.plan.tiers import tier_rows
from recsys_lab.schemes.tiers.placement import FLEXSHARD, in_tiers
from recsys_lab.sharders.base import PlanInputs, Sharder
from recsys_lab.sharders.flexshard.allocate import Split, Trade, optimal_three_tier, three_tier, two_tier
from recsys_lab.sharders.flexshard.bandwidths import GivenBandwidths
from recsys_lab.sharders.flexshard.boundaries import boundaries_of
from recsys_lab.sharders.flexshard.costs import setting_of
from recsys_lab.sharders.flexshard.flips import flips_of
from recsys_lab.sharders.flexshard.reasons import Choice, Reasons
from recsys_lab.sharders.flexshard.rows import Rows
from recsys_lab.sharders.flexshard.table_costs import choice_of
from recsys_lab.sharders.flexshard.whole_tables import schemes_of_whole, whole_placements
from recsys_lab.sharders.options import KEY
from recsys_lab.tables import Table
from recsys_lab.tables.tiers import HOST_SHARDED, REPLICATED
from recsys_lab.units import GB, human_bytes

GOALS = ("memory_neutral", "max_memory_savings", "max_communication_savings", "all_replicated")
RULES = ("paper", "optimal")
#: How much more memory the alternative of that name may use, as a share of what row-wise tables take.
MORE_MEMORY = 0.1


@dataclass(frozen=True, kw_only=True)
class FlexShard(Sharder):
    """The rows of every table in falling frequency: replicated, then (three tiers) host-sharded, the rest row-sharded.

    One host, or one rank a host, has no middle tier: three tiers are two there.

    A pooled table is planned as if its rows were not pooled. So its tiers follow p alone, as the paper's do. It really gains less, which
    `reasons` shows. TorchRec's reduce-scatter moves a whole pooled row of each sample, however few rows a tier still has. Rows that leave
    the row-sharded tier save the traffic of their ids and even out look-ups. Only a table without row-sharded rows leaves the global
    exchange.

    Attributes:
        tiers: 2 or 3.
        goal: a point of figure 5.
            memory_neutral: B, no more memory a rank than row-wise sharding, plus `extra_memory_gb`.
            max_memory_savings: A.
            max_communication_savings: C.
            all_replicated: D.
        extra_memory_gb: GB a rank; it may be negative.
        rule: of three tiers: paper (section 4.5), or optimal (the least communication within the same memory).
        replica_multiplier: memory of a replicated row over that of its weights; None: our executor's. The paper has 6.
        bandwidths: fields of `Bandwidths` in GB/s in place of those that follow from the cluster.
        align: tiers of a table are multiples of the number of ranks, as in table 5.
        force: table name or glob -> the scheme of the whole table (`whole_tables.WHOLE`); a later entry wins.
    """

    tiers: Literal[2, 3]
    goal: Annotated[str, OneOf(GOALS)] = "memory_neutral"
    extra_memory_gb: Annotated[float, Strict(), Interval(ge=-1e6, le=1e6)] = 0.0
    rule: Annotated[str, OneOf(RULES)] = "paper"
    replica_multiplier: Annotated[float, Strict(), Interval(ge=1, le=1e3)] | None = None
    bandwidths: GivenBandwidths | None = None
    align: bool = False
    force: dict[str, str] | None = None

    def plan(self, inputs: PlanInputs) -> ShardingPlan:
        """Tiers for all tables together, within one memory budget.

        Args:
            inputs: all that the plan depends on.

        Returns:
            A plan with one placement for each table.

        Raises:
            UserError: for options that cannot be.
            PlanDoesNotFit: where `extra_memory_gb` is more than can be saved, or a rank lacks memory.
        """
        self._check()
        tables, cluster = inputs.tables, inputs.cluster
        whole = whole_placements(tables, schemes_of_whole(tables, self.force), cluster)
        by_row = [table for table in tables if table.name not in whole]
        splits = self._split_together(by_row, inputs) if by_row else []
        placements = whole | {table.name: _place(table, split, cluster) for table, split in zip(by_row, splits)}
        sharder = f"flexshard_{self.tiers}tier"
        plan = ShardingPlan(sharder, cluster.hosts, cluster.ranks_per_host, tables, tuple(placements[table.name] for table in tables))
        check_fits(plan, inputs.workload, cluster)
        return plan

    def adapt(self, named: PlanInputs, here: PlanInputs) -> ShardingPlan:
        """Each row in the tier that it would have on the named cluster: tiers follow from a cluster's batch and links."""
        whole = schemes_of_whole(here.tables, self.force)
        if all(table.name in whole for table in here.tables):
            return self.plan(here)
        return _same_tiers(self.plan(replace(here, cluster=named.cluster, workload=named.workload)), here.cluster)

    def reasons(self, plan: ShardingPlan, inputs: PlanInputs) -> Reasons | None:
        """Where each tier begins and what decided it, what the next-best plans cost, what would flip it. None where no table has tiers."""
        tables = [table for table in inputs.tables if plan.by_table[table.name][1].scheme == FLEXSHARD]
        if not tables:
            return None
        trade = self._trade(tables, inputs)
        split, three = self._split(trade), self._has_middle_tier(trade)

        def choice(name: str, splits: Sequence[Split]) -> Choice:
            placed = {t.name: _place(t, split, inputs.cluster) for t, split in zip(tables, splits)}
            so_split = replace(plan, placements=tuple(placed.get(p.table, p) for p in plan.placements))
            return choice_of(name, tables, inputs.access, splits, trade, max(bytes_of_ranks(so_split, inputs.workload).totals))

        def other(name: str, **changes: Any) -> Choice:
            return choice(name, self._parts(trade, replace(self, **changes)._split(trade), tables))

        parts = [_tiers_of(plan.by_table[table.name][1]) for table in tables]
        aligned = Split(sum(part.replicated for part in parts), sum(part.in_host for part in parts))
        this_plan = choice("this plan", parts)
        baseline = choice("row-wise only", [Split(0, 0)] * len(tables))
        alternatives = [baseline]
        if self.goal == "memory_neutral":
            more_gb = self.extra_memory_gb + MORE_MEMORY * baseline.memory_bytes / GB
            alternatives += [other("two tiers", tiers=2)] if three else []
            alternatives += [other("three tiers", tiers=3)] if self.tiers == 2 and replace(self, tiers=3)._has_middle_tier(trade) else []
            alternatives += [other("rule=optimal", rule="optimal")] if three and self.rule == "paper" else []
            alternatives += [other(f"{MORE_MEMORY:.0%} more memory", extra_memory_gb=more_gb)]
        optimal = three and (self.rule == "optimal" or self.goal == "max_communication_savings")
        return Reasons(
            setting=asdict(trade.setting),
            boundaries=boundaries_of(trade, split, aligned, self.goal, optimal),
            chosen=this_plan,
            alternatives=tuple(alternatives),
            flips=flips_of(trade, split),
            pooled=tuple(table.name for table in tables if table.pooling != "none"),
        )

    def _check(self) -> None:
        """Raises UserError for options that cannot be."""
        check_fields(self, KEY)
        if self.goal != "memory_neutral" and self.extra_memory_gb:
            raise UserError(
                "another memory budget needs the goal that keeps to one",
                where=f"{KEY}.extra_memory_gb",
                given=self.extra_memory_gb,
                allowed="0 with this goal",
                remedy=f"set {KEY}.goal=memory_neutral",
            )

    def _split_together(self, tables: Sequence[Table], inputs: PlanInputs) -> list[Split]:
        """The split of each of `tables`, planned together (section 4.6)."""
        trade = self._trade(tables, inputs)
        return self._parts(trade, self._split(trade), tables)

    def _trade(self, tables: Sequence[Table], inputs: PlanInputs) -> Trade:
        """The merged rows of `tables` and what they cost in each tier."""
        setting = setting_of(inputs.cluster, inputs.precision, inputs.workload, tables[0].dtype, self.replica_multiplier, self.bandwidths)
        return Trade(Rows.of_tables(tables, [inputs.access[t.name] for t in tables]), setting)

    def _has_middle_tier(self, trade: Trade) -> bool:
        return self.tiers == 3 and trade.setting.hosts > 1 and trade.setting.ranks_per_host > 1

    def _split(self, trade: Trade) -> Split:
        """How many of the merged rows each tier gets. Raises PlanDoesNotFit where the budget cannot be met."""
        three = self._has_middle_tier(trade)
        if self.goal == "all_replicated":
            return Split(trade.rows.total, 0)
        if self.goal == "max_memory_savings":
            return Split(trade.least_memory(), 0)
        if self.goal == "max_communication_savings":
            split = optimal_three_tier(trade, float("inf")) if three else two_tier(trade, float("inf"))
        else:
            rule = two_tier if not three else three_tier if self.rule == "paper" else optimal_three_tier
            split = rule(trade, self.extra_memory_gb * GB)
        if split is None:
            most = -float(trade.memory_bytes(trade.least_memory()))
            raise PlanDoesNotFit(
                "no plan saves as much memory",
                where=f"{KEY}.extra_memory_gb",
                given=self.extra_memory_gb,
                allowed=f"{-most / GB:.6g} or more: replicating rows saves {human_bytes(most)} a rank at most",
            )
        return split

    def _parts(self, trade: Trade, split: Split, tables: Sequence[Table]) -> list[Split]:
        """Each table's part of a `split` of all their rows."""
        replicated = trade.rows.of_each_table(split.replicated)
        both = trade.rows.of_each_table(split.replicated + split.in_host)
        parts = [Split(int(hot), int(end - hot)) for hot, end in zip(replicated, both)]
        return [part.aligned(table.rows, trade.setting.world_size) for part, table in zip(parts, tables)] if self.align else parts


def _place(table: Table, split: Split, cluster: Cluster) -> Placement:
    return in_tiers(table, split.replicated, split.in_host, cluster.hosts, cluster.ranks_per_host)


def _same_tiers(plan: ShardingPlan, cluster: Cluster) -> ShardingPlan:
    """`plan` on other ranks. Each row keeps its tier. Tables that are placed as a whole keep their scheme."""
    schemes = {p.table: p.scheme for p in plan.placements if p.scheme != FLEXSHARD}
    whole = whole_placements(plan.tables, schemes, cluster)
    placements = tuple(whole.get(t.name) or _place(t, _tiers_of(p), cluster) for t, p in zip(plan.tables, plan.placements))
    return replace(plan, hosts=cluster.hosts, ranks_per_host=cluster.ranks_per_host, placements=placements)


def _tiers_of(placement: Placement) -> Split:
    """How many rows the first two tiers of a table that is placed by row have."""
    rows = tier_rows(placement)
    return Split(rows[REPLICATED], rows[HOST_SHARDED])
