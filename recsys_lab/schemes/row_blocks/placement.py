"""Rows in equal blocks: the one rule by which ids find the rank of their row."""

from __future__ import annotations

import math

from recsys_lab.errors import UserError
from recsys_lab.plan.sharding_plan import Shard


def check_blocks(where: str, rows: int, shards: list[Shard], ranks: list[int]) -> None:
    """Rows in equal blocks of ceil(rows / ranks), one a rank, in the order of the ranks: TorchRec sends ids by this rule alone."""
    block = math.ceil(rows / len(ranks))
    expected = {rank: (min(i * block, rows), min((i + 1) * block, rows)) for i, rank in enumerate(ranks)}
    given = {shard.ranks[0]: (shard.row_start, shard.row_stop) for shard in shards}
    for rank, (start, stop) in expected.items():
        found = given.get(rank, (rows, rows))
        if found != (start, stop) and not (start == stop and found[0] == found[1]):
            raise UserError(f"rank {rank} must hold rows {start} to {stop}", where=where, given=f"{found[0]} to {found[1]}")
