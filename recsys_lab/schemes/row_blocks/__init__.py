"""Rows in equal blocks, one on each rank."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from recsys_lab.plan.context import Context
from recsys_lab.plan.scheme import Scheme
from recsys_lab.plan.sharding_plan import Placement, ShardingPlan
from recsys_lab.plan.steps import Step
from recsys_lab.schemes.row_blocks import explain, placement
from recsys_lab.schemes.row_blocks.lower import lower_row_blocks
from recsys_lab.schemes.row_blocks.placement import ROW_WISE
from recsys_lab.tables import Table

__all__ = ["ROW_WISE", "SCHEMES", "RowBlocks"]


@dataclass(frozen=True, kw_only=True)
class RowBlocks(Scheme):
    """Each id finds the rank of its row by its block."""

    def validate(self, where: str, table: Table, shards: Placement, plan: ShardingPlan) -> None:
        placement.validate(where, table, shards, plan)

    def lower(self, context: Context) -> tuple[list[Step], list[Step]]:
        return lower_row_blocks(context)

    def words(self, table: Table, shards: Placement, most_bytes: str, plan: ShardingPlan) -> tuple[str, str]:
        return explain.words(table, shards, most_bytes)

    def reference_cases(self, tables: tuple[Table, ...], hosts: int, ranks_per_host: int) -> Iterator[ShardingPlan]:
        ranks = range(hosts * ranks_per_host)
        yield ShardingPlan("reference", hosts, ranks_per_host, tables, tuple(placement.in_row_blocks(t, ranks) for t in tables))


SCHEMES = (
    RowBlocks(
        name=ROW_WISE,
        travels=explain.TRAVELS,
        execution="recsys_lab.schemes.row_blocks.execute:EXECUTION",
        sequences=True,
        divides_evenly=True,
        sums_across_ranks=True,
    ),
)
