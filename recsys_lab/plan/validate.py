"""Whether a plan makes sense: each table covered exactly once, on ranks that exist, as its scheme says."""

from __future__ import annotations

import math
from typing import Any

from recsys_lab.errors import UserError
from recsys_lab.plan.sharding_plan import ALL_SCHEMES, FLEXSHARD, TIERS, Placement, Shard, ShardingPlan
from recsys_lab.schemes.row_blocks.placement import check_blocks
from recsys_lab.schemes.towers.placement import check_towers
from recsys_lab.tables import Table
from recsys_lab.tables.spec import TABLE_FORMATS

#: A shard has all rows.
WHOLE_ROWS = ("table_wise", "column_wise", "table_column_wise", "tower_table_wise", "tower_column_wise")
#: A shard has all columns.
WHOLE_COLUMNS = ("table_wise", "row_wise", "table_row_wise", "tower_table_wise", "tower_row_wise")
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
    if plan.has_tower_tables:
        check_towers(plan)


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
    if placement.scheme not in ALL_SCHEMES:
        raise UserError("unknown sharding scheme", where=where, given=placement.scheme, allowed=", ".join(ALL_SCHEMES))
    for shard in placement.shards:
        if not shard.ranks or not all(0 <= rank < plan.world_size for rank in shard.ranks):
            raise UserError(
                "a shard lies on a rank that does not exist", where=where, given=shard.ranks, allowed=f"0 to {plan.world_size - 1}"
            )
        inside = 0 <= shard.row_start <= shard.row_stop <= table.rows and 0 <= shard.col_start <= shard.col_stop <= table.dim
        if not inside or shard.cols == 0:
            raise UserError("a shard reaches outside its table", where=where, given=_extent(shard), allowed=f"{table.rows} x {table.dim}")
    _check_cover(table, placement.shards)
    _check_scheme(table, placement, plan)


def _check_cover(table: Table, shards: tuple[Shard, ...]) -> None:
    """No two shards overlap, and their areas add up to the table's: then each cell is covered exactly once."""
    where = f"table {table.name}"
    held = sorted((s for s in shards if s.rows), key=lambda s: (s.col_start, s.col_stop, s.row_start))
    for i, one in enumerate(held):
        for other in held[i + 1 :]:
            if other.col_start >= one.col_stop:
                break
            if one.row_start < other.row_stop and other.row_start < one.row_stop:
                raise UserError("two shards hold the same cells", where=where, given=f"{_extent(one)} and {_extent(other)}")
    area = sum(s.rows * s.cols for s in held)
    if area != table.parameters:
        raise UserError("the shards do not cover the table", where=where, given=f"{area} of {table.parameters} cells")


def _check_scheme(table: Table, placement: Placement, plan: ShardingPlan) -> None:
    where, scheme = f"table {table.name}, {placement.scheme}", placement.scheme
    shards = placement.shards
    if scheme == FLEXSHARD:
        _check_tiers(where, table, shards, plan)
        return
    if any(shard.tier for shard in shards):
        raise UserError("only the shards of a table that is sharded by row have a tier", where=where)
    if scheme == "data_parallel":
        if len(shards) != 1 or shards[0].ranks != tuple(range(plan.world_size)):
            raise UserError("a replicated table is one shard on every rank", where=where, given=f"{len(shards)} shards")
        return
    if any(len(shard.ranks) != 1 for shard in shards):
        raise UserError("only a replicated table may lie on several ranks", where=where)
    if scheme in ("table_wise", "tower_table_wise") and len(shards) != 1:
        raise UserError("a table-wise table is one shard", where=where, given=f"{len(shards)} shards")
    if scheme in WHOLE_ROWS and any(shard.rows != table.rows for shard in shards):
        raise UserError("each shard must have all rows", where=where)
    if scheme in WHOLE_COLUMNS and any(shard.cols != table.dim for shard in shards):
        raise UserError("each shard must have all columns", where=where)
    hosts = {shard.ranks[0] // plan.ranks_per_host for shard in shards}
    if scheme in ("table_row_wise", "table_column_wise") and len(hosts) != 1:
        raise UserError("all shards must lie on one host", where=where, given=f"hosts {sorted(hosts)}")
    if scheme == "row_wise":
        check_blocks(where, table.rows, list(shards), list(range(plan.world_size)))
    if scheme in ("table_row_wise", "grid_shard"):
        for host in hosts:
            own = [shard for shard in shards if shard.ranks[0] // plan.ranks_per_host == host]
            ranks = list(range(host * plan.ranks_per_host, (host + 1) * plan.ranks_per_host))
            for columns in {(shard.col_start, shard.col_stop) for shard in own}:
                check_blocks(where, table.rows, [s for s in own if (s.col_start, s.col_stop) == columns], ranks)


def _check_tiers(where: str, table: Table, shards: tuple[Shard, ...], plan: ShardingPlan) -> None:
    """The tiers lie one after the other; within a tier rows lie in equal blocks over the groups of ranks that hold them."""
    world, per_host = tuple(range(plan.world_size)), plan.ranks_per_host
    holders: dict[str, list[tuple[int, ...]]] = {
        "replicated": [world],
        "host_sharded": [world[local::per_host] for local in range(per_host)],
        "row_sharded": [(rank,) for rank in world],
    }
    if unknown := sorted({shard.tier for shard in shards} - set(TIERS)):
        raise UserError("unknown tier", where=where, given=unknown[0] or "none", allowed=", ".join(TIERS))
    begin = 0
    for tier in TIERS:
        own = [shard for shard in shards if shard.tier == tier]
        rows = sum(shard.rows for shard in own)
        if own and [shard.ranks for shard in own] != holders[tier]:
            raise UserError(
                f"the {tier} tier is held by other ranks", where=where, given=[s.ranks for s in own][:4], allowed=holders[tier][:4]
            )
        block = math.ceil(rows / len(holders[tier]))
        for number, shard in enumerate(own):
            expected = (begin + min(number * block, rows), begin + min((number + 1) * block, rows))
            if (shard.row_start, shard.row_stop) != expected or shard.cols != table.dim:
                raise UserError(
                    f"block {number} of the {tier} tier must hold rows {expected[0]} to {expected[1]}, all columns",
                    where=where,
                    given=_extent(shard),
                )
        begin += rows


def _extent(shard: Shard) -> str:
    return f"rows {shard.row_start}-{shard.row_stop}, columns {shard.col_start}-{shard.col_stop}"
