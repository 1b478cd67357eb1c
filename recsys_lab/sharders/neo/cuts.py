"""The ways in which a table can be cut. A cut has pieces, and each piece costs and fills something on the ranks that it lands on."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from recsys_lab.plan import Workload
from recsys_lab.plan.sharding_plan import edges_of_blocks
from recsys_lab.schemes.in_host import GRID_SHARD
from recsys_lab.schemes.replicated import DATA_PARALLEL
from recsys_lab.schemes.row_blocks import ROW_WISE
from recsys_lab.schemes.tiers import FLEXSHARD
from recsys_lab.schemes.whole import TABLE_COLUMN_WISE
from recsys_lab.sharders.neo.costs import Cost, Setting
from recsys_lab.sharders.neo.levels import OF_ALL, OF_HOSTS, OF_SEQUENCES, RULES_OF_SCHEME
from recsys_lab.tables import Table
from recsys_lab.tables.remap import KEPT_IDS, kept_id_bytes

#: Columns of a shard are a multiple of this: what FBGEMM's kernels read at once.
UNIT = 4


@dataclass(frozen=True)
class Size:
    """Bytes on a rank: `lasting` from step to step, weights and optimizer state; `passing` while it computes."""

    lasting: int = 0
    passing: int = 0

    def __add__(self, other: Size) -> Size:
        return Size(self.lasting + other.lasting, self.passing + other.passing)

    def fits(self, room: Size) -> bool:
        """`room.passing`: what lasts and what passes may fill together."""
        return self.lasting <= room.lasting and self.lasting + self.passing <= room.passing


@dataclass(frozen=True)
class Piece:
    """`cols` columns of a table, with all its rows, for a rank or for all ranks of a host; `cost` (weighted) and `size`: of each rank."""

    table: int
    cols: int
    cost: Cost
    size: Size

    @property
    def cost_ms(self) -> float:
        return self.cost.total


@dataclass(frozen=True)
class Cut:
    """A table under a scheme. `pieces`: to be placed on ranks, or on hosts of `holders` ranks each. One for all ranks under `OF_ALL`."""

    scheme: str
    holders: int
    pieces: tuple[Piece, ...]

    @property
    def of_hosts(self) -> bool:
        return self.scheme in OF_HOSTS

    @property
    def of_all(self) -> bool:
        return self.scheme in OF_ALL

    @cached_property
    def total_ms(self) -> float:
        """Over all ranks."""
        return self.holders * sum(piece.cost_ms for piece in self.pieces)

    @cached_property
    def largest_ms(self) -> float:
        return max(piece.cost_ms for piece in self.pieces)

    @property
    def total_bytes(self) -> int:
        """That last, over all ranks."""
        return self.holders * sum(piece.size.lasting for piece in self.pieces)

    @property
    def largest_bytes(self) -> int:
        return max(piece.size.lasting for piece in self.pieces)

    @property
    def largest_bytes_in_all(self) -> int:
        """With what passes while it computes, as the rank with hot rows has it."""
        return max(piece.size.lasting + piece.size.passing for piece in self.pieces)


def cuts_of(index: int, table: Table, schemes: Sequence[str], setting: Setting, workload: Workload) -> list[Cut]:
    """All cuts of the table under `schemes` that TorchRec can run.

    By columns they have 2, 3, 4, 6, 8, ... pieces, up to one a rank or a host. Those of a sequence are equal.
    """
    cluster = setting.cluster
    cuts = []
    for scheme in schemes:
        if table.pooling == "none" and scheme not in OF_SEQUENCES or table.pooling == "mean" and scheme == GRID_SHARD:
            continue  # no exchange of sequences; TorchRec computes mean pooling wrongly under the grid
        if scheme == FLEXSHARD and 1 in (cluster.hosts, cluster.ranks_per_host):
            continue  # by rows on the one host, or data-parallel
        across, _ = RULES_OF_SCHEME[scheme]
        holders = cluster.ranks_per_host if scheme in OF_HOSTS else cluster.world_size if scheme in OF_ALL else 1
        members = cluster.hosts if scheme in OF_HOSTS else cluster.world_size
        for widths in _widths(table, members) if across == "column" else [[table.dim]]:
            if table.pooling == "none" and len(set(widths)) > 1:
                continue
            piece_of_width = {width: _piece(index, table, scheme, width, setting, workload) for width in set(widths)}
            cuts.append(Cut(scheme, holders, tuple(piece_of_width[width] for width in widths)))
    return cuts


def column_ranges(dim: int, parts: int) -> list[tuple[int, int]]:
    """`dim` columns in up to `parts` ranges, all but the last of one width, a multiple of `UNIT`."""
    width = math.ceil(dim / parts / UNIT) * UNIT
    return [(start, min(start + width, dim)) for start in range(0, dim, width)]


def _widths(table: Table, members: int) -> list[list[int]]:
    """The widths of the column pieces, by growing number of pieces: two at least."""
    counts = sorted({n for k in range(1, 12) for n in (1 << k, 3 << k >> 1) if 1 < n <= members} | {members})
    by_count: dict[int, list[int]] = {}
    for count in counts:
        widths = [stop - start for start, stop in column_ranges(table.dim, count)]
        if len(widths) > 1:
            by_count[len(widths)] = widths
    return list(by_count.values())


def _piece(index: int, table: Table, scheme: str, cols: int, setting: Setting, workload: Workload) -> Piece:
    """Of all rows and `cols` columns, as the busiest of the ranks that hold it has it."""
    cluster, rows, width, served = setting.cluster, table.rows, cols, 1.0
    _, within = RULES_OF_SCHEME[scheme]
    if within == "row":
        edges = edges_of_blocks(table.rows, cluster.world_size if scheme == ROW_WISE else cluster.ranks_per_host)
        rows = edges[1]
        served = float(setting.served(table, [(first, past - first) for first, past in zip(edges, edges[1:])]).max())
    elif scheme == TABLE_COLUMN_WISE:
        width = max(stop - start for start, stop in column_ranges(cols, cluster.ranks_per_host))
    cost = setting.weighted(table, scheme, rows / table.rows, width, served)
    lasting = rows * width * table.row_bytes // table.dim + workload.table_state_bytes(rows, width)
    return Piece(index, cols, cost, Size(lasting, _passing_bytes(table, scheme, rows, width, setting, served)))


def _passing_bytes(table: Table, scheme: str, rows: int, cols: int, setting: Setting, served: float) -> int:
    """As `recsys_lab.plan.memory` has it, in FP32: rows handed to others and their gradients, replicas' gradients, ids that tiers keep."""
    if scheme == DATA_PARALLEL:
        return 4 * rows * cols if setting.cluster.world_size > 1 else 0
    share = served if table.pooling == "none" else 1.0
    ranks, more = setting.cluster.world_size, 0
    if scheme == FLEXSHARD:
        ranks, more = setting.cluster.ranks_per_host, 4 * rows * cols + KEPT_IDS * kept_id_bytes([table])
    return math.ceil(2 * 4 * setting.vectors(table) * setting.batch_size * ranks * share * cols) + more
