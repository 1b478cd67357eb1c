"""Whether a plan makes sense: each table covered exactly once, on ranks that exist, as its scheme says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from recsys_lab.errors import UserError
from recsys_lab.plan.scheme import Rules, known_schemes, schemes_of
from recsys_lab.plan.sharding_plan import Placement, Shard, ShardingPlan, even_blocks
from recsys_lab.tables import Table
from recsys_lab.tables.spec import TABLE_FORMATS
from recsys_lab.units import counted

MOST_RANKS = 1 << 20
POOLING = ("sum", "mean", "none")


def validate(plan: ShardingPlan, where: object = "plan") -> None:
    """Checks that a plan places each cell of each table exactly once, by the rules of its scheme.

    Args:
        plan: the plan.
        where: what a mistake names, such as the plan's file.

    Raises:
        UserError: it names the table and what is wrong with it.
    """
    try:
        _check(plan)
    except UserError as error:
        parts: dict[str, Any] = error.parts | {"where": f"{where}, {error.parts['where']}"}
        raise UserError(**parts) from None
    except TypeError as error:  # a number that is a text, a rank that is a list, ...
        raise UserError("a value of a wrong type", where=where, given=error) from error


def _check(plan: ShardingPlan) -> None:
    if plan.hosts < 1 or plan.ranks_per_host < 1:
        raise UserError("a plan needs at least one rank", where="hosts x ranks_per_host", given=f"{plan.hosts} x {plan.ranks_per_host}")
    if plan.world_size > MOST_RANKS:
        given, allowed = f"{plan.hosts} x {plan.ranks_per_host}", f"{MOST_RANKS:,} at most"
        raise UserError("more ranks than there are", where="hosts x ranks_per_host", given=given, allowed=allowed)
    names = [table.name for table in plan.tables]
    if doubled := {name for name in names if names.count(name) > 1}:
        raise UserError("two tables have one name", where=f"table {min(doubled)}")
    if names != [placement.table for placement in plan.placements]:
        raise UserError(
            "the placements are not those of the tables, in their order",
            where="placements",
            given=", ".join(placement.table for placement in plan.placements),
            allowed=", ".join(names),
        )
    for table, placement in zip(plan.tables, plan.placements):
        _check_table(table)
        _check_placement(table, placement, plan)
    features = {feature for table in plan.tables for feature in table.features}
    for tower in plan.towers:
        if unknown := sorted(set(tower) - features):
            raise UserError("a tower has a feature of no table", where="towers", given=unknown[0])
    for scheme in schemes_of(plan):
        if scheme.validate_plan:
            scheme.validate_plan(plan)


def _check_table(table: Table) -> None:
    where = f"table {table.name}"
    if table.rows < 1 or table.dim < 1 or not table.features:
        raise UserError("a table needs rows, columns and a feature", where=where, given=f"{table.rows} x {table.dim}, {table.features}")
    if table.pooling not in POOLING:
        raise UserError("unknown pooling", where=where, given=table.pooling, allowed=", ".join(POOLING))
    if table.dtype not in TABLE_FORMATS:
        raise UserError("unknown number format", where=where, given=table.dtype, allowed=", ".join(TABLE_FORMATS))


def _check_placement(table: Table, placement: Placement, plan: ShardingPlan) -> None:
    where = f"table {table.name}"
    scheme = known_schemes().get(placement.scheme)
    if scheme is None:
        raise UserError("unknown sharding scheme", where=where, given=placement.scheme, allowed=", ".join(known_schemes()))
    for shard in placement.shards:
        if not shard.ranks or not all(0 <= rank < plan.world_size for rank in shard.ranks):
            raise UserError(
                "a shard lies on a rank that does not exist", where=where, given=shard.ranks, allowed=f"0 to {plan.world_size - 1}"
            )
        inside = 0 <= shard.row_start <= shard.row_stop <= table.rows and 0 <= shard.col_start <= shard.col_stop <= table.dim
        if not inside or shard.cols == 0:
            raise UserError("a shard reaches outside its table", where=where, given=shard.extent, allowed=f"{table.rows} x {table.dim}")
    _check_cover(table, placement.shards)
    if scheme.rules:
        check_rules(f"{where}, {scheme.name}", table, placement.shards, plan, scheme.rules)
    if scheme.validate:
        scheme.validate(f"{where}, {scheme.name}", table, placement, plan)


def _check_cover(table: Table, shards: tuple[Shard, ...]) -> None:
    """No two shards overlap, and their areas add up to the table's: then each cell is covered exactly once."""
    where = f"table {table.name}"
    filled = sorted((s for s in shards if s.rows), key=lambda s: (s.col_start, s.col_stop, s.row_start))
    for i, one in enumerate(filled):
        for other in filled[i + 1 :]:
            if other.col_start >= one.col_stop:
                break
            if one.row_start < other.row_stop and other.row_start < one.row_stop:
                raise UserError("two shards hold the same cells", where=where, given=f"{one.extent} and {other.extent}")
    area = sum(s.rows * s.cols for s in filled)
    if area != table.parameters:
        raise UserError("the shards do not cover the table", where=where, given=f"{area} of {table.parameters} cells")


def check_rules(where: str, table: Table, shards: Sequence[Shard], plan: ShardingPlan, rules: Rules) -> None:
    per_host = plan.ranks_per_host
    if any(shard.tier for shard in shards):
        raise UserError("only the shards of a table that is sharded by row have a tier", where=where)
    if rules.everywhere:
        if len(shards) != 1 or shards[0].ranks != tuple(range(plan.world_size)):
            given = f"{counted(len(shards), 'shard')}, on {counted(len(shards[0].ranks), 'rank')} of {plan.world_size}"
            raise UserError("a replicated table is one shard on every rank", where=where, given=given)
        return
    if any(len(shard.ranks) != 1 for shard in shards):
        raise UserError("only a replicated table may lie on several ranks", where=where)
    if rules.one_shard and len(shards) != 1:
        raise UserError("a table-wise table is one shard", where=where, given=f"{len(shards)} shards")
    if rules.all_rows and any(shard.rows != table.rows for shard in shards):
        raise UserError("each shard must have all rows", where=where)
    if rules.all_columns and any(shard.cols != table.dim for shard in shards):
        raise UserError("each shard must have all columns", where=where)
    hosts = sorted({shard.ranks[0] // per_host for shard in shards})
    if rules.one_host and len(hosts) != 1:
        raise UserError("all shards must lie on one host", where=where, given=f"hosts {hosts}")
    if rules.blocks == "world":
        check_blocks(where, table.rows, shards, range(plan.world_size))
    for host in hosts if rules.blocks == "host" else []:
        own, ranks = [s for s in shards if s.ranks[0] // per_host == host], range(host * per_host, (host + 1) * per_host)
        for columns in {(shard.col_start, shard.col_stop) for shard in own}:
            check_blocks(where, table.rows, [s for s in own if (s.col_start, s.col_stop) == columns], ranks)


def check_blocks(where: str, rows: int, shards: Sequence[Shard], ranks: Sequence[int]) -> None:
    """Rows in equal blocks of ceil(rows / ranks), one a rank, in the order of the ranks: TorchRec sends ids by this rule alone."""
    extents = {shard.ranks[0]: (shard.row_start, shard.row_stop) for shard in shards}
    for rank, (start, stop) in zip(ranks, even_blocks(rows, len(ranks))):
        extent = extents.get(rank, (rows, rows))
        if extent != (start, stop) and not (start == stop and extent[0] == extent[1]):
            raise UserError(f"rank {rank} must hold rows {start} to {stop}", where=where, given=f"{extent[0]} to {extent[1]}")
