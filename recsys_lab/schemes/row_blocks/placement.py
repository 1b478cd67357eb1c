"""Rows in equal blocks over all ranks, as TorchRec cuts them: the last blocks may be short or empty."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from recsys_lab.plan.sharding_plan import Placement, Shard, edges_of_blocks
from recsys_lab.tables import Table

ROW_WISE = "row_wise"


def row_blocks(table: Table, ranks: Sequence[int], col_start: int = 0, col_stop: int | None = None) -> tuple[Shard, ...]:
    """One block of whole rows a rank, of those columns."""
    stop, edges = table.dim if col_stop is None else col_stop, edges_of_blocks(table.rows, len(ranks))
    blocks = zip(_each_alone(tuple(ranks)), edges, edges[1:])
    return tuple([Shard(rank, first, past, col_start, stop) for rank, first, past in blocks])


@cache
def _each_alone(ranks: tuple[int, ...]) -> tuple[tuple[int], ...]:
    """The same tuples for every table: a plan may have a million."""
    return tuple((rank,) for rank in ranks)


def in_row_blocks(table: Table, ranks: Sequence[int]) -> Placement:
    return Placement(table.name, ROW_WISE, row_blocks(table, ranks))
