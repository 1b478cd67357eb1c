"""Data parallelism: every rank holds the table and looks its own samples up; gradients are averaged over all ranks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from recsys_lab.plan.context import Context
from recsys_lab.plan.scheme import Scheme
from recsys_lab.plan.sharding_plan import Placement, ShardingPlan
from recsys_lab.plan.steps import Step
from recsys_lab.schemes.replicated import explain, placement
from recsys_lab.schemes.replicated.lower import lower_replicated
from recsys_lab.schemes.replicated.placement import DATA_PARALLEL
from recsys_lab.tables import Table
from recsys_lab.tables.tiers import REPLICATED

__all__ = ["DATA_PARALLEL", "SCHEMES", "Replicated"]


@dataclass(frozen=True, kw_only=True)
class Replicated(Scheme):
    """A copy on every rank."""

    def validate(self, where: str, table: Table, shards: Placement, plan: ShardingPlan) -> None:
        placement.validate(where, shards, plan)

    def lower(self, context: Context) -> tuple[list[Step], list[Step]]:
        return lower_replicated(context)

    def words(self, table: Table, shards: Placement, most_bytes: str, plan: ShardingPlan) -> tuple[str, str]:
        return explain.words(table, plan)

    def reference_cases(self, tables: tuple[Table, ...], hosts: int, ranks_per_host: int) -> Iterator[ShardingPlan]:
        ranks = range(hosts * ranks_per_host)
        yield ShardingPlan("reference", hosts, ranks_per_host, tables, tuple(placement.on_every_rank(t, ranks) for t in tables))


SCHEMES = (
    Replicated(
        name=DATA_PARALLEL,
        travels=explain.TRAVELS,
        execution="recsys_lab.schemes.replicated.execute:EXECUTION",
        tier=REPLICATED,
        sequences=True,
        at_home=True,
        any_exchange=True,
    ),
)
