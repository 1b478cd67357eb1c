"""A table's cut, with the ranks or hosts that its pieces went to, as a placement of the plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from recsys_lab.cluster import Cluster
from recsys_lab.plan import Placement
from recsys_lab.schemes.in_host.placement import on_host, on_hosts
from recsys_lab.schemes.replicated.placement import DATA_PARALLEL, on_every_rank
from recsys_lab.schemes.row_blocks.placement import ROW_WISE, in_row_blocks
from recsys_lab.schemes.tiers.placement import FLEXSHARD, in_tiers
from recsys_lab.schemes.whole.placement import COLUMN_WISE, TABLE_COLUMN_WISE, TABLE_WISE, in_columns, on_rank
from recsys_lab.sharders.neo.cuts import Cut, Piece, column_ranges
from recsys_lab.tables import Table


def placements_of(table: Table, cut: Cut, where: Sequence[tuple[Piece, int]], cluster: Cluster) -> Placement:
    """`where`: the rank of each piece, or its host. Column pieces that met on one rank or host are one shard there.

    Those of a sequence stay apart: TorchRec has one width for all column shards.
    """
    if cut.scheme == DATA_PARALLEL:
        return on_every_rank(table, cluster.ranks)
    if cut.scheme == FLEXSHARD:
        return in_tiers(table, 0, table.rows, cluster.hosts, cluster.ranks_per_host)
    if cut.scheme == ROW_WISE:
        return in_row_blocks(table, cluster.ranks)
    if table.pooling == "none" and cut.scheme == COLUMN_WISE:
        return in_columns(table, COLUMN_WISE, [(rank, *cols) for (_, rank), cols in zip(where, column_ranges(table.dim, len(where)))])
    columns = _columns(where)
    if not cut.of_hosts:
        return on_rank(table, columns[0][0]) if len(columns) == 1 else in_columns(table, COLUMN_WISE, columns)
    ranks = cluster.ranks_of_host(columns[0][0])
    if cut.scheme == TABLE_COLUMN_WISE:
        return in_columns(table, cut.scheme, [(rank, *cols) for rank, cols in zip(ranks, column_ranges(table.dim, len(ranks)))])
    if len(columns) == 1:  # by rows, and all columns on one host
        return on_host(table, ranks)
    return on_hosts(table, [(cluster.ranks_of_host(host), start, stop) for host, start, stop in columns])


def exchanged_together(tables: Sequence[Table], placements: Sequence[Placement]) -> tuple[Placement, ...]:
    """Where some pooled tables are cut by columns, whole ones count as one column piece each.

    Under one scheme TorchRec exchanges all of them at once. One exchange is as even as their sum.
    """
    if all(placement.scheme != COLUMN_WISE for placement in placements) or any(table.pooling == "none" for table in tables):
        return tuple(placements)
    return tuple(replace(p, scheme=COLUMN_WISE) if p.scheme == TABLE_WISE else p for p in placements)


def _columns(where: Sequence[tuple[Piece, int]]) -> list[tuple[int, int, int]]:
    """(rank or host, first column, one behind the last) of each that has pieces, by number."""
    widths: dict[int, int] = {}
    for piece, number in where:
        widths[number] = widths.get(number, 0) + piece.cols
    columns, start = [], 0
    for number in sorted(widths):
        columns.append((number, start, start + widths[number]))
        start += widths[number]
    return columns
