"""Steps of tables with a store. Rows move between a rank's device and the host's memory or a disk."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from recsys_lab.plan.sharding_plan import Shard
from recsys_lab.plan.steps import FETCH, WRITE_BACK, Step, folded
from recsys_lab.plan.store import DISK_HOST_CACHED, HOST_CACHED, HOST_PAGED, STORES, UNCACHED, Store
from recsys_lab.plan.workload import Workload
from recsys_lab.tables import AccessStatistics, Table
from recsys_lab.tables.cache_hits import cache_hits
from recsys_lab.tables.spec import READ_BYTES

#: Of memory, as the kernel and a disk have it.
PAGE_BYTES = 4096


class Held(NamedTuple):  # a plan may have a million
    """A shard, and how many samples its ranks look up in it; `served`: the share of the table's look-ups that it serves."""

    table: Table
    shard: Shard
    store: Store | None
    samples: int
    served: float


@dataclass(frozen=True)
class _Moved:
    """Of each rank: bytes and records, out of the store and back into it. Then, of caches: shards, look-ups in them, and rows missed."""

    read: np.ndarray
    rows_read: np.ndarray
    written: np.ndarray
    rows_written: np.ndarray
    shards: np.ndarray
    asked: np.ndarray
    missed: np.ndarray


def store_steps(
    prefix: str,
    held: Iterable[Held],
    access: AccessStatistics,
    workload: Workload,
    world_size: int,
    after: tuple[str, ...],
    in_flight: int = 1,
    batch: float = math.inf,
) -> tuple[list[Step], list[Step]]:
    """(before the look-up, after the update). `after`: what brings the ids. `batch`: how many came before this one; inf: the long run.

    A cache takes its misses in and gives as many rows back, as soon as the ids are there. Without one the look-up reads each row where it
    is, and the update reads and writes those that are different. Unified memory brings the pages of different rows and takes all of them
    back, and none stays for the next iteration. Of three levels the host's memory is a cache before a disk, whose steps
    are of disk_host_cached. The device's is one before the host's memory, and takes rows in once they are there.
    """
    moved: dict[str, _Moved] = {}
    tables: dict[str, dict[str, None]] = {}
    for kind, one in _by_level(held):
        of_kind = moved.setdefault(kind, _Moved(*(np.zeros(world_size) for _ in range(7))))
        tables.setdefault(kind, {})[one.table.name] = None
        _add(of_kind, one, access, workload, in_flight, batch)
    before: list[Step] = []
    behind: list[Step] = []
    from_disk: tuple[str, ...] = ()
    for kind in (kind for kind in (DISK_HOST_CACHED, *STORES[:-1]) if kind in moved):
        of_kind, names, phases = moved[kind], tuple(tables[kind]), ("forward", "backward") if kind in UNCACHED else ("input", "input")
        fetch, back = f"{prefix}.{kind}.{FETCH}", f"{prefix}.{kind}.{WRITE_BACK}"
        out: dict[str, Any] = {"rows_of_rank": folded(of_kind.rows_read), "tables": names, "store": kind}
        into = out | {"rows_of_rank": folded(of_kind.rows_written)}
        if kind in UNCACHED:
            before.append(Step(fetch, FETCH, phases[0], folded(of_kind.read), after=after, **out))
            behind.append(Step(back, WRITE_BACK, phases[1], folded(of_kind.written), after=(f"{prefix}.update",), **into))
        else:
            before.append(Step(back, WRITE_BACK, phases[1], folded(of_kind.written), after=after, **into))
            asked: dict[str, Any] = {"shards_of_rank": folded(of_kind.shards), "asked_of_rank": folded(of_kind.asked)}
            asked["missed_of_rank"] = folded(of_kind.missed)
            arrived = from_disk if kind == HOST_CACHED else ()
            before.append(Step(fetch, FETCH, phases[0], folded(of_kind.read), after=(back, *arrived), **out, **asked))
            from_disk = (fetch,) if kind == DISK_HOST_CACHED else from_disk
    return before, behind


def _by_level(held: Iterable[Held]) -> Iterator[tuple[str, Held]]:
    """Of shards with a store, the kind of the steps. A shard with three levels comes twice, from the disk and from the host."""
    for one in held:
        if one.store is None or not one.shard.rows:
            continue
        if one.store.kind == DISK_HOST_CACHED:
            yield DISK_HOST_CACHED, one._replace(store=one.store.of_host)
            yield HOST_CACHED, one._replace(store=one.store.of_device)
        else:
            yield one.store.kind, one


def pages_touched(distinct: float, rows: int, record: int) -> float:
    """Pages that hold `distinct` of so many rows, on average: frequent ids lie among the others. A row of a page or more has its own."""
    a_page = PAGE_BYTES / record
    return distinct * math.ceil(1 / a_page) if a_page <= 1 else rows / a_page * (1 - (1 - distinct / rows) ** a_page)


def record_bytes(table: Table, cols: int, workload: Workload) -> int:
    """Bytes of a row of a shard with so many columns in a store. They are the weights, as they are stored, and the optimizer state."""
    return cols * table.row_bytes // table.dim + workload.table_state_bytes(1, cols)


def _add(moved: _Moved, one: Held, access: AccessStatistics, workload: Workload, in_flight: int, batch: float) -> None:
    assert one.store is not None
    ranks, size, of_table = list(one.shard.ranks), record_bytes(one.table, one.shard.cols, workload), access[one.table.name]
    looked_up = one.samples * of_table.mean_length * one.served
    if one.store.kind == HOST_PAGED:
        pages = pages_touched(of_table.distinct_rows(one.samples) * one.shard.rows / one.table.rows, one.shard.rows, size)
        for size_moved, number in ((moved.read, moved.rows_read), (moved.written, moved.rows_written)):
            size_moved[ranks] += pages * PAGE_BYTES
            number[ranks] += pages
        return
    if one.store.kind in UNCACHED:
        changed = of_table.distinct_rows(one.samples) * one.shard.rows / one.table.rows
        moved.read[ranks] += looked_up * one.shard.cols * READ_BYTES[one.table.dtype]
        moved.rows_read[ranks] += looked_up
        moved.written[ranks] += 2 * changed * size
        moved.rows_written[ranks] += 2 * changed
        return
    cached, part = one.store.cached_share * one.table.rows, one.shard.rows / one.table.rows  # a shard has its part of the table's misses
    hits = cache_hits(of_table, one.store.policy, one.samples, cached, in_flight, batch)
    moved.shards[ranks] += 1
    moved.asked[ranks] += looked_up
    moved.missed[ranks] += hits.misses * part
    moved.read[ranks] += hits.read * part * size
    moved.rows_read[ranks] += hits.read * part
    if one.store.cached_share < 1:
        moved.written[ranks] += hits.leaves * part * size
        moved.rows_written[ranks] += hits.leaves * part
