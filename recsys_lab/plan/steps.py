"""Steps: a plan lowered, for one batch shape, to an ordered graph of look-ups, collectives and dense work.

Ranks that do the same share one entry. Every figure is given for each rank in `bytes_of_rank`, or once where all are alike. The bytes of a
collective are those of the buffer that a rank puts in. In an all-to-all or a reduce-scatter that is what it hands over, its own part
included. In an all-reduce it is its tensor, in an all-gather or a gather its part. In a scatter it is all parts at the root and nothing
elsewhere. The recorder counts the same way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

COLLECTIVES = ("all_to_all", "reduce_scatter", "all_gather", "all_reduce", "broadcast", "scatter", "gather")
#: Rows of tables with a store: brought from the host's memory or a disk, and taken back there.
MOVES = FETCH, WRITE_BACK = "fetch", "write_back"
#: Nothing, until another rank has done as much (simulate/longest.py).
WAIT = "wait"
KINDS = ("lookup", "update", "dense", "host_to_device", WAIT, *MOVES, *COLLECTIVES)
PHASES = ("input", "forward", "backward", "optimizer")
#: The roles: what a step is of, which decides how it is scheduled and priced. First, how many ids go where; these travel before all ids.
SIZES = "sizes"
#: Ids, rows and gradients of tables.
EMBEDDING = "embedding"
#: Rows that were sorted out from others of their table, table by table.
TIER = "tier"
#: The same, exchanged within hosts on process groups of their own.
HOST_TIER = "host_tier"
#: The dense arch, which all ranks have, and its gradients, averaged in buckets as the backward pass makes them.
DENSE, DENSE_SYNC = "dense", "dense_sync"
#: A part of the model that only some ranks have, and its gradients, averaged over those ranks.
MODULE, MODULE_SYNC = "module", "module_sync"


@dataclass(frozen=True)
class Step:
    """One piece of work of an iteration. A figure "of_rank" has an entry for each rank, or one where all are alike.

    Attributes:
        name: unique in the iteration; `after` uses it.
        kind: one of `KINDS`.
        phase: one of `PHASES`.
        bytes_of_rank: bytes that a rank
            puts in (collective),
            takes from its host's memory (host_to_device),
            reads and writes in its own memory (lookup, update, dense), or
            moves between its device and a store (fetch, write_back).
        groups: for a collective, every group of ranks that does it at the same time; disjoint, equal in kind.
        flops: of each rank, for dense work only, in `number_format`.
        after: names of the steps that must end first.
        tables: names of the tables that it serves.
        received_of_rank: bytes that a rank takes out of an all-to-all, a scatter or a gather, where they differ from those it puts in.
        number_format: what dense work computes in.
        blocks: nothing else runs at that time, even if the software could.
        rows_of_rank: look-ups that a rank serves (lookup, update), or records that it moves (fetch, write_back).
        shards_of_rank: pieces of tables that a rank holds (lookup, update), or has a cache for (fetch).
        asked_of_rank: look-ups whose rows a rank finds in its caches or has to bring (fetch).
        missed_of_rank: different rows that a rank's caches do not hold, and that are read or made (fetch).
        written_of_rank: bytes of pooled rows, or of a sequence's rows, that a lookup makes; zeros of empty bags count.
        repeated_of_rank: of `bytes_of_rank`, those that the step has read before (lookup, update), so that a processor's caches may hold
            them. They are of look-ups of a row after its first, and of a bag's gradient for its look-ups after the first.
        role: what the step is of, one of those above; it decides how the step is scheduled and priced.
        part: which part, of a step that the simulator has cut in two.
        store: the kind of store of a fetch or a write_back (`plan.store.STORES`).
        kernels: that a device runs for it (lookup, update): one for all tables of a data type and a pooling, whatever their widths.
        wait_ms: how long a wait is.
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
    repeated_of_rank: tuple[float, ...] = ()
    asked_of_rank: tuple[float, ...] = ()
    missed_of_rank: tuple[float, ...] = ()
    role: str = EMBEDDING
    part: str = ""
    store: str = ""
    kernels: int = 1
    wait_ms: float = 0.0

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
    """One iteration of all ranks.

    Attributes:
        world_size: ranks.
        batch_size: samples of each rank.
        steps: in one valid serial order.
    """

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
