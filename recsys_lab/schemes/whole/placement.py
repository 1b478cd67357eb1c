"""A shard has all rows of its table, on one rank: the whole table, or some of its columns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from recsys_lab.errors import UserError
from recsys_lab.plan.scheme import Placed
from recsys_lab.plan.sharding_plan import Placement, Shard
from recsys_lab.tables import Table

TABLE_WISE = "table_wise"
COLUMN_WISE = "column_wise"
TABLE_COLUMN_WISE = "table_column_wise"  # the column shards of a table lie on one host


def on_rank(table: Table, rank: int) -> Placement:
    """The whole `table` on one `rank`."""
    return Placement(table.name, TABLE_WISE, (Shard((rank,), 0, table.rows, 0, table.dim),))


def in_columns(table: Table, scheme: str, columns: Iterable[tuple[int, int, int]]) -> Placement:
    """Column shards (rank, first, one behind the last)."""
    return Placement(table.name, scheme, tuple(Shard((rank,), 0, table.rows, start, stop) for rank, start, stop in columns))


def halves(table: Table, ranks: Sequence[int]) -> list[tuple[int, int, int]]:
    """The table's columns in two shards, for `in_columns`. A single column is one shard."""
    middle = table.dim // 2
    edges = [(0, middle), (middle, table.dim)] if middle else [(0, table.dim)]
    return [(ranks[i % len(ranks)], *columns) for i, columns in enumerate(edges)]


def example(table: Table, number: int, hosts: int, ranks_per_host: int, scheme: str) -> Placement:
    """Tables are spread over ranks, and column shards of a table over two of them."""
    world, first = hosts * ranks_per_host, number % hosts * ranks_per_host
    if scheme == TABLE_WISE:
        return on_rank(table, (number * 3 + 1) % world)
    of_host = range(first, first + ranks_per_host)
    return in_columns(
        table, scheme, halves(table, of_host if scheme == TABLE_COLUMN_WISE else [(number + i) % world for i in range(world)])
    )


def check_execution(members: Placed) -> None:
    """Raises UserError for column shards of sequences that TorchRec cannot exchange together."""
    widths = {shard.cols for table, placement in members if table.pooling == "none" for shard in placement.shards}
    if len(widths) > 1 and members[0][1].scheme == COLUMN_WISE:
        raise UserError(
            "TorchRec has one width for the column shards of all tables of sequences",
            where=COLUMN_WISE,
            given=", ".join(map(str, sorted(widths))),
            remedy="sharder=torchrec or sharder=neo_4d plans them so",
        )
