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
KINDS = ("lookup", "update", "dense", "host_to_device", *MOVES, *COLLECTIVES)
PHASES = ("input", "forward", "backward", "optimizer")
#: What a step is of. It is scheduled and priced by that.
#:   sizes        How many ids go where, exchanged before all ids.
#:   embedding    Ids, rows and gradients of tables.
#:   tier         Rows that were sorted out from others of their table, table by table.
#:   host_tier    The same, exchanged within hosts on process groups of their own.
#:   dense        The dense arch: all ranks have it.
#:   dense_sync   Its gradients, averaged in buckets as the backward pass makes them.
#:   module       A part of the model that only some ranks have.
#:   module_sync  Its gradients, averaged over those ranks.
SIZES, EMBEDDING, TIER, HOST_TIER = "sizes", "embedding", "tier", "host_tier"
DENSE, DENSE_SYNC, MODULE, MODULE_SYNC = "dense", "dense_sync", "module", "module_sync"


@dataclass(frozen=True)
class Step:
    """One piece of work of an iteration.

    `groups`: for a collective, every group of ranks that does it at the same time (disjoint, equal in kind).
    `bytes_of_rank`: the bytes of each rank of the world. A collective counts those put in, host_to_device those from the host's memory.
    Look-ups, updates and dense work count those read and written in the rank's own memory. A fetch or write_back counts those that move
    between its device and a store. One entry stands for all ranks alike, here and below.
    `flops`: per rank, dense work only, in `number_format`.
    `after`: names of the steps that must end first.
    `received_of_rank`: for an all-to-all, a scatter or a gather, the bytes that each rank takes out. Empty where they are those put in.
    `blocks`: nothing else runs at that time, even if the software could.
    `rows_of_rank`: for a look-up or an update, the look-ups that each rank serves. For a fetch or write_back, the records that move.
    `shards_of_rank`: for a look-up or an update, the pieces of tables that each rank holds.
    `written_of_rank`: the bytes of pooled rows (or of a sequence's rows) that a look-up makes, with empty bags' zeros.
    `role`: one of those above.
    `part`: the first or the second, where the simulator has cut a step in two.
    `store`: the kind of store (`plan.store.STORES`) of a fetch or a write_back.
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
