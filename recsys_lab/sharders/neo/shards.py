"""A table's cut, with the ranks or hosts that its pieces went to, as a placement of the plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from recsys_lab.cluster import Cluster
from recsys_lab.plan import Placement, Shard
from recsys_lab.sharders.neo.cuts import Cut, Piece, column_ranges
from recsys_lab.sharders.torchrec_row_wise import row_blocks
from recsys_lab.tables import Table


def placements_of(table: Table, cut: Cut, where: Sequence[tuple[Piece, int]], cluster: Cluster) -> Placement:
    """`where`: the rank of each piece, or its host. Column pieces that met on one rank or host are one shard there."""
    if cut.scheme == "data_parallel":
        return Placement(table.name, cut.scheme, (Shard(cluster.ranks, 0, table.rows, 0, table.dim),))
    if cut.scheme == "row_wise":
        return Placement(table.name, cut.scheme, row_blocks(table, cluster.ranks))
    columns: dict[int, int] = {}
    for piece, number in where:
        columns[number] = columns.get(number, 0) + piece.cols
    shards: list[Shard] = []
    start = 0
    for number in sorted(columns):
        stop = start + columns[number]
        shards += _shards(table, cut.scheme, start, stop, number, cluster)
        start = stop
    return Placement(table.name, _scheme(cut.scheme, len(columns)), tuple(shards))


def exchanged_together(placements: Sequence[Placement]) -> tuple[Placement, ...]:
    """Where some tables are cut by columns, whole ones count as one column piece each: under one scheme TorchRec exchanges all of them at
    once, and one exchange is as even as their sum.
    """
    if all(placement.scheme != "column_wise" for placement in placements):
        return tuple(placements)
    return tuple(replace(p, scheme="column_wise") if p.scheme == "table_wise" else p for p in placements)


def _scheme(scheme: str, members: int) -> str:
    """What is cut by columns, but whole on one member."""
    return {"column_wise": "table_wise", "grid_shard": "table_row_wise"}.get(scheme, scheme) if members == 1 else scheme


def _shards(table: Table, scheme: str, start: int, stop: int, number: int, cluster: Cluster) -> list[Shard]:
    """Columns [start, stop) on a rank, or on the ranks of a host."""
    if scheme in ("table_wise", "column_wise"):
        return [Shard((number,), 0, table.rows, start, stop)]
    ranks = cluster.ranks_of_host(number)
    if scheme == "table_column_wise":
        return [Shard((rank,), 0, table.rows, *cols) for rank, cols in zip(ranks, column_ranges(table.dim, len(ranks)))]
    return [replace(s, col_start=start, col_stop=stop) for s in row_blocks(table, ranks)]
