"""How wide a table's column shards may be. TorchRec's planner considers one width a table, so that is chosen before it plans."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from recsys_lab.cluster import Cluster
from recsys_lab.errors import UserError
from recsys_lab.plan import ShardingPlan
from recsys_lab.schemes.in_host import GRID_SHARD
from recsys_lab.schemes.whole import COLUMN_WISE, TABLE_COLUMN_WISE, TABLE_WISE
from recsys_lab.tables import AccessStatistics, Table

#: By table, the schemes that it may have; None: any.
Types: TypeAlias = Mapping[str, list[str] | None]

#: Column shards as narrow as this are considered where the user names no width. TorchRec's own bound is 128.
MIN_COLUMN_SHARD_WIDTH = 32
#: Widths are multiples of this: what FBGEMM's kernels read at once.
UNIT = 4
#: Schemes under which a rank has whole rows or columns, which can be cut again.
CUT = (TABLE_WISE, COLUMN_WISE)
AUTO, FACTOR = "auto", "factor"
SHARDS = f"{AUTO}, {FACTOR}, 1 or more"


def first_widths(
    tables: tuple[Table, ...], forced: Mapping[str, str], cluster: Cluster, width: int | None, shards: str | None
) -> dict[str, int]:
    """By table. `forced`: the scheme of those that have one.

    Raises UserError for a `width` that a table cannot have, for `shards` that are no number, and for both together.
    """
    parts = factor(len(tables), cluster.world_size) if shards == FACTOR else _parts(shards)
    if width is not None and shards is not None:
        given = f"{shards} and {width}"
        raise UserError("say how wide column shards are or how many", where="sharder.planner.column_shards", given=given)
    return {t.name: _width(t, forced.get(t.name), cluster, width, parts) for t in tables}


def exchangeable(tables: tuple[Table, ...], widths: Mapping[str, int]) -> dict[str, int]:
    """`widths` as TorchRec can exchange them: of sequences the narrowest for all, since it has one width for all their column shards."""
    sequences = [table.name for table in tables if table.pooling == "none"]
    return {**widths} | dict.fromkeys(sequences, min((widths[name] for name in sequences), default=0))


def more_shards(plan: ShardingPlan, access: AccessStatistics, types: Types) -> dict[str, int]:
    """Widths of tables of `plan` to be cut by columns, or into narrower ones. With them each idle rank gets a shard.

    The shards with most columns to look up are halved first. Empty where nothing is idle or can be cut; `types`: what tables may be.
    """
    idle, widths = idle_ranks(plan), {}
    open_to = {t: p for t, p in plan.by_table.values() if p.scheme in CUT and COLUMN_WISE in (types[t.name] or CUT)}
    load = {t: (access[t.name].mean_length, t.rows, t.name) for t in open_to}
    now = {t: max(shard.cols for shard in p.shards) for t, p in open_to.items()}
    while idle > 0:
        able = [t for t in open_to if _narrower(t, now[t]) < now[t]]
        if not able:
            break
        table = max(able, key=lambda t: (load[t][0] * now[t], *load[t][1:]))
        idle += table.dim // now[table]
        now[table] = widths[table.name] = _narrower(table, now[table])
        idle -= table.dim // now[table]
    return widths


def factor(tables: int, ranks: int) -> int | None:
    """Column shards of each table with which every rank has one (DMT, section 5.1): the least power of two. None where tables suffice.

    That it is a power of two is our reading: the paper has "a column-wise sharding factor".
    """
    return None if tables >= ranks else 1 << (-(-ranks // tables) - 1).bit_length()


def idle_ranks(plan: ShardingPlan) -> int:
    """How many ranks hold nothing but what all hold. 0 where every table is replicated."""
    shared = [shard.ranks for placement in plan.placements for shard in placement.shards if len(shard.ranks) < plan.world_size]
    return plan.world_size - len({rank for ranks in shared for rank in ranks}) if shared else 0


def _parts(shards: str | None) -> int | None:
    if shards is None or shards == AUTO:
        return None
    if not shards.isdecimal() or int(shards) < 1:
        raise UserError("no such number of shards", where="sharder.planner.column_shards", given=shards, allowed=SHARDS)
    return int(shards)


def _allowed(table: Table) -> list[int]:
    """Divisors of its dimension that are multiples of the unit."""
    return [width for width in range(UNIT, table.dim + 1, UNIT) if table.dim % width == 0] or [table.dim]


def _width(table: Table, forced: str | None, cluster: Cluster, shard_width: int | None, parts: int | None) -> int:
    """The width of `table`'s column shards, should it be cut by columns."""
    allowed = _allowed(table)
    over = {COLUMN_WISE: cluster.world_size, TABLE_COLUMN_WISE: cluster.ranks_per_host, GRID_SHARD: cluster.hosts}
    if shard_width is not None and (forced in over or forced is None):
        if shard_width not in allowed:
            raise UserError(
                f"table {table.name} of dimension {table.dim} cannot be cut into columns of this width",
                where="sharder.planner.column_shard_width",
                given=shard_width,
                allowed=", ".join(map(str, allowed)),
            )
        return shard_width
    if parts is None and forced in over:
        parts = over[forced]
    least = MIN_COLUMN_SHARD_WIDTH if parts is None else table.dim / parts
    return next((width for width in allowed if width >= least), table.dim)


def _narrower(table: Table, width: int) -> int:
    return max((narrower for narrower in _allowed(table) if narrower <= width / 2), default=width)
