"""How large a checkpoint of a plan is, and how long training waits for it."""

from __future__ import annotations

import numpy as np

from recsys_lab.cluster import Cluster
from recsys_lab.plan import ShardingPlan, Workload
from recsys_lab.plan.workload import READ_BYTES
from recsys_lab.units import GB


def checkpoint_gb(plan: ShardingPlan, workload: Workload) -> float:
    """Weights and optimizer state that the fullest host writes, in 1e9 bytes.

    Of replicas the first rank writes (docs/decisions/checkpoints.md). Rows in a host's memory or on its disk are written too.
    """
    of_rank = np.zeros(plan.world_size)
    for table, placement in zip(plan.tables, plan.placements):
        copies = placement.copies
        first = np.unique(copies.shard, return_index=True)[1]
        rows, cols = copies.rows[first], copies.cols[first]
        size = rows * cols * table.row_bytes / table.dim + workload.table_state_bytes(rows, cols)
        np.add.at(of_rank, copies.rank[first], size)
    parameters = workload.dense_parameters + sum(work.parameters for work in workload.towers)
    of_rank[0] += workload.dense_bytes_of(parameters) - READ_BYTES[workload.dense_format] * parameters  # gradients are not written
    return float(of_rank.reshape(plan.hosts, plan.ranks_per_host).sum(1).max()) / GB


def write_gb_s(cluster: Cluster) -> float:
    """GB/s at which a host puts a checkpoint away while training waits: onto its disk.

    Without a disk on file it copies it into its memory, over the links of its devices.
    """
    return cluster.disk.write_gb_s if cluster.disk is not None else _to_memory_gb_s(cluster)


def read_gb_s(cluster: Cluster) -> float:
    """The same of the way back."""
    return cluster.disk.read_gb_s if cluster.disk is not None else _to_memory_gb_s(cluster)


def _to_memory_gb_s(cluster: Cluster) -> float:
    device = cluster.device
    return cluster.ranks_per_host * (device.host_link_gb_s or device.memory_bandwidth_gb_s)
