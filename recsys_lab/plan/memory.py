"""How many bytes a plan puts on each rank, and whether they fit, before anything is allocated."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from recsys_lab.cluster import Cluster
from recsys_lab.errors import PlanDoesNotFit
from recsys_lab.plan.sharding_plan import ShardingPlan
from recsys_lab.plan.workload import Workload
from recsys_lab.units import human_bytes


@dataclass(frozen=True)
class RankMemory:
    """Bytes on each rank, one entry a rank. `buffers` are activations of the dense part and pooled embeddings with their gradients."""

    weights: tuple[int, ...]
    optimizer_state: tuple[int, ...]
    dense: tuple[int, ...]
    buffers: tuple[int, ...]

    @property
    def totals(self) -> tuple[int, ...]:
        return tuple(sum(parts) for parts in zip(self.weights, self.optimizer_state, self.dense, self.buffers))

    @property
    def max(self) -> int:
        return max(self.totals)

    @property
    def mean(self) -> float:
        return sum(self.totals) / len(self.totals)


def bytes_of_ranks(plan: ShardingPlan, workload: Workload) -> RankMemory:
    """Table weights and their optimizer state by shard; the dense part on every rank; buffers for one batch in FP32.

    A replicated table's gradient is dense and counts with its optimizer state. Buffers: the pooled outputs that a rank computes for
    the global batch and receives for its own, each with its gradient.
    """
    world = plan.world_size
    weights, state, columns = [0] * world, [0] * world, [0] * world
    received = sum(len(table.features) * table.dim for table in plan.tables) * workload.batch_size
    for table, placement in zip(plan.tables, plan.placements):
        replicated = placement.scheme == "data_parallel"
        for shard in placement.shards:
            size = shard.rows * shard.cols * table.row_bytes // table.dim
            kept = workload.table_state_bytes(shard.rows, shard.cols) + (size if replicated else 0)
            outputs = 0 if replicated else len(table.features) * shard.cols * workload.batch_size * world
            for rank in shard.ranks:
                weights[rank] += size
                state[rank] += kept
                columns[rank] += outputs
    activations = math.ceil(workload.activation_bytes_per_sample * workload.batch_size)
    buffers = tuple(activations + 2 * 4 * (held + received) for held in columns)
    return RankMemory(tuple(weights), tuple(state), (workload.dense_bytes,) * world, buffers)


def check_fits(plan: ShardingPlan, workload: Workload, cluster: Cluster) -> RankMemory:
    """The plan's bytes, if every rank of the cluster can hold its own.

    Raises PlanDoesNotFit with what is missing on the fullest rank and the nearest change that would fit.
    """
    memory = bytes_of_ranks(plan, workload)
    limit = cluster.usable_memory_bytes
    if memory.max <= limit:
        return memory
    rank = memory.totals.index(memory.max)
    parts = ", ".join(
        f"{name} {human_bytes(getattr(memory, field)[rank])}"
        for name, field in (("weights", "weights"), ("optimizer state", "optimizer_state"), ("dense", "dense"), ("buffers", "buffers"))
    )
    raise PlanDoesNotFit(
        f"the plan lacks {human_bytes(memory.max - limit)} on rank {rank}: it needs {human_bytes(memory.max)} ({parts})",
        where=f"cluster {cluster.name}",
        allowed=f"{human_bytes(limit)} a rank, {1 - cluster.reserved_memory_share:.0%} of {cluster.device.memory_gb:g} GB",
        remedy=f"nearest change that would fit: {_nearest_change(plan, workload, cluster, memory)}",
    )


def _nearest_change(plan: ShardingPlan, workload: Workload, cluster: Cluster, memory: RankMemory) -> str:
    """The first that fits of: spread evenly, FP16 tables, an optimizer with less state, a smaller batch, more hosts."""
    limit, world = cluster.usable_memory_bytes, plan.world_size
    split = sum(memory.weights) + sum(memory.optimizer_state)
    fixed = memory.dense[0] + max(memory.buffers)
    replicated = sum(t.weight_bytes for t, p in zip(plan.tables, plan.placements) if p.scheme == "data_parallel")
    if fixed + split / world <= limit and not replicated:
        return "spread the rows over all ranks: sharder=torchrec_row_wise"
    if any(table.dtype == "fp32" for table in plan.tables):
        halved = replace(plan, tables=tuple(replace(t, dtype="fp16" if t.dtype == "fp32" else t.dtype) for t in plan.tables))
        if bytes_of_ranks(halved, workload).max <= limit:
            return "tables in FP16: half the bytes per row"
    if workload.sparse_optimizer in ("adam", "adagrad"):
        lighter = replace(workload, sparse_optimizer="row_wise_adagrad")
        if bytes_of_ranks(plan, lighter).max <= limit:
            return "sparse optimizer row_wise_adagrad: one state a row"
    room = limit - memory.dense[0]
    if room <= 0:
        return f"a smaller dense part: it alone needs {human_bytes(memory.dense[0])}"
    once = sum(t.weight_bytes + workload.table_state_bytes(t.rows, t.dim) for t in plan.tables)
    smaller = max(memory.weights[r] + memory.optimizer_state[r] for r in range(world))
    if smaller <= room:
        share = (room - smaller) / max(max(memory.buffers), 1)
        return f"a batch of at most {max(int(workload.batch_size * share), 0)} samples a rank"
    hosts = _hosts_that_fit(once, room, cluster)
    return f"cluster.hosts={hosts} with sharder=torchrec_row_wise" if hosts else "a smaller batch, and more hosts or fewer rows"


def _hosts_that_fit(once: int, room: float, cluster: Cluster) -> int | None:
    """The hosts that hold the tables once, spread evenly over all ranks, with a tenth of the room kept for buffers."""
    ranks = math.ceil(once / (room * 0.9))
    hosts = math.ceil(ranks / cluster.ranks_per_host)
    return hosts if hosts > cluster.hosts else None
