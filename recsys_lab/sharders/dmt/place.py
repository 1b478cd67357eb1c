"""The tables of a site on its ranks: how each is cut, and which rank gets which piece."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from recsys_lab.plan import Placement, Shard
from recsys_lab.schemes.row_blocks import ROW_WISE
from recsys_lab.schemes.row_blocks.placement import row_blocks as blocks_of
from recsys_lab.schemes.towers import TOWER_COLUMN_WISE, TOWER_ROW_WISE, TOWER_TABLE_WISE
from recsys_lab.schemes.whole import COLUMN_WISE, TABLE_WISE
from recsys_lab.sharders.base import PlanInputs
from recsys_lab.sharders.dmt.volume import Links, column_shards, row_blocks
from recsys_lab.tables import Table
from recsys_lab.tables.hot_rows import shares_of

LEAST_COLUMNS = 4  # of a shard: 16 bytes of FP32, and a multiple of it in every shard but the last
#: Times a rank's even part of the work. No piece of a table has more. Smaller pieces cost more kernels than their balance saves.
MUCH = 2.0


@dataclass(frozen=True)
class Site:
    """`tables` to be placed on `ranks`."""

    tables: Sequence[Table]
    ranks: tuple[int, ...]


@dataclass(frozen=True)
class Loads:
    """What tables take of the ranks that hold them; `scheme`: how all are cut, or auto."""

    inputs: PlanInputs
    scheme: str

    def length(self, table: Table) -> float:
        return self.inputs.access[table.name].mean_length

    def is_multi_hot(self, table: Table) -> bool:
        return self.length(table) > len(table.features)

    def size(self, table: Table, cols: int) -> float:
        """Bytes of all rows and `cols` columns, with optimizer state."""
        return table.weight_bytes * cols / table.dim + self.inputs.workload.table_state_bytes(table.rows, cols)

    def work(self, table: Table, cols: int) -> float:
        """Numbers that `cols` columns have a rank read and send for a sample."""
        return (self.length(table) + len(table.features)) * cols

    @property
    def room_bytes(self) -> int:
        """That a rank has for tables."""
        return self.inputs.cluster.usable_memory_bytes - self.inputs.workload.dense_bytes


def place(site: Site, loads: Loads) -> dict[str, Placement]:
    """By table.

    A table is cut by columns where ranks would have no work, where it has too much work for one rank, or where it is too large for one. It
    is cut by rows where that moves less.
    """
    shards = _first_cut(site, loads)
    while True:
        placements, sizes = _assigned(site, loads, shards)
        if loads.scheme != "auto" or max(sizes.values()) <= loads.room_bytes:
            return placements
        fullest = max(sizes, key=lambda rank: (sizes[rank], -rank))
        if not _cut_more(site, loads, shards, [name for name, placement in placements.items() if fullest in placement.ranks]):
            return placements


def _first_cut(site: Site, loads: Loads) -> dict[str, int]:
    """Column shards by table; 0: row blocks."""
    ranks = len(site.ranks)
    if loads.scheme != "auto":
        return {t.name: {TABLE_WISE: 1, COLUMN_WISE: _most(t, ranks), ROW_WISE: 0}[loads.scheme] for t in site.tables}
    shards = _work_for_all(site, loads)
    links = Links.of(loads.inputs.cluster, ranks)
    for table in site.tables:
        length = loads.length(table)
        by_columns = column_shards(table, length, shards[table.name], loads.inputs.precision)
        if (
            ranks > 1
            and loads.is_multi_hot(table)
            and row_blocks(table, length, ranks, loads.inputs.precision).cost(links) < by_columns.cost(links)
        ):
            shards[table.name] = 0
    if 0 in shards.values():  # every rank has work
        shards = {name: min(count, shards[name]) for name, count in _not_too_much(site, loads).items()}
    return shards


def _not_too_much(site: Site, loads: Loads) -> dict[str, int]:
    """Column shards by table, the fewest of which none has more than `MUCH` times a rank's even part of the work."""
    even, shards = sum(loads.work(t, t.dim) for t in site.tables) / len(site.ranks), {table.name: 1 for table in site.tables}
    for table in site.tables:
        while loads.work(table, table.dim) / shards[table.name] > MUCH * even and shards[table.name] < _most(table, len(site.ranks)):
            shards[table.name] = _next(table, shards[table.name])
    return shards


def _work_for_all(site: Site, loads: Loads) -> dict[str, int]:
    """Column shards by table. Where there are fewer than ranks, the table with the most work in a shard is cut further."""
    shards = _not_too_much(site, loads)
    while sum(shards.values()) < len(site.ranks):
        open_to = [t for t in site.tables if shards[t.name] < _most(t, len(site.ranks))]
        if not open_to:
            break
        most = max(open_to, key=lambda t: loads.work(t, t.dim) / shards[t.name])
        shards[most.name] = _next(most, shards[most.name])
    return shards


def _cut_more(site: Site, loads: Loads, shards: dict[str, int], names: Sequence[str]) -> bool:
    """Cuts that of the tables `names` further whose shard is largest. Into row blocks where no columns are left. False: none can be."""
    tables = sorted((t for t in site.tables if t.name in names and shards[t.name]), key=lambda t: -loads.size(t, t.dim) / shards[t.name])
    for table in tables:
        if shards[table.name] < _most(table, len(site.ranks)):
            shards[table.name] = _next(table, shards[table.name])
            return True
    if tables:
        shards[tables[0].name] = 0
    return bool(tables)


def _assigned(site: Site, loads: Loads, shards: Mapping[str, int]) -> tuple[dict[str, Placement], dict[int, float]]:
    """Placements, and the bytes of each rank. The largest piece first, each to the rank that has least of bytes and of work."""
    shards_of: dict[str, list[Shard]] = {table.name: [] for table in site.tables}
    sizes, works = dict.fromkeys(site.ranks, 0.0), dict.fromkeys(site.ranks, 0.0)
    all_bytes = sum(loads.size(t, t.dim) for t in site.tables) or 1.0
    all_work = sum(loads.work(t, t.dim) for t in site.tables) or 1.0
    for table in site.tables:
        if not shards[table.name]:
            shards_of[table.name] = list(blocks_of(table, site.ranks))
            shares = shares_of(loads.inputs.access[table.name], [(s.row_start, s.rows) for s in shards_of[table.name]])
            for shard, served in zip(shards_of[table.name], shares.tolist()):  # ids are hashed, so hot rows lie anywhere
                sizes[shard.ranks[0]] += loads.size(table, table.dim) * shard.rows / table.rows
                works[shard.ranks[0]] += (loads.length(table) * served + len(table.features) / len(site.ranks)) * table.dim
    pieces = [
        (table, cols, loads.size(table, cols[1] - cols[0]), loads.work(table, cols[1] - cols[0]))
        for table in site.tables
        if shards[table.name]
        for cols in _columns(table, shards[table.name])
    ]

    def share(size: float, work: float) -> float:
        return max(size / all_bytes, work / all_work)

    for table, cols, size, work in sorted(pieces, key=lambda piece: (-share(piece[2], piece[3]), -piece[0].rows)):
        others = {shard.ranks[0] for shard in shards_of[table.name]}
        free = [rank for rank in site.ranks if rank not in others]
        rank = min(free, key=lambda rank: (share(sizes[rank] + size, works[rank] + work), rank))
        shards_of[table.name].append(Shard((rank,), 0, table.rows, *cols))
        sizes[rank] += size
        works[rank] += work
    return {table.name: _placement(table, shards_of[table.name], shards[table.name]) for table in site.tables}, sizes


def _placement(table: Table, pieces: list[Shard], shards: int) -> Placement:
    scheme = TOWER_ROW_WISE if not shards else TOWER_TABLE_WISE if len(pieces) == 1 else TOWER_COLUMN_WISE
    return Placement(table.name, scheme, tuple(sorted(pieces, key=lambda s: (s.row_start, s.col_start, s.ranks))))


def _most(table: Table, ranks: int) -> int:
    """Column shards that the table can have on so many ranks."""
    return len(_columns(table, min(ranks, math.ceil(table.dim / LEAST_COLUMNS))))


def _next(table: Table, shards: int) -> int:
    """The next number of column shards above `shards` that there can be."""
    more = shards + 1
    while len(_columns(table, more)) <= shards:
        more += 1
    return len(_columns(table, more))


def _columns(table: Table, shards: int) -> list[tuple[int, int]]:
    """Equal widths, multiples of `LEAST_COLUMNS`. The last may be narrower."""
    width = math.ceil(table.dim / shards / LEAST_COLUMNS) * LEAST_COLUMNS
    return [(start, min(start + width, table.dim)) for start in range(0, table.dim, width)]
