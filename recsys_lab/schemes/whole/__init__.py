"""Whole tables, and column shards with all rows: each shard on one rank."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from recsys_lab.plan.context import Context
from recsys_lab.plan.scheme import Scheme
from recsys_lab.plan.sharding_plan import Placement, ShardingPlan
from recsys_lab.plan.steps import Step
from recsys_lab.schemes.whole import explain, placement
from recsys_lab.schemes.whole.lower import lower_whole
from recsys_lab.schemes.whole.placement import COLUMN_WISE, TABLE_COLUMN_WISE, TABLE_WISE
from recsys_lab.tables import Table

__all__ = ["COLUMN_WISE", "SCHEMES", "TABLE_COLUMN_WISE", "TABLE_WISE", "Whole"]
EXECUTION = "recsys_lab.schemes.whole.execute:EXECUTION"


@dataclass(frozen=True, kw_only=True)
class Whole(Scheme):
    """A shard has all rows."""

    def validate(self, where: str, table: Table, shards: Placement, plan: ShardingPlan) -> None:
        placement.validate(where, table, shards, plan)

    def lower(self, context: Context) -> tuple[list[Step], list[Step]]:
        return lower_whole(context)

    def words(self, table: Table, shards: Placement, most_bytes: str, plan: ShardingPlan) -> tuple[str, str]:
        return explain.table_words(table, shards) if self.name == TABLE_WISE else explain.column_words(shards, most_bytes)

    def check_execution(self, placed: Sequence[tuple[Table, Placement]]) -> None:
        placement.check_execution(placed)

    def reference_cases(self, tables: tuple[Table, ...], hosts: int, ranks_per_host: int) -> Iterator[ShardingPlan]:
        """Tables are spread over ranks, and column shards of a table over two of them."""
        placements = tuple(self._example(table, number, hosts, ranks_per_host) for number, table in enumerate(tables))
        yield ShardingPlan("reference", hosts, ranks_per_host, tables, placements)

    def _example(self, table: Table, number: int, hosts: int, ranks_per_host: int) -> Placement:
        world = hosts * ranks_per_host
        if self.name == TABLE_WISE:
            return placement.on_rank(table, (number * 3 + 1) % world)
        first = number % hosts * ranks_per_host
        ranks = range(first, first + ranks_per_host) if self.name == TABLE_COLUMN_WISE else [(number + i) % world for i in range(world)]
        return placement.in_columns(table, self.name, placement.halves(table, ranks))


SCHEMES = (
    Whole(name=TABLE_WISE, travels=explain.TABLE_TRAVELS, execution=EXECUTION, sequences=True, any_exchange=True),
    Whole(name=COLUMN_WISE, travels=explain.COLUMNS_TRAVEL, execution=EXECUTION, sequences=True),
    Whole(name=TABLE_COLUMN_WISE, travels=explain.HOST_COLUMNS_TRAVEL, execution=EXECUTION),
)
