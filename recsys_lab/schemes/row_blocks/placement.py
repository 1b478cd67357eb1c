"""Rows in equal blocks over all ranks, as TorchRec cuts them: the last blocks may be short or empty."""

from __future__ import annotations

from collections.abc import Sequence

from recsys_lab.plan.sharding_plan import Placement, Shard
from recsys_lab.tables import Table

ROW_WISE = "row_wise"


def row_blocks(table: Table, ranks: Sequence[int], col_start: int = 0, col_stop: int | None = None) -> tuple[Shard, ...]:
    """One block of whole rows a rank, of those columns. Five rows on four ranks are blocks of 2, 2, 1 and 0."""
    block = -(-table.rows // len(ranks))
    starts = [min(i * block, table.rows) for i in range(len(ranks) + 1)]
    stop = table.dim if col_stop is None else col_stop
    return tuple(Shard((rank,), first, last, col_start, stop) for rank, first, last in zip(ranks, starts, starts[1:]))


def in_row_blocks(table: Table, ranks: Sequence[int]) -> Placement:
    return Placement(table.name, ROW_WISE, row_blocks(table, ranks))


def example(table: Table, number: int, hosts: int, ranks_per_host: int) -> Placement:
    return in_row_blocks(table, range(hosts * ranks_per_host))
