"""DMT (arXiv 2403.00877): all tables of a plan in towers, each on the ranks of its tower's site, exchanged by SPTT."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from recsys_lab.plan.context import Context
from recsys_lab.plan.scheme import ModuleMemory, Scheme
from recsys_lab.plan.sharding_plan import Placement, Shard, ShardingPlan
from recsys_lab.plan.steps import Step
from recsys_lab.plan.workload import Workload
from recsys_lab.schemes.row_blocks.placement import row_blocks
from recsys_lab.schemes.towers import explain, memory, placement
from recsys_lab.schemes.towers.lower import FAMILY, lower_towers
from recsys_lab.schemes.towers.placement import TOWER_COLUMN_WISE, TOWER_ROW_WISE, TOWER_SCHEMES, TOWER_TABLE_WISE
from recsys_lab.schemes.towers.sites import PERMUTES, sites_of
from recsys_lab.schemes.whole.placement import halves
from recsys_lab.tables import Table

__all__ = ["SCHEMES", "TOWER_COLUMN_WISE", "TOWER_ROW_WISE", "TOWER_TABLE_WISE", "InTower"]


@dataclass(frozen=True, kw_only=True)
class InTower(Scheme):
    """Whole, by columns or by rows over the ranks of the tower's site."""

    def validate(self, where: str, table: Table, shards: Placement, plan: ShardingPlan) -> None:
        placement.validate(where, table, shards)

    def validate_plan(self, plan: ShardingPlan) -> None:
        placement.check_towers(plan)

    def module_memory(self, plan: ShardingPlan, workload: Workload) -> ModuleMemory:
        return memory.module_memory(plan, workload)

    def lower(self, context: Context) -> tuple[list[Step], list[Step]]:
        return lower_towers(context)

    def words(self, table: Table, shards: Placement, most_bytes: str, plan: ShardingPlan) -> tuple[str, str]:
        return explain.words(table, shards, most_bytes)

    def sentences(self, plan: ShardingPlan) -> tuple[str, ...]:
        return (explain.sites_sentence(plan),)

    def reference_cases(self, tables: tuple[Table, ...], hosts: int, ranks_per_host: int) -> Iterator[ShardingPlan]:
        """A tower a host, tables dealt to towers in turn, with each permute."""
        sites = sites_of(hosts, hosts, ranks_per_host)
        members = [tables[host::hosts] for host in range(hosts)]
        towers = tuple(tuple(feature for table in own for feature in table.features) for own in members)
        if not all(towers):
            return
        of_site = {table.name: sites.ranks_of(site) for site, own in enumerate(members) for table in own}
        placements = tuple(self._example(table, number, of_site[table.name]) for number, table in enumerate(tables))
        for permute in PERMUTES:
            yield ShardingPlan("reference", hosts, ranks_per_host, tables, placements, towers, permute)

    def _example(self, table: Table, number: int, ranks: tuple[int, ...]) -> Placement:
        if self.name == TOWER_ROW_WISE:
            return Placement(table.name, self.name, row_blocks(table, ranks))
        first = ranks[number % len(ranks)]
        columns = [(first, 0, table.dim)] if self.name == TOWER_TABLE_WISE else halves(table, ranks)
        return Placement(table.name, self.name, tuple(Shard((rank,), 0, table.rows, *cols) for rank, *cols in columns))


SCHEMES = tuple(
    InTower(
        name=name,
        travels=explain.TRAVELS[name],
        execution="recsys_lab.schemes.towers.execute:EXECUTION",
        family=FAMILY,
        sums_across_ranks=name == TOWER_ROW_WISE,
    )
    for name in TOWER_SCHEMES
)
