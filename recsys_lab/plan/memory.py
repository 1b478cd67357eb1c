"""How many bytes a plan puts on each rank, and whether they fit, before anything is allocated."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from recsys_lab.cluster import Cluster
from recsys_lab.errors import HotRankDoesNotFit, PlanDoesNotFit
from recsys_lab.plan.hot_rank import HotRank
from recsys_lab.plan.scheme import ModuleMemory, even_scheme, scheme_of, schemes_of
from recsys_lab.plan.sharding_plan import Placement, Shard, ShardingPlan
from recsys_lab.plan.store import ON_DISK
from recsys_lab.plan.store_steps import record_bytes
from recsys_lab.plan.tiers import is_tiered, tier_of_shard, tier_rows
from recsys_lab.plan.workload import Workload
from recsys_lab.tables import Table
from recsys_lab.tables.hot_rows import shares_of
from recsys_lab.tables.remap import KEPT_IDS, kept_id_bytes
from recsys_lab.tables.spec import ELEMENT_BYTES
from recsys_lab.tables.tiers import REPLICATED
from recsys_lab.units import human_bytes

FP32_BYTES = 4
MOST_HOSTS = 1 << 12  # where the search for a cluster that is big enough ends


@dataclass(frozen=True)
class RankMemory:
    """Bytes on each rank, one entry a rank. `buffers` live for a step: activations, pooled embeddings, and their gradients. `kept`: the
    ids of the last look-ups in tables that are sharded by row. `places`: of tables with a cache, where each row is. `beneath`: what lies in
    the host's memory or on a disk instead.
    """

    weights: tuple[int, ...]
    optimizer_state: tuple[int, ...]
    dense: tuple[int, ...]
    buffers: tuple[int, ...]
    kept: tuple[int, ...]
    places: tuple[int, ...] = ()
    beneath: tuple[int, ...] = ()

    @property
    def lasting(self) -> tuple[int, ...]:
        """What stays from step to step: table weights, their optimizer state, places of cached rows, and the dense arch."""
        return tuple(sum(parts) for parts in zip(self.weights, self.optimizer_state, self.dense, self.places or (0,) * len(self.dense)))

    @property
    def totals(self) -> tuple[int, ...]:
        return tuple(sum(parts) for parts in zip(self.lasting, self.buffers, self.kept))


def bytes_of_ranks(plan: ShardingPlan, workload: Workload) -> RankMemory:
    """What the shards of each rank need, and the dense arch on every rank.

    Buffers are in FP32, each with its gradient. They hold the rows that a rank looks up for others, and the rows that it receives for its
    own batch. They also hold the dense arch's activations. For others it looks up pooled rows of the whole global batch, or the rows of the
    sequences that it serves. Rows that travel once lie beside their copies. Replicated rows add a gradient of all of them, in the format in
    which it travels.
    """
    world, batch = plan.world_size, workload.batch_size
    weights = np.array(plan.weight_bytes_of_ranks())
    state, buffers, places, beneath = (np.zeros(world, dtype=np.int64) for _ in range(4))
    for table, placement in zip(plan.tables, plan.placements):
        rank, rows, cols, of_shard, replicated = placement.copies
        store, near = placement.store, rows
        gradient = ELEMENT_BYTES[workload.replica_format] * rows * cols * replicated
        buffers += _passing(table, placement, plan, workload)
        if store is not None:
            near = np.array([store.cached_rows(shard.rows) for shard in placement.shards])[of_shard]
            np.subtract.at(weights, rank, (rows - near) * cols * table.row_bytes // table.dim)
            np.add.at(places, rank, np.array([store.place_bytes(shard.rows) for shard in placement.shards])[of_shard])
            np.add.at(beneath, rank, np.array([s.rows * record_bytes(table, s.cols, workload) for s in placement.shards])[of_shard])
        np.add.at(state, rank, workload.table_state_bytes(near, cols))
        np.add.at(buffers, rank, gradient)
    modules = _module_memory(plan, workload)
    columns = sum(_vectors(table, workload) * table.dim for table in plan.tables) if modules.received is None else modules.received
    arrived = sum(_asked(t, workload) * t.dim for t, p in plan.by_table.values() if _copies_rows(t, p, workload))
    everywhere = 2 * FP32_BYTES * (batch * columns + arrived) + workload.kept_bytes
    dense = tuple(workload.dense_bytes + size for size in modules.lasting)
    living = tuple(size + math.ceil(everywhere + more) for size, more in zip(buffers.tolist(), modules.buffers))
    tiered = [table for table, placement in plan.by_table.values() if is_tiered(placement)]
    kept = (len(tiered) * KEPT_IDS * kept_id_bytes(tiered),) * world
    weight_bytes, state_bytes, place_bytes, beneath_bytes = (tuple(of.tolist()) for of in (weights, state, places, beneath))
    return RankMemory(weight_bytes, state_bytes, dense, living, kept, place_bytes, beneath_bytes)


def _passing(table: Table, placement: Placement, plan: ShardingPlan, workload: Workload) -> np.ndarray:
    """Bytes of each rank for the rows that it looks up for others."""
    rank, _, cols, of_shard, _ = placement.copies
    size = np.ceil(_bytes_of_served(table, workload) * _served(table, placement, plan, workload)[of_shard] * cols)
    return np.bincount(rank, size, plan.world_size).astype(np.int64)


def _bytes_of_served(table: Table, workload: Workload) -> int:
    """Of each number that a rank looks up for others: itself and its gradient.

    Where a sequence's rows travel in a smaller format, the codec has a clamped copy in the gradient's place, and what travels.
    """
    travels = ELEMENT_BYTES[workload.rows_format]
    return 2 * FP32_BYTES + (travels if table.pooling == "none" and travels < FP32_BYTES else 0)


def _vectors(table: Table, workload: Workload) -> float:
    """What one sample needs of a table: a pooled row a feature, or a row a look-up. KeyError for a sequence of unknown length."""
    return workload.lengths[table.name] if table.pooling == "none" else len(table.features)


def _asked(table: Table, workload: Workload) -> float:
    """Rows, pooled or not, that the batch of one rank asks of a table: of distinct ids where equal ones travel once."""
    access = workload.access.get(table.name)
    if workload.dedup and table.pooling == "none" and access is not None:
        return access.distinct_rows(workload.batch_size)
    return _vectors(table, workload) * workload.batch_size


def _copies_rows(table: Table, placement: Placement, workload: Workload) -> bool:
    return workload.dedup and table.pooling == "none" and not scheme_of(placement).at_home


def _module_memory(plan: ShardingPlan, workload: Workload) -> ModuleMemory:
    """Of tower modules, on the ranks that a scheme gives them. Else all ranks have all of them, for their own samples."""
    for scheme in schemes_of(plan):
        if scheme.module_memory:
            return scheme.module_memory(plan, workload)
    everything = sum(workload.dense_bytes_of(work.parameters) for work in workload.towers)
    passing = sum(work.activation_bytes_per_sample for work in workload.towers) * workload.batch_size
    return ModuleMemory((everything,) * plan.world_size, (passing,) * plan.world_size, None)


def _served(table: Table, placement: Placement, plan: ShardingPlan, workload: Workload) -> np.ndarray:
    """Of each shard, the rows, pooled or not, that a rank looks up for its own and other ranks' samples. It then sends them."""
    scheme, shards = scheme_of(placement), placement.shards
    everyone = 0 if scheme.at_home else plan.world_size
    ranks = np.array([scheme.served_ranks(shard, plan) for shard in shards]) if scheme.served_ranks else np.full(len(shards), everyone)
    if not ranks.any():
        return np.zeros(len(shards))
    share = served_of_sequences(table, placement, workload) if table.pooling == "none" else 1.0
    return _asked(table, workload) * ranks * share


def served_of_sequences(table: Table, placement: Placement, workload: Workload) -> np.ndarray:
    """Of a sequence table's look-ups, the share that each shard serves.

    A tier's look-ups are the sum of its rows' p (FlexShard, equation 2). Within a tier its hottest rows lie where `hot_rows.py` deals them.
    Without access statistics all rows that travel are alike.
    """
    rows, access, begin = tier_rows(placement), workload.access.get(table.name), 0
    access = access.once_a_batch(workload.batch_size) if workload.dedup and access is not None else access
    shares, travelling = np.zeros(len(placement.shards)), table.rows - rows[REPLICATED]
    for tier, count in rows.items():
        own = [number for number, shard in enumerate(placement.shards) if tier_of_shard(placement, shard) == tier]
        if access is None:
            shares[own] = placement.rows_of_shards[own] / (travelling or math.inf)
        elif count:
            part = access if count == table.rows else access.between(begin, begin + count)
            dealt = shares_of(part, [(placement.shards[number].row_start, placement.shards[number].rows) for number in own])
            shares[own] = dealt * (part.mean_length / access.mean_length if access.mean_length else 0.0)
        begin += count
    return shares


def missing_bytes(memory: RankMemory, cluster: Cluster) -> tuple[int, int]:
    """(bytes, rank) of the rank that lacks most. None are missing where the bytes are not above zero.

    What lasts must fit beside the cluster's reserve. The buffers may use the reserve.
    """
    whole = int(cluster.device.memory_gb * 1e9)
    lacking = [max(lasting - cluster.usable_memory_bytes, total - whole) for lasting, total in zip(memory.lasting, memory.totals)]
    return max(lacking), lacking.index(max(lacking))


def check_fits(plan: ShardingPlan, workload: Workload, cluster: Cluster) -> RankMemory:
    """The plan's bytes, if every rank of the cluster can hold its own.

    Args:
        plan: the plan.
        workload: batch, optimizer and what the model keeps in memory.
        cluster: as many ranks as the plan has.

    Returns:
        Bytes of each rank, by what holds them.

    Raises:
        PlanDoesNotFit: with the missing bytes of the rank that lacks most, and the nearest change that would fit. HotRankDoesNotFit, one
            of them, where the plan would fit if all ranks served as many rows.
    """
    memory = bytes_of_ranks(plan, workload)
    missing, rank = missing_bytes(memory, cluster)
    if missing <= 0:
        check_beneath(plan, workload, cluster)
        return memory
    names = {"weights": "weights", "optimizer_state": "optimizer state", "dense": "dense arch", "buffers": "buffers", "kept": "kept ids"}
    parts = ", ".join(f"{name} {human_bytes(getattr(memory, part)[rank])}" for part, name in names.items())
    hot = HotRank({t.name: _passing(t, p, plan, workload) for t, p in plan.by_table.values() if t.pooling == "none"}, rank, workload)
    is_hot = hot.excess_bytes >= missing
    spread = hot.remedy(plan, lambda other, work: _fits(other, work, cluster)) if is_hot else ""
    nearest = (change for change, other, work in _changes(plan, workload, cluster) if _fits(other, work, cluster))
    change = spread or next(nearest, "none found; fewer rows, fewer columns or more memory a rank")
    error = (HotRankDoesNotFit if is_hot else PlanDoesNotFit)(
        f"the plan lacks {human_bytes(missing)} on rank {rank}, which needs {human_bytes(memory.totals[rank])} ({parts}{hot.words()})",
        where=f"cluster {cluster.name}",
        allowed=f"{cluster.device.memory_gb:g} GB a rank, of which {human_bytes(cluster.usable_memory_bytes)} for all but buffers",
        remedy=f"nearest change that would fit: {change}",
    )
    error.needed = memory.totals
    raise error


def check_beneath(plan: ShardingPlan, workload: Workload, cluster: Cluster) -> None:
    """Raises PlanDoesNotFit where a host's memory or disk cannot hold the rows that are there. Only known sizes are checked."""
    if not plan.has_stores:
        return
    for where, on_disk in (("host.memory_gb", False), ("disk.size_gb", True)):
        of_rank = np.zeros(plan.world_size)
        for table, placement in zip(plan.tables, plan.placements):
            store = placement.store
            if store is None or (on_disk and store.kind not in ON_DISK):
                continue
            for shard in placement.shards:
                rows = shard.rows if on_disk else store.host_rows(shard.rows)
                of_rank[list(shard.ranks)] += rows * record_bytes(table, shard.cols, workload)
        of_host = [sum(of_rank[r] for r in cluster.ranks_of_host(host)) for host in range(cluster.hosts)]
        size = bytes_beneath(cluster, on_disk)
        if max(of_host) > size:
            raise PlanDoesNotFit(
                f"the rows of tables with a store take {human_bytes(max(of_host))} of a host",
                where=f"cluster.{where}",
                given=f"{size / 1e9:g} GB",
                remedy="more hosts, or FP16 tables",
            )


def bytes_beneath(cluster: Cluster, on_disk: bool) -> float:
    """What rows may fill of a host's memory, or of its disk. inf where the size is unknown."""
    if on_disk:
        return math.inf if cluster.disk is None else cluster.disk.size_gb * 1e9
    return math.inf if cluster.host is None else cluster.host.memory_gb * 1e9


def _fits(plan: ShardingPlan, workload: Workload, cluster: Cluster) -> bool:
    return missing_bytes(bytes_of_ranks(plan, workload), cluster)[0] <= 0


def _changes(plan: ShardingPlan, workload: Workload, cluster: Cluster) -> Iterator[tuple[str, ShardingPlan, Workload]]:
    """Changes that may help, from small to large (optimizer, sharder, format, batch, hosts).

    Each is for people, with its plan and workload.
    """
    smaller_state = replace(workload, sparse_optimizer="row_wise_adagrad")
    state_bytes, smaller_bytes = (sum(work.table_state_bytes(t.rows, t.dim) for t in plan.tables) for work in (workload, smaller_state))
    if smaller_bytes < state_bytes:
        saved = f"{human_bytes(state_bytes)} of state become {human_bytes(smaller_bytes)}"
        yield f"optimizer.sparse.name=row_wise_adagrad: over all ranks {saved}", plan, smaller_state
    yield "sharder=torchrec_row_wise, which divides every table evenly", _evenly(plan, plan.hosts), workload
    halved = tuple(replace(t, dtype="fp16") if t.dtype == "fp32" else t for t in plan.tables)
    yield "tables in FP16, half the bytes a row", replace(plan, tables=halved), workload
    smaller = [replace(workload, batch_size=workload.batch_size >> n) for n in range(1, workload.batch_size.bit_length())]
    for work in smaller:
        yield _fewer_samples(work, workload), plan, work
    for work in (workload, *smaller):
        if hosts := _fewest_hosts(plan, work, cluster):
            fewer = "" if work is workload else f" and {_fewer_samples(work, workload)}"
            yield f"cluster.hosts={hosts} with sharder=torchrec_row_wise{fewer}", _evenly(plan, hosts), work


def _fewer_samples(work: Workload, than: Workload) -> str:
    return f"{work.batch_size} samples a rank instead of {than.batch_size}"


def _fewest_hosts(plan: ShardingPlan, workload: Workload, cluster: Cluster) -> int | None:
    """The fewest hosts, no fewer than the plan's, that hold the tables divided evenly; None where none do: buffers grow with the ranks."""

    def fits(hosts: int) -> bool:
        return _fits(_evenly(plan, hosts), workload, cluster)

    enough = plan.hosts
    while not fits(enough):
        enough *= 2
        if enough > MOST_HOSTS:
            return None
    fewer = range(max(plan.hosts, enough // 2 + 1), enough)
    return fewer.start + bisect_left(fewer, True, key=fits)


def _evenly(plan: ShardingPlan, hosts: int) -> ShardingPlan:
    """The same tables with their rows in equal blocks over all ranks of `hosts`.

    Of pooled tables only the fullest rank's shard is kept: the first. The ranks of a sequence's blocks serve unlike numbers of look-ups.
    """
    world, scheme = hosts * plan.ranks_per_host, even_scheme().name

    def blocks(table: Table) -> Iterator[Shard]:
        size = math.ceil(table.rows / world)
        for rank in range(world if table.pooling == "none" else 1):
            start = min(rank * size, table.rows)
            yield Shard((rank,), start, min(start + size, table.rows), 0, table.dim)

    return replace(plan, hosts=hosts, placements=tuple(Placement(t.name, scheme, tuple(blocks(t))) for t in plan.tables))
