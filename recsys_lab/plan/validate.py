"""Whether a plan makes sense: each table covered exactly once, on ranks that exist, as its scheme says."""

from __future__ import annotations

from typing import Any

from recsys_lab.errors import UserError
from recsys_lab.plan.checks import extent_text
from recsys_lab.plan.scheme import known_schemes, schemes_of
from recsys_lab.plan.sharding_plan import Placement, Shard, ShardingPlan
from recsys_lab.tables import Table
from recsys_lab.tables.spec import TABLE_FORMATS

POOLING = ("sum", "mean", "none")


def validate(plan: ShardingPlan, where: object = "plan") -> None:
    """Raises UserError that names the table and what is wrong with it."""
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
            raise UserError(
                "a shard reaches outside its table", where=where, given=extent_text(shard), allowed=f"{table.rows} x {table.dim}"
            )
    _check_cover(table, placement.shards)
    scheme.validate(f"{where}, {scheme.name}", table, placement, plan)


def _check_cover(table: Table, shards: tuple[Shard, ...]) -> None:
    """No two shards overlap, and their areas add up to the table's: then each cell is covered exactly once."""
    where = f"table {table.name}"
    held = sorted((s for s in shards if s.rows), key=lambda s: (s.col_start, s.col_stop, s.row_start))
    for i, one in enumerate(held):
        for other in held[i + 1 :]:
            if other.col_start >= one.col_stop:
                break
            if one.row_start < other.row_stop and other.row_start < one.row_stop:
                raise UserError("two shards hold the same cells", where=where, given=f"{extent_text(one)} and {extent_text(other)}")
    area = sum(s.rows * s.cols for s in held)
    if area != table.parameters:
        raise UserError("the shards do not cover the table", where=where, given=f"{area} of {table.parameters} cells")
