"""FlexShard (arXiv 2301.02959): the rows of a table in three tiers, by how often they are read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from recsys_lab.plan.context import Context
from recsys_lab.plan.scheme import Scheme
from recsys_lab.plan.sharding_plan import Placement, Shard, ShardingPlan
from recsys_lab.plan.steps import Step
from recsys_lab.schemes.tiers import explain, placement
from recsys_lab.schemes.tiers.lower import lower_tiers
from recsys_lab.schemes.tiers.placement import FLEXSHARD
from recsys_lab.tables import Table
from recsys_lab.tables.tiers import HOST_SHARDED, REPLICATED

__all__ = ["FLEXSHARD", "SCHEMES", "Tiers"]


@dataclass(frozen=True, kw_only=True)
class Tiers(Scheme):
    """Each shard says its tier."""

    def validate(self, where: str, table: Table, shards: Placement, plan: ShardingPlan) -> None:
        placement.validate(where, table, shards, plan)

    def served_ranks(self, shard: Shard, plan: ShardingPlan) -> int:
        return {REPLICATED: 0, HOST_SHARDED: plan.ranks_per_host}.get(shard.tier, plan.world_size)

    def lower(self, context: Context) -> tuple[list[Step], list[Step]]:
        return lower_tiers(context)

    def words(self, table: Table, shards: Placement, most_bytes: str, plan: ShardingPlan) -> tuple[str, str]:
        return explain.words(shards, most_bytes)

    def reference_cases(self, tables: tuple[Table, ...], hosts: int, ranks_per_host: int) -> Iterator[ShardingPlan]:
        """All three tiers; the first two; the first and the last; one alone, table by table."""
        shares = ((1 / 5, 1 / 4), (1 / 2, 1 / 2), (1 / 3, 0), (0, 1), (0, 0), (1, 0))

        def example(table: Table, shift: int) -> Placement:
            hot, warm = shares[shift % len(shares)]
            replicated = int(table.rows * hot)
            in_host = min(int(table.rows * warm + 0.5), table.rows - replicated)
            return placement.in_tiers(table, replicated, in_host, hosts, ranks_per_host)

        yield ShardingPlan("reference", hosts, ranks_per_host, tables, tuple(example(table, 0) for table in tables))
        yield ShardingPlan("reference", hosts, ranks_per_host, tables, tuple(example(t, 1 + i) for i, t in enumerate(tables)))


SCHEMES = (Tiers(name=FLEXSHARD, travels=explain.TRAVELS, execution="recsys_lab.schemes.tiers.execute:EXECUTION", sequences=True),)
