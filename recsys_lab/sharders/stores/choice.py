"""Which tables of a plan leave device memory, and how much of each its cache holds.

Every table that ranks hold alone stays as it is, or gets a store with one of some sizes of cache. A choice weighs the time that rows on
their way take against bytes of memory. All tables have one price of a byte: the lowest at which every rank fits. This is the Lagrangian
relaxation of a knapsack (Everett, "Generalized Lagrange Multiplier Method", 1963). The remaining memory buys what still fits.

A row with a store is in the host's memory whether a cache holds it or not. Where that memory is too small for all such tables, those with
most look-ups a byte stay whole in device memory.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from recsys_lab.cluster import Cluster
from recsys_lab.errors import PlanDoesNotFit
from recsys_lab.plan import ShardingPlan
from recsys_lab.plan.memory import bytes_beneath, bytes_of_ranks, check_beneath
from recsys_lab.plan.sharding_plan import Placement
from recsys_lab.plan.store import DISK_CACHED, DISK_HOST_CACHED, HOST, HOST_PAGED, ON_DISK, UNCACHED, Store
from recsys_lab.plan.store_facts import least_share, samples_of
from recsys_lab.plan.store_steps import PAGE_BYTES, pages_touched, record_bytes
from recsys_lab.plan.tiers import is_alone
from recsys_lab.sharders.base import PlanInputs
from recsys_lab.tables import Table
from recsys_lab.tables.cache_hits import cache_hits
from recsys_lab.tables.spec import READ_BYTES
from recsys_lab.units import human_bytes

#: Sizes of a cache that are tried, from the smallest that works to nearly all rows.
SIZES = 48
#: Of the rows, those that a cache holds at most. A table with more of them cached stays in memory as a whole.
MOST_CACHED = 0.95
#: What a store costs an iteration however little moves, per shard: rows of it travel on their own.
STORE_MS = 0.05
HALVINGS = 60


@dataclass(frozen=True)
class Menu:
    """What one table may have: `stores` [K], the first of which is None where it may stay; `ms` [K], over all of its ranks together."""

    stores: tuple[Store | None, ...]
    ms: np.ndarray


def with_caches(
    plan: ShardingPlan,
    inputs: PlanInputs,
    kinds: Sequence[str],
    policy: str,
    in_flight: int,
    has_budget: bool = True,
    host_share: float = 0.0,
) -> ShardingPlan:
    """`plan` with stores of `kinds`, so that it fits `inputs.cluster`. PlanDoesNotFit, with the memory that would do, where none does.

    `has_budget`: the memory is a budget that can be raised. `host_share`: of three levels, the rows that the hosts' memory holds.
    """
    menus = [_menu(t, p, inputs, kinds, policy, in_flight, host_share) for t, p in zip(plan.tables, plan.placements)]
    shards, beneath = _Shards.of(plan, menus, inputs), bytes_beneath(inputs.cluster, kinds[0] in ON_DISK)
    free = _free_bytes(plan, inputs)
    cheapest = shards.at_price(math.inf)
    if (shards.bytes_of_ranks(cheapest) > free).any():
        raise _too_small(inputs, shards, cheapest, free, has_budget)
    choices = _chosen(shards, free)
    if (shards.bytes_beneath(choices) > beneath).any():
        choices = _chosen(shards.within(beneath, free), free)
    placements = tuple(replace(p, store=menu.stores[k]) for p, menu, k in zip(plan.placements, menus, choices))
    cached_plan = replace(plan, placements=placements)
    check_beneath(cached_plan, inputs.workload, inputs.cluster)
    return cached_plan


def store_with(kind: str, share: float, policy: str, host_share: float) -> Store:
    """A cache of that share. Of three levels, with no less in the host's memory."""
    return Store(kind, share, policy, max(host_share, share) if kind == DISK_HOST_CACHED else 0.0)


def with_share(plan: ShardingPlan, inputs: PlanInputs, store: Store, in_flight: int) -> ShardingPlan:
    """`plan` with `store` for each table that ranks hold alone, and whose cache then holds the rows of the batches in flight."""
    samples = partial(samples_of, world_size=inputs.cluster.world_size, batch_size=inputs.workload.batch_size)

    def leaves(table: Table, placement: Placement) -> bool:
        share = least_share(table, placement, inputs.access[table.name], samples(placement), in_flight)
        return is_alone(placement) and share <= store.cached_share

    placements = (replace(p, store=store) if leaves(t, p) else p for t, p in zip(plan.tables, plan.placements))
    return replace(plan, placements=tuple(placements))


def _chosen(shards: _Shards, free: np.ndarray) -> np.ndarray:
    """[T]: at the lowest price of a byte at which every rank fits, and with the remaining memory spent."""
    low, high = 1e-18, 1.0  # ms a byte
    while (shards.bytes_of_ranks(shards.at_price(high)) > free).any():
        high *= 1e3
    for _ in range(HALVINGS):
        middle = math.sqrt(low * high)
        if (shards.bytes_of_ranks(shards.at_price(middle)) > free).any():
            low = middle
        else:
            high = middle
    return shards.filled_up(shards.at_price(high), free)


def memory_span_gb(
    plan: ShardingPlan, inputs: PlanInputs, kinds: Sequence[str], policy: str, in_flight: int, host_share: float = 0.0
) -> tuple[float, float]:
    """The memory a rank with which `plan` fits: with the fewest rows in it that work, and with all of them."""
    menus = [_menu(t, p, inputs, kinds, policy, in_flight, host_share) for t, p in zip(plan.tables, plan.placements)]
    beneath, memory = bytes_beneath(inputs.cluster, kinds[0] in ON_DISK), bytes_of_ranks(plan, inputs.workload)
    shards = _Shards.of(plan, menus, inputs).within(beneath, np.full(plan.world_size, math.inf))
    tables = np.asarray(memory.weights) + np.asarray(memory.optimizer_state)
    usable_share = 1 - inputs.cluster.reserved_memory_share
    spans = []
    for choices in (shards.at_price(math.inf), np.zeros(len(menus), dtype=int)):
        more = shards.bytes_of_ranks(choices) - tables
        spans.append(float(np.maximum((np.asarray(memory.lasting) + more) / usable_share, np.asarray(memory.totals) + more).max()) / 1e9)
    return spans[0], spans[1]


@dataclass(frozen=True)
class _Shards:
    """`ms` [T, K], inf where a table has fewer choices; `sizes` [S, K]: bytes in memory of each shard under each choice of its table."""

    ms: np.ndarray
    sizes: np.ndarray
    table: np.ndarray
    rank: np.ndarray
    hosts: int
    ranks_per_host: int

    @staticmethod
    def of(plan: ShardingPlan, menus: Sequence[Menu], inputs: PlanInputs) -> _Shards:
        """One entry for each rank of each shard."""
        most = max(len(menu.stores) for menu in menus)
        ms, tables, ranks, sizes = np.full((len(menus), most), math.inf), [], [], []
        for number, (table, placement, menu) in enumerate(zip(plan.tables, plan.placements, menus)):
            ms[number, : len(menu.ms)] = menu.ms
            for shard in placement.shards:
                size = record_bytes(table, shard.cols, inputs.workload)
                of_choice = _sizes(menu.stores, shard.rows, size) + [0] * (most - len(menu.stores))
                for rank in shard.ranks:
                    tables.append(number)
                    ranks.append(rank)
                    sizes.append(of_choice)
        return _Shards(ms, np.asarray(sizes, dtype=float), np.asarray(tables), np.asarray(ranks), plan.hosts, plan.ranks_per_host)

    def of_tables(self) -> np.ndarray:
        """[T, K]: bytes of all ranks."""
        totals = np.zeros_like(self.ms)
        np.add.at(totals, self.table, self.sizes)
        return totals

    def at_price(self, price: float) -> np.ndarray:
        """[T]: of each table the best choice at so many ms a byte. At inf, that with the fewest bytes."""
        cost = np.where(np.isfinite(self.ms), self.of_tables(), math.inf) if math.isinf(price) else self.ms + price * self.of_tables()
        return cost.argmin(axis=1)

    def bytes_of_ranks(self, choices: np.ndarray) -> np.ndarray:
        """[R]"""
        bytes_of_shards = self.sizes[np.arange(len(self.table)), choices[self.table]]
        return np.bincount(self.rank, weights=bytes_of_shards, minlength=self.hosts * self.ranks_per_host)

    def bytes_beneath(self, choices: np.ndarray) -> np.ndarray:
        """[H]: of each host's memory, or its disk. A cache has copies, so a row with a store counts there either way."""
        bytes_of_shards = np.where(choices[self.table] > 0, self.sizes[:, 0], 0.0)
        return np.bincount(self.rank // self.ranks_per_host, weights=bytes_of_shards, minlength=self.hosts)

    def within(self, beneath: float, free: np.ndarray) -> _Shards:
        """The same, with some tables that must stay as a whole. All others then take no more than `beneath` of a host.

        Tables of a host that is too small, no larger than what is `free`. They are in falling order of what they would wait for a byte.
        """
        least, shards = self.at_price(math.inf), self
        waits = self.ms[np.arange(len(least)), least] / self.of_tables()[:, 0]
        for number in np.argsort(-waits):
            lacking = shards.bytes_beneath(least) > beneath
            if not lacking.any():
                break
            if not least[number] or not lacking[self.rank[self.table == number] // self.ranks_per_host].any():
                continue
            with_stay = shards.staying(int(number))
            if (with_stay.bytes_of_ranks(least_with_stay := with_stay.at_price(math.inf)) <= free).all():
                shards, least = with_stay, least_with_stay
        return shards

    def staying(self, number: int) -> _Shards:
        """The same with one table in device memory as a whole."""
        ms = self.ms.copy()
        ms[number, 1:] = math.inf
        return replace(self, ms=ms)

    def filled_up(self, choices: np.ndarray, free: np.ndarray) -> np.ndarray:
        """`choices` with what is `free` spent: for each table, the one that gains most first, the fastest choice that still fits."""
        waits = self.ms[np.arange(len(choices)), choices]  # a table that stays waits for nothing
        unspent = free - self.bytes_of_ranks(choices)
        for number in np.argsort(-waits):
            of_table = self.table == number
            for choice in np.argsort(self.ms[number]):
                if self.ms[number, choice] >= self.ms[number, choices[number]]:
                    break
                more = self.sizes[of_table, choice] - self.sizes[of_table, choices[number]]
                of_rank = np.bincount(self.rank[of_table], weights=more, minlength=self.hosts * self.ranks_per_host)
                if (of_rank <= unspent).all():
                    unspent, choices[number] = unspent - of_rank, choice
                    break
        return choices


def _menu(
    table: Table, placement: Placement, inputs: PlanInputs, kinds: Sequence[str], policy: str, in_flight: int, host_share: float
) -> Menu:
    stays = Menu((None,), np.zeros(1))
    if not is_alone(placement):
        return stays
    samples, access = samples_of(placement, inputs.cluster.world_size, inputs.workload.batch_size), inputs.access[table.name]
    shards = sum(shard.rows > 0 for shard in placement.shards)
    least = math.ceil(least_share(table, placement, access, samples, in_flight) * 1e6 + 1) / 1e6
    stores: list[Store | None] = [None]
    for kind in kinds:
        if kind in UNCACHED:
            stores.append(Store(kind, 0.0, policy))
        elif least < MOST_CACHED:
            shares = np.geomspace(least, MOST_CACHED, SIZES).clip(least, MOST_CACHED).tolist()
            stores += [store_with(kind, share, policy, host_share) for share in shares]
    size = record_bytes(table, table.dim, inputs.workload)
    return Menu(tuple(stores), np.asarray([_ms(table, store, inputs, samples, size, shards, in_flight) for store in stores]))


def _sizes(stores: Sequence[Store | None], rows: int, size: int) -> list[int]:
    """Bytes in memory of a shard of so many rows under each of `stores`."""
    return [rows * size if store is None else store.cached_rows(rows) * size + store.place_bytes(rows) for store in stores]


def _ms(table: Table, store: Store | None, inputs: PlanInputs, samples: int, size: int, shards: int, in_flight: int) -> float:
    """What rows on their way cost in an iteration, over all ranks together."""
    if store is None:
        return 0.0
    access, cluster = inputs.access[table.name], inputs.cluster
    if store.kind == HOST_PAGED:
        pages = pages_touched(access.distinct_rows(samples), table.rows, size)
        return shards * STORE_MS + 2 * pages * PAGE_BYTES / _link(cluster)
    if store.kind == HOST:
        moved = samples * access.mean_length * table.dim * READ_BYTES[table.dtype] + 2 * access.distinct_rows(samples) * size
        return shards * STORE_MS + moved / _link(cluster)
    misses = cache_hits(access, store.policy, samples, store.cached_share * table.rows, in_flight).misses
    if store.kind == DISK_CACHED:
        return shards * STORE_MS + _disk_ms(misses, size, cluster, _page_cache_share(inputs))
    ms = shards * STORE_MS + 2 * misses * size / _link(cluster)
    if store.kind == DISK_HOST_CACHED:
        of_host = cache_hits(access, store.policy, samples, store.host_share * table.rows, in_flight)
        ms += _disk_ms(of_host.misses, size, cluster, 0.0)
    return ms


def _link(cluster: Cluster) -> float:
    """Bytes a ms between a device and its host's memory."""
    return (cluster.device.host_link_gb_s or cluster.device.memory_bandwidth_gb_s) * 1e6


def _page_cache_share(inputs: PlanInputs) -> float:
    """Of reads from files, those that the host's page cache serves: it has what memory full ranks leave, and all tables are in files.

    0 where its rate is not known. The simulator prices what a plan really leaves.
    """
    disk = inputs.cluster.disk
    return 0.0 if disk is None or disk.cached_reads_per_s is None else host_share(inputs)


def host_share(inputs: PlanInputs) -> float:
    """Of all tables, the part that the hosts' memory has room for beside full ranks. 0 where its size is not known."""
    cluster, host = inputs.cluster, inputs.cluster.host
    if host is None:
        return 0.0
    ranks_gb = cluster.ranks_per_host * cluster.device.memory_gb if cluster.device.kind == "cpu" else 0.0
    return min(max(host.memory_gb - ranks_gb, 0.0) * 1e9 * cluster.hosts / bytes_of_tables(inputs), 1.0)


def bytes_of_tables(inputs: PlanInputs) -> int:
    """Weights and optimizer state of all tables."""
    return sum(table.weight_bytes + inputs.workload.table_state_bytes(table.rows, table.dim) for table in inputs.tables)


def _disk_ms(rows: float, size: int, cluster: Cluster, cached: float) -> float:
    """Time for so many rows read and written, at a rank's part of its host's disk. A share `cached` of them is read from its page cache.

    Without figures a row takes as long as 4 KiB at 1 GB/s.
    """
    disk, ranks = cluster.disk, cluster.ranks_per_host
    if disk is None:
        return 2 * rows * 4.096e-3 * ranks
    read_ms = (1 - cached) * max(rows * size / (disk.read_gb_s * 1e6), rows / disk.random_reads_per_s * 1e3)
    if cached:
        assert disk.cached_reads_per_s is not None
        read_ms += cached * rows / disk.cached_reads_per_s * 1e3
    write_ms = rows * size / (disk.write_gb_s * 1e6)  # what leaves together is written together
    return (read_ms + write_ms) * ranks


def _free_bytes(plan: ShardingPlan, inputs: PlanInputs) -> np.ndarray:
    """[R]: the bytes for tables beside all else that lasts, and those for all of it beside the buffers."""
    memory, cluster = bytes_of_ranks(plan, inputs.workload), inputs.cluster
    tables = np.asarray(memory.weights) + np.asarray(memory.optimizer_state)
    whole = int(cluster.device.memory_gb * 1e9)
    return np.minimum(cluster.usable_memory_bytes - np.asarray(memory.lasting), whole - np.asarray(memory.totals)) + tables


def _too_small(inputs: PlanInputs, shards: _Shards, choices: np.ndarray, free: np.ndarray, has_budget: bool) -> PlanDoesNotFit:
    """Of the rank that lacks most, with the budget at which all of it would fit."""
    cluster, bytes_held = inputs.cluster, shards.bytes_of_ranks(choices)
    rank = int((bytes_held - free).argmax())
    lacking = bytes_held[rank] - free[rank]
    enough = cluster.device.memory_gb + lacking / 1e9 / (1 - cluster.reserved_memory_share)
    return PlanDoesNotFit(
        f"the smallest caches that hold the rows of the batches in flight lack {human_bytes(lacking)} on rank {rank}",
        where=f"cluster {cluster.name}",
        given=f"{cluster.device.memory_gb:g} GB a rank",
        allowed=f"{_rounded_up(enough):g} GB or more",
        remedy="take smaller batches, more ranks or " + ("a larger sharder.memory_budget_gb" if has_budget else "devices with more memory"),
    )


def _rounded_up(figure: float) -> float:
    """To three digits."""
    unit = 10.0 ** (math.floor(math.log10(figure)) - 2)
    return math.ceil(figure / unit) * unit
