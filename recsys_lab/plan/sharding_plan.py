"""ShardingPlan: frozen, serialisable, comparable. What every sharder ends in and every executor and simulator starts from."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from functools import cached_property

from recsys_lab.schemes.towers.sites import Sites, sites_of
from recsys_lab.tables import Table

#: TorchRec's seven sharding types: they place a table as a whole.
SCHEMES = ("data_parallel", "table_wise", "column_wise", "row_wise", "table_row_wise", "table_column_wise", "grid_shard")
#: FlexShard's places a table row by row, each of its shards in a tier.
FLEXSHARD = "flexshard"
#: Tables of one plan may have any of these.
FLAT_SCHEMES = (*SCHEMES, FLEXSHARD)
#: DMT's, which all tables of a plan have or none: table-, column- and row-wise inside the site of the table's tower
#: (`recsys_lab.schemes.towers.sites`).
TOWER_SCHEMES = ("tower_table_wise", "tower_column_wise", "tower_row_wise")
ALL_SCHEMES = (*FLAT_SCHEMES, *TOWER_SCHEMES)
#: What SPTT brings into peer order (DMT, section 3.1.3): looked-up rows, ids before the look-up, or nothing, because the ids already
#: travel in a process group that is in peer order.
PERMUTES = ("rows", "ids", "none")
TIERS = ("replicated", "host_sharded", "row_sharded")
TIER_OF_SCHEME = {"data_parallel": "replicated"}  # every other table scheme splits or moves a table and is counted as row_sharded


@dataclass(frozen=True)
class Shard:
    """Rows [row_start, row_stop) x columns [col_start, col_stop) of a table, held alike by every rank of `ranks`.

    Under FlexShard rows are numbered after the remapping (`recsys_lab.tables.remap`), and `tier` says which tier they are in.
    """

    ranks: tuple[int, ...]
    row_start: int
    row_stop: int
    col_start: int
    col_stop: int
    tier: str = ""

    @property
    def rows(self) -> int:
        return self.row_stop - self.row_start

    @property
    def cols(self) -> int:
        return self.col_stop - self.col_start


@dataclass(frozen=True)
class Placement:
    """One table's shards under one scheme. Together the shards cover the table exactly once."""

    table: str
    scheme: str
    shards: tuple[Shard, ...]

    @property
    def tier(self) -> str:
        """FlexShard's word for where the rows live: replicated | host_sharded | row_sharded, or mixed."""
        held = [tier for tier, rows in self.tier_rows.items() if rows]
        return held[0] if len(held) == 1 else "mixed"

    @property
    def tier_rows(self) -> dict[str, int]:
        """How many of the table's rows are in each tier. They lie one tier after the other, in this order."""
        rows = dict.fromkeys(TIERS, 0)
        for shard in self.shards:
            if shard.col_start == 0:
                rows[shard.tier or TIER_OF_SCHEME.get(self.scheme, "row_sharded")] += shard.rows
        return rows

    @property
    def ranks(self) -> tuple[int, ...]:
        return tuple(sorted({rank for shard in self.shards for rank in shard.ranks}))


@dataclass(frozen=True)
class ShardingPlan:
    """Placements of `tables` on `hosts` x `ranks_per_host` ranks, in the tables' order. `towers` are groups of features.

    `permute`: what is brought into peer order where tables are in towers (PERMUTES); else empty.
    """

    sharder: str
    hosts: int
    ranks_per_host: int
    tables: tuple[Table, ...]
    placements: tuple[Placement, ...]
    towers: tuple[tuple[str, ...], ...] = ()
    permute: str = ""

    @property
    def has_tower_tables(self) -> bool:
        return any(placement.scheme in TOWER_SCHEMES for placement in self.placements)

    @property
    def sites(self) -> Sites:
        """Where its towers are. Raises UserError where they do not divide over the hosts."""
        return sites_of(len(self.towers), self.hosts, self.ranks_per_host)

    @property
    def world_size(self) -> int:
        return self.hosts * self.ranks_per_host

    @cached_property
    def by_table(self) -> dict[str, tuple[Table, Placement]]:
        return {table.name: (table, placement) for table, placement in zip(self.tables, self.placements)}

    def weight_bytes_of_ranks(self) -> list[int]:
        """Bytes of table weights on each rank."""
        held = [0] * self.world_size
        for table, placement in zip(self.tables, self.placements):
            for shard in placement.shards:
                size = shard.rows * shard.cols * table.row_bytes // table.dim
                for rank in shard.ranks:
                    held[rank] += size
        return held

    def to_json(self) -> dict:
        return asdict(self) | {"schema": 1}

    @staticmethod
    def from_json(data: dict) -> ShardingPlan:
        return ShardingPlan(
            sharder=data["sharder"],
            hosts=data["hosts"],
            ranks_per_host=data["ranks_per_host"],
            tables=tuple(Table(**t | {"features": tuple(t["features"])}) for t in data["tables"]),
            placements=tuple(
                Placement(p["table"], p["scheme"], tuple(Shard(**s | {"ranks": tuple(s["ranks"])}) for s in p["shards"]))
                for p in data["placements"]
            ),
            towers=tuple(tuple(t) for t in data["towers"]),
            permute=data.get("permute", ""),
        )

    @property
    def fingerprint(self) -> str:
        """Of every field; equal plans have equal fingerprints."""
        return hashlib.sha256(json.dumps(self.to_json(), sort_keys=True).encode()).hexdigest()[:16]
