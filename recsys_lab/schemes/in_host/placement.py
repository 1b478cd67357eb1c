"""The rows of a table over the ranks of one host. Or those of each column shard, over the ranks of a host of its own."""

from __future__ import annotations

from collections.abc import Sequence

from recsys_lab.errors import UserError
from recsys_lab.plan.scheme import Placed
from recsys_lab.plan.sharding_plan import Placement
from recsys_lab.schemes.row_blocks.placement import row_blocks
from recsys_lab.schemes.whole.placement import halves
from recsys_lab.tables import Table

TABLE_ROW_WISE = "table_row_wise"
GRID_SHARD = "grid_shard"


def on_host(table: Table, ranks: Sequence[int]) -> Placement:
    """`ranks` of the host."""
    return Placement(table.name, TABLE_ROW_WISE, row_blocks(table, ranks))


def on_hosts(table: Table, columns: Sequence[tuple[Sequence[int], int, int]]) -> Placement:
    """Column shards (ranks of the host, first, one behind the last)."""
    shards = tuple(shard for ranks, start, stop in columns for shard in row_blocks(table, ranks, start, stop))
    return Placement(table.name, GRID_SHARD, shards)


def example(table: Table, number: int, hosts: int, ranks_per_host: int, scheme: str) -> Placement:
    """Tables are spread over hosts. The grid's column shards over two of them."""
    columns = []
    for host, start, stop in halves(table, [(number + i) % hosts for i in range(hosts)]):
        columns.append((range(host * ranks_per_host, (host + 1) * ranks_per_host), start, stop))
    return on_host(table, columns[0][0]) if scheme == TABLE_ROW_WISE else on_hosts(table, columns)


def check_execution(members: Placed) -> None:
    """Raises UserError for means that TorchRec gets wrong."""
    for table, placement in members:
        if placement.scheme == GRID_SHARD and table.pooling == "mean":
            raise UserError(
                f"TorchRec computes mean pooling wrongly under {GRID_SHARD}",
                where=f"table {table.name}",
                remedy=f"use {TABLE_ROW_WISE}",
            )
