"""Rows in equal blocks over all ranks, as TorchRec cuts them: the last blocks may be short or empty."""

from __future__ import annotations

from collections.abc import Sequence

from recsys_lab.plan.sharding_plan import Placement, Shard, even_blocks
from recsys_lab.tables import Table

ROW_WISE = "row_wise"


def row_blocks(table: Table, ranks: Sequence[int], col_start: int = 0, col_stop: int | None = None) -> tuple[Shard, ...]:
    """One block of whole rows a rank, of those columns."""
    stop = table.dim if col_stop is None else col_stop
    return tuple(Shard((rank,), *rows, col_start, stop) for rank, rows in zip(ranks, even_blocks(table.rows, len(ranks))))


def in_row_blocks(table: Table, ranks: Sequence[int]) -> Placement:
    return Placement(table.name, ROW_WISE, row_blocks(table, ranks))
