"""Rows split over the ranks of a host: of whole tables, or of column shards on hosts of their own (a grid)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from recsys_lab.plan.context import Context
from recsys_lab.plan.scheme import Scheme
from recsys_lab.plan.sharding_plan import Placement, ShardingPlan
from recsys_lab.plan.steps import Step
from recsys_lab.schemes.in_host import explain, placement
from recsys_lab.schemes.in_host.lower import lower_in_host
from recsys_lab.schemes.in_host.placement import GRID_SHARD, TABLE_ROW_WISE
from recsys_lab.schemes.whole.placement import halves
from recsys_lab.tables import Table

__all__ = ["GRID_SHARD", "SCHEMES", "TABLE_ROW_WISE", "InHost"]
EXECUTION = "recsys_lab.schemes.in_host.execute:EXECUTION"


@dataclass(frozen=True, kw_only=True)
class InHost(Scheme):
    """Parts of pooled rows are summed inside the host."""

    def validate(self, where: str, table: Table, shards: Placement, plan: ShardingPlan) -> None:
        placement.validate(where, table, shards, plan)

    def lower(self, context: Context) -> tuple[list[Step], list[Step]]:
        return lower_in_host(context)

    def words(self, table: Table, shards: Placement, most_bytes: str, plan: ShardingPlan) -> tuple[str, str]:
        in_words = explain.row_words if self.name == TABLE_ROW_WISE else explain.grid_words
        return in_words(table, shards, most_bytes, plan)

    def check_execution(self, placed: Sequence[tuple[Table, Placement]]) -> None:
        placement.check_execution(placed)

    def reference_cases(self, tables: tuple[Table, ...], hosts: int, ranks_per_host: int) -> Iterator[ShardingPlan]:
        """Tables are spread over hosts; the grid's column shards over two of them."""

        def ranks_of(host: int) -> range:
            first = host % hosts * ranks_per_host
            return range(first, first + ranks_per_host)

        def example(table: Table, number: int) -> Placement:
            if self.name == TABLE_ROW_WISE:
                return placement.on_host(table, ranks_of(number))
            return placement.on_hosts(table, [(ranks_of(number + i), a, b) for i, (_, a, b) in enumerate(halves(table, [0]))])

        yield ShardingPlan("reference", hosts, ranks_per_host, tables, tuple(example(t, i) for i, t in enumerate(tables)))


SCHEMES = (
    InHost(name=TABLE_ROW_WISE, travels=explain.ROWS_TRAVEL, execution=EXECUTION, sums_across_ranks=True),
    InHost(name=GRID_SHARD, travels=explain.GRID_TRAVELS, execution=EXECUTION, sums_across_ranks=True),
)
