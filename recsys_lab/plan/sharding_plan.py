"""ShardingPlan: frozen, serialisable, comparable. What every sharder ends in and every executor and simulator starts from."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from itertools import chain
from operator import attrgetter
from typing import NamedTuple

import numpy as np

from recsys_lab.plan.store import Store
from recsys_lab.tables import Table


@dataclass(frozen=True, slots=True)  # a plan may have a million
class Shard:
    """Rows [row_start, row_stop) x columns [col_start, col_stop) of a table, held alike by every rank of `ranks`.

    Attributes:
        ranks: the ranks that hold it; more than one: replicas.
        row_start, row_stop: rows of the table; of rows placed one by one, after the remapping (`recsys_lab.tables.remap`).
        col_start, col_stop: columns of the table.
        tier: of rows that are placed one by one; else empty.
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

    @property
    def extent(self) -> str:
        """For people."""
        return f"rows {self.row_start}-{self.row_stop}, columns {self.col_start}-{self.col_stop}"


def even_blocks(rows: int, count: int) -> list[tuple[int, int]]:
    """`rows` in `count` blocks of ceil(rows / count), (first, one behind the last): five in four are 2, 2, 1 and 0."""
    edges = edges_of_blocks(rows, count)
    return list(zip(edges, edges[1:]))


def edges_of_blocks(rows: int, count: int) -> list[int]:
    """Where those blocks begin, and where the last one ends: five rows in four begin at 0, 2, 4 and 5."""
    block = -(-rows // count)
    return np.minimum(np.arange(count + 1) * block, rows).tolist()


class Copies(NamedTuple):
    """The copies of shards, one a rank, as arrays [N] in the order of shards and of their ranks: a plan may have a million.

    `shard`: the place of its shard among the placement's. `others`: whether other ranks hold that shard too.
    """

    rank: np.ndarray
    rows: np.ndarray
    cols: np.ndarray
    shard: np.ndarray
    others: np.ndarray


@dataclass(frozen=True)
class Placement:
    """One table's shards under one scheme. Together they cover the table exactly once.

    Attributes:
        table: its name.
        scheme: the name of a registered Scheme.
        shards: in any order.
        store: where rows outside of device memory stay; None: all rows are in device memory.
    """

    table: str
    scheme: str
    shards: tuple[Shard, ...]
    store: Store | None = None

    @property
    def ranks(self) -> tuple[int, ...]:
        return tuple(sorted({rank for shard in self.shards for rank in shard.ranks}))

    @cached_property
    def rows_of_shards(self) -> np.ndarray:
        """[shards]."""
        return self._of_shards("row_stop") - self._of_shards("row_start")

    @cached_property
    def copies(self) -> Copies:
        """Of all shards, those without rows included."""
        ranks = [shard.ranks for shard in self.shards]
        many = np.fromiter(map(len, ranks), np.int64, len(ranks))
        rank = np.fromiter(chain.from_iterable(ranks), np.int64, int(many.sum()))
        cols = self._of_shards("col_stop") - self._of_shards("col_start")
        of_shard = np.repeat(np.arange(len(many)), many)
        return Copies(rank, self.rows_of_shards[of_shard], cols[of_shard], of_shard, (many > 1)[of_shard])

    def _of_shards(self, field: str) -> np.ndarray:
        return np.fromiter(map(attrgetter(field), self.shards), np.int64, len(self.shards))


@dataclass(frozen=True)
class ShardingPlan:
    """Where every table lies: plain data, equal where every field is.

    Attributes:
        sharder: the planner that made it. It is `torchrec` also under `sharder=torchrec_strong`, which the record's choices name.
        hosts, ranks_per_host: the ranks that it is for.
        tables: all tables of the model.
        placements: one for each table, in their order.
        towers: groups of features; empty: no towers.
        permute: what is brought into peer order where tables are in towers; else empty.
    """

    sharder: str
    hosts: int
    ranks_per_host: int
    tables: tuple[Table, ...]
    placements: tuple[Placement, ...]
    towers: tuple[tuple[str, ...], ...] = ()
    permute: str = ""

    @property
    def world_size(self) -> int:
        return self.hosts * self.ranks_per_host

    @property
    def has_stores(self) -> bool:
        """Whether some table is not in device memory as a whole."""
        return any(placement.store is not None for placement in self.placements)

    def without_stores(self) -> ShardingPlan:
        """The same with all tables in device memory as a whole."""
        return replace(self, placements=tuple(replace(placement, store=None) for placement in self.placements))

    @cached_property
    def by_table(self) -> dict[str, tuple[Table, Placement]]:
        return {table.name: (table, placement) for table, placement in zip(self.tables, self.placements)}

    def weight_bytes_of_ranks(self) -> list[int]:
        """Bytes of table weights on each rank."""
        bytes_of_rank = np.zeros(self.world_size, dtype=np.int64)
        for table, placement in zip(self.tables, self.placements):
            copies = placement.copies
            np.add.at(bytes_of_rank, copies.rank, copies.rows * copies.cols * table.row_bytes // table.dim)
        return bytes_of_rank.tolist()

    def to_json(self) -> dict:
        data = asdict(self) | {"schema": 1}
        for placement in data["placements"]:
            if placement["store"] is None:
                del placement["store"]
            elif not placement["store"]["host_share"]:
                del placement["store"]["host_share"]
        return data

    @staticmethod
    def from_json(data: dict) -> ShardingPlan:
        return ShardingPlan(
            sharder=data["sharder"],
            hosts=data["hosts"],
            ranks_per_host=data["ranks_per_host"],
            tables=tuple(Table(**t | {"features": tuple(t["features"])}) for t in data["tables"]),
            placements=tuple(
                Placement(p["table"], p["scheme"], tuple(Shard(**s | {"ranks": tuple(s["ranks"])}) for s in p["shards"]), _store(p))
                for p in data["placements"]
            ),
            towers=tuple(tuple(t) for t in data["towers"]),
            permute=data.get("permute", ""),
        )

    @property
    def fingerprint(self) -> str:
        """Of every field. Equal plans have equal fingerprints."""
        return hashlib.sha256(json.dumps(self.to_json(), sort_keys=True).encode()).hexdigest()[:16]


def _store(placement: dict) -> Store | None:
    return None if placement.get("store") is None else Store(**placement["store"])
