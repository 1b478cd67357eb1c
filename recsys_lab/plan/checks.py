"""Rules that the shards of several schemes keep. Each raises UserError, which names `where`."""

from __future__ import annotations

import math
from collections.abc import Sequence

from recsys_lab.errors import UserError
from recsys_lab.plan.sharding_plan import Shard
from recsys_lab.tables import Table


def check_no_tier(where: str, shards: Sequence[Shard]) -> None:
    if any(shard.tier for shard in shards):
        raise UserError("only the shards of a table that is sharded by row have a tier", where=where)


def check_one_rank_each(where: str, shards: Sequence[Shard]) -> None:
    check_no_tier(where, shards)
    if any(len(shard.ranks) != 1 for shard in shards):
        raise UserError("only a replicated table may lie on several ranks", where=where)


def check_one_shard(where: str, shards: Sequence[Shard]) -> None:
    if len(shards) != 1:
        raise UserError("a table-wise table is one shard", where=where, given=f"{len(shards)} shards")


def check_all_rows(where: str, table: Table, shards: Sequence[Shard]) -> None:
    if any(shard.rows != table.rows for shard in shards):
        raise UserError("each shard must have all rows", where=where)


def check_all_columns(where: str, table: Table, shards: Sequence[Shard]) -> None:
    if any(shard.cols != table.dim for shard in shards):
        raise UserError("each shard must have all columns", where=where)


def check_one_host(where: str, shards: Sequence[Shard], ranks_per_host: int) -> None:
    hosts = {shard.ranks[0] // ranks_per_host for shard in shards}
    if len(hosts) != 1:
        raise UserError("all shards must lie on one host", where=where, given=f"hosts {sorted(hosts)}")


def check_blocks(where: str, rows: int, shards: Sequence[Shard], ranks: Sequence[int]) -> None:
    """Rows in equal blocks of ceil(rows / ranks), one a rank, in the order of the ranks: TorchRec sends ids by this rule alone."""
    block = math.ceil(rows / len(ranks))
    expected = {rank: (min(i * block, rows), min((i + 1) * block, rows)) for i, rank in enumerate(ranks)}
    held = {shard.ranks[0]: (shard.row_start, shard.row_stop) for shard in shards}
    for rank, (start, stop) in expected.items():
        extent = held.get(rank, (rows, rows))
        if extent != (start, stop) and not (start == stop and extent[0] == extent[1]):
            raise UserError(f"rank {rank} must hold rows {start} to {stop}", where=where, given=f"{extent[0]} to {extent[1]}")


def extent_text(shard: Shard) -> str:
    return f"rows {shard.row_start}-{shard.row_stop}, columns {shard.col_start}-{shard.col_stop}"
