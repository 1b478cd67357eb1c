"""The tables of a site on its ranks: how each is cut, and which rank gets which piece."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from recsys_lab.cluster import Cluster
from recsys_lab.plan import Placement, Shard, Workload
from recsys_lab.precision import Precision
from recsys_lab.sharders.dmt.volume import Links, column_shards, row_blocks
from recsys_lab.sharders.row_wise import row_blocks as blocks_of
from recsys_lab.tables import AccessStatistics, Table

LEAST_COLUMNS = 4  # of a shard: 16 bytes of FP32, and a multiple of it in every shard but the last
TABLE, COLUMN, ROW = "tower_table_wise", "tower_column_wise", "tower_row_wise"


@dataclass(frozen=True)
class Site:
    """`tables` to be placed on `ranks`."""

    tables: Sequence[Table]
    ranks: tuple[int, ...]


@dataclass(frozen=True)
class Given:
    """What a placement depends on beside the site."""

    access: AccessStatistics
    cluster: Cluster
    precision: Precision
    workload: Workload
    scheme: str

    def length(self, table: Table) -> float:
        return self.access[table.name].mean_length

    def is_multi_hot(self, table: Table) -> bool:
        return self.length(table) > len(table.features)

    def size(self, table: Table, cols: int) -> float:
        """Bytes of all rows and `cols` columns, with optimizer state."""
        return table.weight_bytes * cols / table.dim + self.workload.table_state_bytes(table.rows, cols)

    def load(self, table: Table, cols: int) -> float:
        """Numbers that `cols` columns have a rank read and send for a sample."""
        return (self.length(table) + len(table.features)) * cols


def place(site: Site, given: Given) -> dict[str, Placement]:
    """By table. Cut by columns where ranks would have no work, or where a table is too large for one; by rows where that moves less."""
    shards = _first_cut(site, given)
    while True:
        found, sizes = _assigned(site, given, shards)
        if given.scheme != "auto" or max(sizes.values()) <= given.cluster.usable_memory_bytes - given.workload.dense_bytes:
            return found
        fullest = max(sizes, key=lambda rank: (sizes[rank], -rank))
        if not _cut_more(site, given, shards, [name for name, placed in found.items() if fullest in placed.ranks]):
            return found


def _first_cut(site: Site, given: Given) -> dict[str, int]:
    """Column shards by table; 0: row blocks."""
    ranks = len(site.ranks)
    if given.scheme != "auto":
        return {t.name: {"table_wise": 1, "column_wise": _most(t, ranks), "row_wise": 0}[given.scheme] for t in site.tables}
    shards = _work_for_all(site, given)
    links = Links.of(given.cluster, ranks)
    for table in site.tables:
        length = given.length(table)
        by_columns = column_shards(table, length, shards[table.name], given.precision)
        if (
            ranks > 1
            and given.is_multi_hot(table)
            and row_blocks(table, length, ranks, given.precision).cost(links) < by_columns.cost(links)
        ):
            shards[table.name] = 0
    if 0 in shards.values():  # every rank has work
        shards = {name: min(count, 1) for name, count in shards.items()}
    return shards


def _work_for_all(site: Site, given: Given) -> dict[str, int]:
    """One shard a table, more where there are fewer tables than ranks: the table with the most work in a shard is cut further."""
    shards = {table.name: 1 for table in site.tables}
    while sum(shards.values()) < len(site.ranks):
        open_to = [t for t in site.tables if shards[t.name] < _most(t, len(site.ranks))]
        if not open_to:
            break
        most = max(open_to, key=lambda t: given.load(t, t.dim) / shards[t.name])
        shards[most.name] = _next(most, shards[most.name])
    return shards


def _cut_more(site: Site, given: Given, shards: dict[str, int], names: Sequence[str]) -> bool:
    """Cuts that of the tables `names` further whose shard is largest; into row blocks where no columns are left. False: none can be."""
    tables = sorted((t for t in site.tables if t.name in names and shards[t.name]), key=lambda t: -given.size(t, t.dim) / shards[t.name])
    for table in tables:
        if shards[table.name] < _most(table, len(site.ranks)):
            shards[table.name] = _next(table, shards[table.name])
            return True
    if tables:
        shards[tables[0].name] = 0
    return bool(tables)


def _assigned(site: Site, given: Given, shards: Mapping[str, int]) -> tuple[dict[str, Placement], dict[int, float]]:
    """Placements, and the bytes of each rank. The largest piece first, each to the rank that has least of bytes and of work."""
    found: dict[str, list[Shard]] = {table.name: [] for table in site.tables}
    sizes, loads = dict.fromkeys(site.ranks, 0.0), dict.fromkeys(site.ranks, 0.0)
    all_bytes = sum(given.size(t, t.dim) for t in site.tables) or 1.0
    all_load = sum(given.load(t, t.dim) for t in site.tables) or 1.0
    for table in site.tables:
        if not shards[table.name]:
            found[table.name] = list(blocks_of(table, site.ranks))
            for shard in found[table.name]:
                sizes[shard.ranks[0]] += given.size(table, table.dim) * shard.rows / table.rows
                loads[shard.ranks[0]] += given.load(table, table.dim) / len(site.ranks)
    pieces = [(table, cols) for table in site.tables if shards[table.name] for cols in _columns(table, shards[table.name])]

    def share(table: Table, cols: tuple[int, int], size: float = 0.0, load: float = 0.0) -> float:
        width = cols[1] - cols[0]
        return max((size + given.size(table, width)) / all_bytes, (load + given.load(table, width)) / all_load)

    for table, cols in sorted(pieces, key=lambda piece: (-share(*piece), -piece[0].rows)):
        others = {shard.ranks[0] for shard in found[table.name]}
        free = [rank for rank in site.ranks if rank not in others]
        rank = min(free, key=lambda rank: (share(table, cols, sizes[rank], loads[rank]), rank))
        found[table.name].append(Shard((rank,), 0, table.rows, *cols))
        sizes[rank] += given.size(table, cols[1] - cols[0])
        loads[rank] += given.load(table, cols[1] - cols[0])
    return {table.name: _placement(table, found[table.name], shards[table.name]) for table in site.tables}, sizes


def _placement(table: Table, held: list[Shard], shards: int) -> Placement:
    scheme = ROW if not shards else TABLE if len(held) == 1 else COLUMN
    return Placement(table.name, scheme, tuple(sorted(held, key=lambda s: (s.row_start, s.col_start, s.ranks))))


def _most(table: Table, ranks: int) -> int:
    """Column shards that the table can have on so many ranks."""
    return len(_columns(table, min(ranks, max(1, math.ceil(table.dim / LEAST_COLUMNS)))))


def _next(table: Table, shards: int) -> int:
    """The next number of column shards above `shards` that there can be."""
    more = shards + 1
    while len(_columns(table, more)) <= shards:
        more += 1
    return len(_columns(table, more))


def _columns(table: Table, shards: int) -> list[tuple[int, int]]:
    """Equal widths, multiples of `LEAST_COLUMNS`; the last may be narrower."""
    width = math.ceil(table.dim / shards / LEAST_COLUMNS) * LEAST_COLUMNS
    return [(start, min(start + width, table.dim)) for start in range(0, table.dim, width)]
