"""What a shard costs each rank that holds it, in ms (Neo, section 4.1). Communication is by message volume, load by what is looked up.

Volume over bandwidth stands for the time of a message, and latency is added once a shard. The load of a rank is the sum over its shards of
global batch x look-ups a sample x embedding dimension. Here it is in bytes over the memory's bandwidth. Each has a weight.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from recsys_lab.cluster import Cluster
from recsys_lab.plan import ShardingPlan
from recsys_lab.precision import Precision
from recsys_lab.schemes.in_host import GRID_SHARD, TABLE_ROW_WISE
from recsys_lab.schemes.replicated import DATA_PARALLEL
from recsys_lab.schemes.row_blocks import ROW_WISE
from recsys_lab.schemes.tiers import FLEXSHARD
from recsys_lab.sharders.base import PlanInputs
from recsys_lab.tables import AccessStatistics, Table
from recsys_lab.tables.hot_rows import shares_of
from recsys_lab.tables.spec import ELEMENT_BYTES, READ_BYTES
from recsys_lab.units import US_PER_MS, transfer_ms

ID_BYTES, LENGTH_BYTES, GRADIENT_BYTES = ELEMENT_BYTES["int64"], ELEMENT_BYTES["int32"], ELEMENT_BYTES["fp32"]


@dataclass(frozen=True)
class Weights:
    """Of the two costs. Load: forward a row is read. Backward its gradient and the row are read, and the row is written."""

    communication: float = 1.0
    load: float = 4.0


@dataclass(frozen=True)
class Cost:
    """ms on one rank in one iteration."""

    communication: float = 0.0
    load: float = 0.0

    def weighted(self, weights: Weights) -> Cost:
        return Cost(weights.communication * self.communication, weights.load * self.load)

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.communication + other.communication, self.load + other.load)

    @property
    def total(self) -> float:
        return self.communication + self.load


@dataclass(frozen=True)
class Setting:
    """R = `cluster.world_size` ranks of B = `batch_size` samples each. `hot_rows`: ranks that hold hot rows serve more look-ups."""

    access: AccessStatistics
    cluster: Cluster
    precision: Precision
    batch_size: int
    weights: Weights
    hot_rows: bool = True

    @staticmethod
    def of(inputs: PlanInputs, weights: Weights) -> Setting:
        """Of sequences with `dedup` the look-ups are those of distinct ids."""
        work, access = inputs.workload, inputs.access
        once = {t.name: access[t.name].once_a_batch(work.batch_size) for t in inputs.tables if work.dedup and t.pooling == "none"}
        return Setting(AccessStatistics(access.tables | once), inputs.cluster, inputs.precision, work.batch_size, weights)

    def served(self, table: Table, ranges: Sequence[tuple[int, int]]) -> np.ndarray:
        """Of the table's look-ups, the share that each of its `ranges` (first row, rows) serves."""
        access = self.access[table.name]
        if not self.hot_rows or len(access.bucket_rows) < 2:
            return np.array([rows for _, rows in ranges]) / table.rows
        return shares_of(access, ranges)

    def vectors(self, table: Table) -> float:
        """That a sample has from the table: one a feature, or one a look-up of a sequence."""
        return self.access[table.name].mean_length if table.pooling == "none" else len(table.features)

    def weighted(self, table: Table, scheme: str, rows: float, cols: float, served: float | None = None) -> Cost:
        """`cost_of_shard`, weighted."""
        return cost_of_shard(table, scheme, rows, cols, self, served).weighted(self.weights)


def cost_of_shard(table: Table, scheme: str, rows: float, cols: float, setting: Setting, served: float | None = None) -> Cost:
    """Of a shard with the share `rows` of the table's rows and `cols` columns, on each rank that holds it. An empty shard costs nothing.

    `served`: its share of the look-ups; None: as of the rows.
    """
    if not rows or not cols:
        return Cost()
    length, batch, ranks = setting.access[table.name].mean_length, setting.batch_size, setting.cluster.world_size
    element, served = READ_BYTES[table.dtype], rows if served is None else served
    if scheme == DATA_PARALLEL:  # every rank looks up its own samples; the gradients of all rows are averaged, and all rows updated
        size = table.rows * cols
        sync = ring_ms(2 * size * setting.precision.dense_comm_bytes, setting.cluster)
        return Cost(sync + latency_ms(setting.cluster), _read_ms((batch * length + table.rows) * cols * element, setting.cluster))
    if scheme == FLEXSHARD:
        return _within_hosts(table, rows, cols, setting, served)
    looked_up = ranks * batch * length * served
    ids = looked_up * ID_BYTES + ranks * batch * len(table.features) * LENGTH_BYTES
    of_all, both_ways = ranks * batch * setting.vectors(table), setting.precision.both_ways_bytes  # of the samples of all ranks
    vectors, summed = both_ways(of_all * cols, of_all), both_ways(of_all * cols, of_all, summed=True)
    moved = all_to_all_ms(ids, setting.cluster) + latency_ms(setting.cluster)
    if scheme == ROW_WISE and table.pooling != "none":  # each rank has a partial sum of every sample: ReduceScatter, AllGather
        moved += ring_ms(summed, setting.cluster)
    elif scheme in (TABLE_ROW_WISE, GRID_SHARD):  # partial sums within the host, then those of its peers' samples to each peer
        moved += in_host_ms(summed, setting.cluster) + peers_ms(vectors / setting.cluster.ranks_per_host, setting.cluster)
    else:
        moved += all_to_all_ms(vectors * (served if scheme == ROW_WISE else 1.0), setting.cluster)
    return Cost(moved, _read_ms(looked_up * cols * element, setting.cluster))


def _within_hosts(table: Table, rows: float, cols: float, setting: Setting, served: float) -> Cost:
    """Every host has the table, cut by rows over its ranks. Gradients of all rows are averaged between peers, and all rows updated."""
    cluster, precision = setting.cluster, setting.precision
    samples = cluster.ranks_per_host * setting.batch_size
    looked_up, held = samples * setting.access[table.name].mean_length * served, table.rows * rows
    ids = looked_up * ID_BYTES + samples * len(table.features) * LENGTH_BYTES
    of_all = samples * setting.vectors(table)
    vectors = precision.both_ways_bytes(of_all * cols, of_all, summed=table.pooling != "none")
    near = (cluster.ranks_per_host - 1) / cluster.ranks_per_host
    if table.pooling == "none":  # all-to-all, as the ids
        moved = transfer_ms(near * (ids + vectors * served), cluster.near.bandwidth_gb_s)
    else:
        moved = transfer_ms(near * ids, cluster.near.bandwidth_gb_s) + in_host_ms(vectors, cluster)
    averaged = 2 * held * cols * precision.dense_comm_bytes * (cluster.hosts - 1) / cluster.hosts
    moved += transfer_ms(averaged, cluster.cross_host.around_gb_s) + latency_ms(cluster)
    return Cost(moved, _read_ms((looked_up + held) * cols * READ_BYTES[table.dtype], cluster))


@dataclass(frozen=True)
class RankCosts:
    """Weighted ms of each rank [R]. Of communication by scheme, as the tables of one scheme are exchanged together.

    `worst_ms`: what an iteration waits for, as look-up and each exchange wait for their slowest rank.
    """

    communication: Mapping[str, np.ndarray]
    load: np.ndarray

    @property
    def worst_ms(self) -> float:
        return float(sum(of_scheme.max() for of_scheme in self.communication.values()) + self.load.max())

    @property
    def mean_ms(self) -> float:
        return float(sum(of_scheme.mean() for of_scheme in self.communication.values()) + self.load.mean())

    @property
    def imbalance(self) -> float:
        """1 where all ranks are alike."""
        return self.worst_ms / self.mean_ms if self.mean_ms else 1.0


def costs_of_ranks(plan: ShardingPlan, setting: Setting) -> RankCosts:
    """Of any plan of `levels.SCHEMES`. An empty shard costs nothing."""
    load = np.zeros(plan.world_size)
    communication = {placement.scheme: np.zeros(plan.world_size) for placement in plan.placements}
    for table, placement in zip(plan.tables, plan.placements):
        shares = setting.served(table, [(shard.row_start, shard.rows) for shard in placement.shards])
        for shard, served in zip(placement.shards, shares.tolist()):
            cost = setting.weighted(table, placement.scheme, shard.rows / table.rows, shard.cols, served)
            communication[placement.scheme][list(shard.ranks)] += cost.communication
            load[list(shard.ranks)] += cost.load
    return RankCosts(communication, load)


def all_to_all_ms(size_bytes: float, cluster: Cluster) -> float:
    """A rank's `size_bytes` to or from all ranks evenly: near and far at once, so the slower of the two."""
    near, far = cluster.ranks_per_host - 1, cluster.world_size - cluster.ranks_per_host
    part = size_bytes / cluster.world_size
    return max(transfer_ms(near * part, cluster.near.bandwidth_gb_s), transfer_ms(far * part, cluster.cross_host.bandwidth_gb_s))


def in_host_ms(size_bytes: float, cluster: Cluster) -> float:
    """A ring over a host's ranks, once round."""
    ranks = cluster.ranks_per_host
    return transfer_ms(size_bytes * (ranks - 1) / ranks, cluster.near.around_gb_s)


def peers_ms(size_bytes: float, cluster: Cluster) -> float:
    """An all-to-all over the ranks with one local rank, one a host."""
    return transfer_ms(size_bytes * (cluster.hosts - 1) / cluster.hosts, cluster.cross_host.bandwidth_gb_s)


def ring_ms(size_bytes: float, cluster: Cluster) -> float:
    """A ring over all ranks, once round. Each rank of a host drives one over its own cross-host link."""
    ranks, per_host = cluster.world_size, cluster.ranks_per_host
    moved = size_bytes * (ranks - 1) / ranks
    near = transfer_ms(moved, cluster.near.around_gb_s) if per_host > 1 else 0.0
    far = transfer_ms(moved / per_host, cluster.cross_host.around_gb_s) if cluster.hosts > 1 else 0.0
    return max(near, far)


def latency_ms(cluster: Cluster) -> float:
    """Of a message forward and one backward."""
    if cluster.world_size == 1:
        return 0.0
    link = cluster.cross_host if cluster.hosts > 1 else cluster.intra_host
    return 2 * link.latency_us / US_PER_MS


def _read_ms(size_bytes: float, cluster: Cluster) -> float:
    return transfer_ms(size_bytes, cluster.device.memory_bandwidth_gb_s)
