"""What a plan's stores do, by the access statistics: for people, and to hold beside what is counted."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from recsys_lab.base.store_names import places_of
from recsys_lab.plan.scheme import scheme_of
from recsys_lab.plan.sharding_plan import Placement, ShardingPlan
from recsys_lab.plan.store import DISK_HOST_CACHED, HOST_PAGED, ON_DISK, UNCACHED
from recsys_lab.plan.store_steps import PAGE_BYTES, pages_touched, record_bytes
from recsys_lab.plan.workload import Workload
from recsys_lab.tables import AccessStatistics, Table, TableAccess
from recsys_lab.tables.cache_hits import cache_hits, needed_rows, rows_in_store
from recsys_lab.tables.spec import READ_BYTES

#: Batches for which the mean over a run's first ones is taken.
BATCHES = 24


@dataclass(frozen=True)
class StoreFacts:
    """A table that is not in device memory as a whole.

    `least_share`: of its rows, those that its cache must hold at least: what the batches in flight read. `hit_rate`: of the rows that a
    batch reads, each counted once, in the long run. `bytes_moved`: by all ranks together in an iteration, both ways. `host_share`: of its
    rows, those that the host's memory holds of a table with three levels.
    """

    table: str
    kind: str
    policy: str
    cached_share: float
    least_share: float
    hit_rate: float
    bytes_moved: float
    host_share: float = 0.0


@dataclass(frozen=True)
class Files:
    """Of each rank's files with rows, `bytes`, and how many bytes are `rewritten` for each that leaves a cache: 0 until a file is full."""

    bytes: tuple[float, ...]
    rewritten: tuple[float, ...]


def store_facts(plan: ShardingPlan, access: AccessStatistics, workload: Workload, in_flight: int) -> tuple[StoreFacts, ...]:
    """One entry a table with a store, in the plan's order."""
    placed = ((table, placement) for table, placement in zip(plan.tables, plan.placements) if placement.store is not None)
    return tuple(_facts(t, p, access[t.name], samples_of(p, plan.world_size, workload.batch_size), workload, in_flight) for t, p in placed)


def expected_counts(
    plan: ShardingPlan, access: AccessStatistics, batch_size: int, in_flight: int, rank: int, steps: int
) -> dict[str, dict[str, float]]:
    """By table with a cache, the hits and misses (distinct rows) in an iteration of `rank`. It is the mean of a run's first `steps`."""
    counts: dict[str, dict[str, float]] = {}
    for table, placement in zip(plan.tables, plan.placements):
        store, shares = placement.store, [s.rows / table.rows for s in placement.shards if rank in s.ranks]
        if store is None or store.kind in UNCACHED or not shares:
            continue
        samples, cached, after = samples_of(placement, plan.world_size, batch_size), store.cached_share * table.rows, _batches(steps)
        of_batch = [cache_hits(access[table.name], store.policy, samples, cached, in_flight, number) for number in after]
        hits, rows = (_sum_of_batches(after, [getattr(h, name) for h in of_batch]) / (after[-1] + 1) for name in ("hits", "rows"))
        counts[table.name] = {"hits_expected": hits * sum(shares), "misses_expected": (rows - hits) * sum(shares)}
    return counts


def files_of(plan: ShardingPlan, access: AccessStatistics, workload: Workload, in_flight: int, batches: float) -> Files:
    """After a run's first `batches`; inf: in the long run.

    A row that leaves a cache goes behind the last one, until the file is full. From then on it goes where a record is free. The records
    between are read and written again.
    """
    size, leaves, again = (np.zeros(plan.world_size) for _ in range(3))
    for table, placement in zip(plan.tables, plan.placements):
        store = placement.store
        if store is None or store.kind not in ON_DISK:
            continue
        store = store.of_host if store.kind == DISK_HOST_CACHED else store
        samples, cached = samples_of(placement, plan.world_size, workload.batch_size), store.cached_share * table.rows
        now, written = _leaves(access[table.name], store.policy, samples, cached, in_flight, batches)
        has_record = rows_in_store(access[table.name], samples, cached, batches) / table.rows
        for shard in (shard for shard in placement.shards if shard.rows):
            ranks, places, part = list(shard.ranks), places_of(shard.rows), shard.rows / table.rows
            record = record_bytes(table, shard.cols, workload)
            size[ranks] += min(written * part, float(places)) * record
            leaves[ranks] += now * part * record
            if written * part >= places:
                between = record / (1 - has_record * shard.rows / places)
                again[ranks] += now * part * min(between, record + PAGE_BYTES)
    return Files(tuple(size.tolist()), tuple(np.divide(again, leaves, out=np.zeros_like(again), where=leaves > 0).tolist()))


def _leaves(access: TableAccess, policy: str, samples: int, cached: float, in_flight: int, batches: float) -> tuple[float, float]:
    """Rows that leave a cache for a batch that comes after `batches` others, and for all of these."""
    now = cache_hits(access, policy, samples, cached, in_flight, batches).leaves
    if math.isinf(batches):
        return now, math.inf if now else 0.0
    after = _batches(int(batches))
    return now, _sum_of_batches(after, [cache_hits(access, policy, samples, cached, in_flight, number).leaves for number in after])


def _batches(steps: int) -> list[float]:
    """Some of the first `steps`, close together where the cache fills."""
    return sorted({float(round(number)) for number in np.geomspace(1, max(1, steps), BATCHES) - 1})


def _sum_of_batches(batches: Sequence[float], values: Sequence[float]) -> float:
    """The sum over all batches up to the last that is `known`, with straight lines between these."""
    between = np.dot(np.diff(batches), np.add(values[1:], values[:-1]) / 2)
    return float(between + (values[0] + values[-1]) / 2)


def samples_of(placement: Placement, world_size: int, batch_size: int) -> int:
    """That ranks look up in a table in an iteration."""
    return batch_size * (1 if scheme_of(placement).at_home else world_size)


def least_share(table: Table, placement: Placement, access: TableAccess, samples: int, in_flight: int) -> float:
    """The share of each shard's rows that its cache must hold at least: those that the batches in flight read."""
    shards = [shard for shard in placement.shards if shard.rows]
    return max(needed_rows(access, samples, in_flight, s.rows / table.rows) / s.rows for s in shards)


def _facts(table: Table, placement: Placement, access: TableAccess, samples: int, workload: Workload, in_flight: int) -> StoreFacts:
    store = placement.store
    assert store is not None
    width = sum(record_bytes(table, s.cols, workload) * s.rows for s in placement.shards) / table.rows
    if store.kind == HOST_PAGED:
        different = access.distinct_rows(samples) / table.rows
        shards = ((shard.rows, record_bytes(table, shard.cols, workload)) for shard in placement.shards if shard.rows)
        pages = sum(pages_touched(different * rows, rows, record) for rows, record in shards)
        return StoreFacts(table.name, store.kind, store.policy, 0.0, 0.0, 0.0, 2 * pages * PAGE_BYTES)
    if store.kind in UNCACHED:
        read = samples * access.mean_length * table.dim * READ_BYTES[table.dtype]
        moved = read + 2 * access.distinct_rows(samples) * width
        return StoreFacts(table.name, store.kind, store.policy, 0.0, 0.0, 0.0, moved)
    least = least_share(table, placement, access, samples, in_flight)
    hits = cache_hits(access, store.policy, samples, store.cached_share * table.rows, in_flight)
    moved = hits.misses
    if store.kind == DISK_HOST_CACHED:
        moved += cache_hits(access, store.policy, samples, store.host_share * table.rows, in_flight).misses
    return StoreFacts(table.name, store.kind, store.policy, store.cached_share, least, hits.rate, 2 * moved * width, store.host_share)
