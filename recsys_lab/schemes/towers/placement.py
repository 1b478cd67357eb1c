"""Tables in towers: each on the ranks of its tower's site, whole, cut by columns or cut by rows."""

from __future__ import annotations

from collections.abc import Iterator

from recsys_lab.errors import UserError
from recsys_lab.plan.sharding_plan import Placement, ShardingPlan
from recsys_lab.plan.validate import check_blocks
from recsys_lab.schemes.row_blocks.placement import row_blocks
from recsys_lab.schemes.towers.sites import PERMUTES, sites_of, sites_of_plan, tower_of_features
from recsys_lab.schemes.whole.placement import halves, in_columns
from recsys_lab.tables import Table

TOWER_TABLE_WISE = "tower_table_wise"
TOWER_COLUMN_WISE = "tower_column_wise"
TOWER_ROW_WISE = "tower_row_wise"
NAMES = (TOWER_TABLE_WISE, TOWER_COLUMN_WISE, TOWER_ROW_WISE)


def check_towers(plan: ShardingPlan) -> None:
    """Raises UserError. A plan places all of its tables in towers, or none."""
    sites = sites_of_plan(plan)
    listed = [feature for tower in plan.towers for feature in tower]
    if doubled := {feature for feature in listed if listed.count(feature) > 1}:
        raise UserError("a feature is in two towers", where="towers", given=min(doubled))
    if plan.permute not in PERMUTES:
        raise UserError("unknown peer permute", where="permute", given=plan.permute or "none given", allowed=", ".join(PERMUTES))
    if not sites.even and plan.permute != "ids":
        raise UserError("sites with unlike numbers of hosts have no common peer order", where="permute", given=plan.permute, allowed="ids")
    tower_of = tower_of_features(plan.towers)
    for table, placement in zip(plan.tables, plan.placements):
        tower = _tower(table, placement, tower_of)
        ranks = sites.ranks_of(sites.site_of_tower(tower))
        where = f"table {table.name}, {placement.scheme}"
        if outside := sorted(set(placement.ranks) - set(ranks)):
            raise UserError(
                f"all shards must lie on the ranks of tower {tower}",
                where=where,
                given=f"rank {outside[0]}",
                allowed=f"{ranks[0]} to {ranks[-1]}",
            )
        if placement.scheme == TOWER_ROW_WISE:
            check_blocks(where, table.rows, list(placement.shards), list(ranks))


def _tower(table: Table, placement: Placement, tower_of: dict[str, int]) -> int:
    where = f"table {table.name}"
    if placement.scheme not in NAMES:
        raise UserError("a plan with towers has all tables in them", where=where, given=placement.scheme, allowed=", ".join(NAMES))
    if table.pooling == "none":
        raise UserError("a sequence has no pooled row for a tower", where=where, given="pooling none", allowed="sum, mean")
    towers = {tower_of.get(feature) for feature in table.features}
    if None in towers or len(towers) > 1:
        raise UserError("all features of a table must be in one tower", where=where, given=sorted(map(str, towers)))
    return tower_of[table.features[0]]


def reference_cases(tables: tuple[Table, ...], hosts: int, ranks_per_host: int, scheme: str) -> Iterator[ShardingPlan]:
    """As many towers as divide the hosts and have a table each. Tables are dealt to them in turn, with each permute."""
    count = max(n for n in range(1, min(hosts, len(tables)) + 1) if hosts % n == 0)
    sites = sites_of(count, hosts, ranks_per_host)
    towers = tuple(tuple(feature for table in tables[tower::count] for feature in table.features) for tower in range(count))
    placements = tuple(_example(table, number, sites.ranks_of(number % count), scheme) for number, table in enumerate(tables))
    for permute in PERMUTES:
        yield ShardingPlan("reference", hosts, ranks_per_host, tables, placements, towers, permute)


def _example(table: Table, number: int, ranks: tuple[int, ...], scheme: str) -> Placement:
    if scheme == TOWER_ROW_WISE:
        return Placement(table.name, scheme, row_blocks(table, ranks))
    return in_columns(table, scheme, [(ranks[number % len(ranks)], 0, table.dim)] if scheme == TOWER_TABLE_WISE else halves(table, ranks))
