"""FlexShard's analytical model (arXiv 2301.02959, sections 3.2 and 4.2, tables 1 to 3): what one rank expects of one iteration.

Every cost is linear in E (rows) and L (look-ups a sample). So one function serves a table, a range of rows, a single row, and numpy arrays
of these. For a range L is the sum of the rows' p (equation 2). For a single row E = 1 and L = p.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

from recsys_lab.cluster import Cluster
from recsys_lab.plan import Workload
from recsys_lab.plan.workload import STATE_PER_WEIGHT
from recsys_lab.precision import Precision
from recsys_lab.sharders.flexshard.bandwidths import Bandwidths
from recsys_lab.tables.spec import ELEMENT_BYTES, STORED_BYTES
from recsys_lab.tables.tiers import HOST_SHARDED, REPLICATED, ROW_SHARDED
from recsys_lab.units import transfer_ms

#: Bytes of a replicated row over those of its weights: TorchRec's, as the paper takes it.
PAPER_REPLICA_MULTIPLIER = 6.0
#: Ours, of a replicated row: a gradient of all rows and what its all-reduce needs, over the gradient. With FP32 weights a replica was
#: measured as 2.08 to 2.13 times its weights, before the optimizer's state (experiments/benchmarks/2026-11_replicas.md).
REPLICA_GRADIENT = 1.12


@dataclass(frozen=True)
class Setting:
    """Table 1. Sizes are of one element: stored in a table, of a looked-up row in memory, and travelling forward, backward and as a
    replicated row's gradient. The paper has one `dtype` for all. FP8's scale of a row is left out: nothing here depends on D.
    """

    hosts: int  # N
    ranks_per_host: int  # W
    batch_size: int  # B, of a rank
    bandwidths: Bandwidths
    replica_multiplier: float = PAPER_REPLICA_MULTIPLIER
    shard_multiplier: float = 1.0
    dtype_bytes: int = 4
    buffer_bytes: int = 4
    forward_bytes: int = 4
    backward_bytes: int = 4
    gradient_bytes: int = 4
    summed_bytes: int = 8  # both ways, of a number that a collective sums

    @property
    def world_size(self) -> int:  # U
        return self.hosts * self.ranks_per_host


def setting_of(
    cluster: Cluster,
    precision: Precision,
    workload: Workload,
    table_format: str,
    replica_multiplier: float | None = None,
    bandwidths: dict[str, float] | None = None,
) -> Setting:
    """A run's setting, whose tables are stored in `table_format`.

    Without `replica_multiplier` both multipliers are our executor's. A replicated row has its weights, a gradient in the format of
    `precision.dense_comm` and the optimizer's state in FP32; a row-sharded row has no gradient that lasts. With it a row-sharded row costs
    its weights alone, as in table 2. Rows that are looked up are FP32 in memory, whatever they are stored in.
    """
    stored, gradient = STORED_BYTES[table_format], ELEMENT_BYTES[workload.replica_format]
    state = ELEMENT_BYTES["fp32"] * STATE_PER_WEIGHT[workload.sparse_optimizer] / stored
    multipliers = 1 + REPLICA_GRADIENT * gradient / stored + state, 1 + state
    if replica_multiplier is not None:
        multipliers = replica_multiplier, 1.0
    return Setting(
        cluster.hosts,
        cluster.ranks_per_host,
        workload.batch_size,
        Bandwidths.of(cluster, bandwidths),
        *multipliers,
        dtype_bytes=stored,
        forward_bytes=precision.forward_bytes(1, 0),
        backward_bytes=precision.backward_bytes(1, 0),
        gradient_bytes=gradient,
        summed_bytes=precision.both_ways_bytes(1, 0, summed=True),
    )


@dataclass(frozen=True)
class Costs:
    """The six metrics of section 3.2, of one rank and one iteration.

    `rows_accessed`: rows read from the rank's own memory (table 2 multiplies by D: elements).
    `dynamic_memory_bytes`: the bytes alive at once, not summed over the passes. Table 5's rows follow only so.
    `dynamic_communication_ms`: table 3's entry forward and again backward, as section 3.2 has it. Table 6 has 307 ms for 3.9 GB each way.
    That is 25 GB/s, the network's bandwidth, only if both are counted.
    """

    static_memory_bytes: Any = 0.0
    input_ids: Any = 0.0
    rows_accessed: Any = 0.0
    dynamic_memory_bytes: Any = 0.0
    dynamic_communication_ms: Any = 0.0
    static_communication_ms: Any = 0.0

    @property
    def memory_bytes(self) -> Any:
        return self.static_memory_bytes + self.dynamic_memory_bytes

    @property
    def communication_ms(self) -> Any:
        return self.dynamic_communication_ms + self.static_communication_ms

    def __add__(self, other: Costs) -> Costs:
        return Costs(**{f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(Costs)})


def row_sharding(e: Any, d: Any, length: Any, s: Setting) -> Costs:
    """RW: E / U rows a rank. The rank that holds a look-up's row sends it. The rank that requested it keeps it."""
    looked_up = s.batch_size * length
    return Costs(
        static_memory_bytes=s.shard_multiplier * e / s.world_size * d * s.dtype_bytes,
        input_ids=looked_up,
        rows_accessed=s.world_size * s.batch_size * length / s.world_size,
        dynamic_memory_bytes=2 * looked_up * d * s.buffer_bytes,
        dynamic_communication_ms=transfer_ms(looked_up * d * (s.forward_bytes + s.backward_bytes), s.bandwidths.a2a_global_gb_s),
    )


def column_sharding(e: Any, d: Any, length: Any, s: Setting) -> Costs:
    """CW: all rows, D / U columns of each. Every rank is sent all ids."""
    looked_up = s.batch_size * length
    return Costs(
        static_memory_bytes=s.shard_multiplier * e * d / s.world_size * s.dtype_bytes,
        input_ids=s.world_size * looked_up,
        rows_accessed=s.world_size * looked_up / s.world_size,
        dynamic_memory_bytes=2 * looked_up * d * s.buffer_bytes,
        dynamic_communication_ms=transfer_ms(looked_up * d * (s.forward_bytes + s.backward_bytes), s.bandwidths.a2a_global_gb_s),
    )


def replication(e: Any, d: Any, length: Any, s: Setting) -> Costs:
    """DP: all rows on every rank. Only the gradients of all rows travel."""
    looked_up = s.batch_size * length
    return Costs(
        static_memory_bytes=s.replica_multiplier * e * d * s.dtype_bytes,
        rows_accessed=looked_up,
        dynamic_memory_bytes=looked_up * d * s.buffer_bytes,
        static_communication_ms=transfer_ms(e * d * s.gradient_bytes, s.bandwidths.ar_global_gb_s),
    )


def flex(e: Any, d: Any, length: Any, s: Setting) -> Costs:
    """Flex: row-wise within each host (E / W rows a rank), replicated across hosts."""
    looked_up = s.batch_size * length
    return Costs(
        static_memory_bytes=s.replica_multiplier * e / s.ranks_per_host * d * s.dtype_bytes,
        input_ids=looked_up,
        rows_accessed=s.ranks_per_host * s.batch_size * length / s.ranks_per_host,
        dynamic_memory_bytes=2 * looked_up * d * s.buffer_bytes,
        dynamic_communication_ms=transfer_ms(looked_up * d * (s.forward_bytes + s.backward_bytes), s.bandwidths.a2a_intra_gb_s),
        static_communication_ms=transfer_ms(e * d * s.gradient_bytes, s.bandwidths.ar_cross_gb_s),
    )


Strategy = Callable[[Any, Any, Any, Setting], Costs]
#: What each of the planner's tiers costs.
TIER_COSTS: dict[str, Strategy] = {REPLICATED: replication, HOST_SHARDED: flex, ROW_SHARDED: row_sharding}


def break_point(one: Strategy, other: Strategy, metric: str, s: Setting) -> float:
    """The p above which a row costs less under `one` than under `other` (section 4.2); `metric`: memory_bytes | communication_ms.

    0 if it always does, infinite if it never does. For DP against RW memory is neutral at B p = m - 1/U, where a row takes as much in a
    table as looked up.
    """

    def slope_and_start(strategy: Strategy) -> tuple[float, float]:
        return getattr(strategy(0, 1, 1.0, s), metric), getattr(strategy(1, 1, 0.0, s), metric)

    (slope, start), (other_slope, other_start) = slope_and_start(one), slope_and_start(other)
    falls, lead = other_slope - slope, start - other_start
    if falls <= 0:
        return 0.0 if lead < 0 else float("inf")
    return max(lead / falls, 0.0)
