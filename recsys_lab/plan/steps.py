"""Steps: a plan lowered, for one batch shape, to an ordered graph of look-ups, collectives and dense work.

Ranks that do the same share one entry: every figure is given for each rank in `bytes_of_rank`, or once where all are alike.
The bytes of a collective are those of the buffer that a rank puts in: what it hands to an all-to-all or a reduce-scatter (its
own part included), its tensor in an all-reduce, its part in an all-gather or a gather, all parts at the root of a scatter and nothing
elsewhere. The recorder counts the same way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

COLLECTIVES = ("all_to_all", "reduce_scatter", "all_gather", "all_reduce", "broadcast", "scatter", "gather")
#: Rows of tables with a store: brought from the host's memory or a disk, and taken back there.
MOVES = FETCH, WRITE_BACK = "fetch", "write_back"
KINDS = ("lookup", "update", "dense", "host_to_device", *MOVES, *COLLECTIVES)
PHASES = ("input", "forward", "backward", "optimizer")
#: What a step is of, by which it is scheduled and priced.
#:   sizes        how many ids go where, exchanged before all ids
#:   embedding    ids, rows and gradients of tables
#:   tier         rows that were sorted out from others of their table, table by table
#:   host_tier    the same, exchanged within hosts on process groups of their own
#:   dense        the dense arch: all ranks have it
#:   dense_sync   its gradients, averaged in buckets as the backward pass makes them
#:   module       a part of the model that only some ranks have
#:   module_sync  its gradients, averaged over those ranks
SIZES, EMBEDDING, TIER, HOST_TIER = "sizes", "embedding", "tier", "host_tier"
DENSE, DENSE_SYNC, MODULE, MODULE_SYNC = "dense", "dense_sync", "module", "module_sync"


@dataclass(frozen=True)
class Step:
    """One piece of work of an iteration.

    `groups`: for a collective, every group of ranks that does it at the same time (disjoint, equal in kind).
    `bytes_of_rank`: for each rank of the world, the bytes it puts in (collective), takes from its host's memory (host_to_device) or reads
    and writes in its own (look-up, update, dense), or moves between its device and a store (fetch, write_back); a single entry stands for
    every rank. `flops`: per rank, dense work only, in
    `number_format`.
    `after`: names of the steps that must end first. `received_of_rank`: for an all-to-all, a scatter or a gather, the bytes that each
    rank takes out, where they are not those it puts in. `blocks`: nothing else runs at that time, even if the software could.
    `rows_of_rank`, `shards_of_rank`: of a look-up or an update of tables, the look-ups that each rank serves and the pieces of tables that
    it holds; `written_of_rank`: of a look-up, the bytes of pooled rows (or of a sequence's rows) that it makes, empty bags' zeros among
    them. One entry where all ranks are alike. `role`: what it is of, one of those above. `part`: of a step that the
    simulator has cut in two, which one. `store`: of a fetch or a write_back, which kind of store (`plan.store.STORES`), `rows_of_rank`
    then the records that move.
    """

    name: str
    kind: str
    phase: str
    bytes_of_rank: tuple[float, ...]
    groups: tuple[tuple[int, ...], ...] = ()
    flops: float = 0.0
    after: tuple[str, ...] = ()
    tables: tuple[str, ...] = ()
    received_of_rank: tuple[float, ...] = ()
    number_format: str = ""
    blocks: bool = False
    rows_of_rank: tuple[float, ...] = ()
    shards_of_rank: tuple[float, ...] = ()
    written_of_rank: tuple[float, ...] = ()
    role: str = EMBEDDING
    part: str = ""
    store: str = ""

    @property
    def is_collective(self) -> bool:
        return self.kind in COLLECTIVES

    def bytes_on(self, rank: int) -> float:
        return self.bytes_of_rank[rank if len(self.bytes_of_rank) > 1 else 0]

    def group_of(self, rank: int) -> tuple[int, ...] | None:
        """The group in which `rank` takes part, if any."""
        return next((group for group in self.groups if rank in group), None)

    @property
    def max_bytes(self) -> float:
        return max(self.bytes_of_rank)


@dataclass(frozen=True)
class Steps:
    """The iteration in one valid serial order, for `world_size` ranks of `batch_size` samples each."""

    world_size: int
    batch_size: int
    steps: tuple[Step, ...]

    @property
    def collectives(self) -> tuple[Step, ...]:
        return tuple(step for step in self.steps if step.is_collective)

    def collectives_of(self, rank: int) -> list[tuple[str, tuple[int, ...], float]]:
        """(kind, group, bytes) of every collective that `rank` takes part in: what a recorder must see on it."""
        return [(s.kind, group, s.bytes_on(rank)) for s in self.collectives if (group := s.group_of(rank)) is not None]


def folded(values: Sequence[float] | np.ndarray) -> tuple[float, ...]:
    """One entry where all ranks are alike."""
    values = np.asarray(values, dtype=float)
    return (float(values[0]),) if (values == values[0]).all() else tuple(float(v) for v in values)
