"""Our plan as TorchRec's. The other direction is the planner's (`recsys_lab.sharders.torchrec.planner`)."""

from __future__ import annotations

from torchrec.distributed import types as tr
from torchrec.distributed.sharding_plan import placement as device_of
from torchrec.distributed.types import EnumerableShardingSpec, ParameterSharding, ShardMetadata

from recsys_lab.plan import Placement, ShardingPlan
from recsys_lab.plan.sharding_plan import SCHEMES


def to_torchrec(plan: ShardingPlan, device_kind: str) -> tr.EmbeddingModuleShardingPlan:
    """TorchRec's plan for the tables that `plan` places as a whole, on devices of `device_kind` (cpu, cuda)."""
    placements = [p for p in plan.placements if p.scheme in SCHEMES]
    return tr.EmbeddingModuleShardingPlan({p.table: parameter_sharding(p, device_kind, plan.ranks_per_host) for p in placements})


def parameter_sharding(placement: Placement, device_kind: str, ranks_per_host: int) -> ParameterSharding:
    """One table's part of TorchRec's plan. A replicated table has no sharding spec, as TorchRec has it.

    The compute kernel is always `dense`: the executor brings its own look-up, so TorchRec must make no fused optimizer.
    """
    ranks = [rank for shard in placement.shards for rank in shard.ranks]
    spec = None
    if placement.scheme != "data_parallel":
        spec = EnumerableShardingSpec(
            [
                ShardMetadata(
                    shard_offsets=[shard.row_start, shard.col_start],
                    shard_sizes=[shard.rows, shard.cols],
                    placement=device_of(device_kind, rank, ranks_per_host),
                )
                for shard, rank in zip(placement.shards, ranks, strict=True)
            ]
        )
    return ParameterSharding(sharding_type=placement.scheme, compute_kernel="dense", ranks=ranks, sharding_spec=spec)


def even_blocks(rows: int, cols: int, ranks: int, device_kind: str) -> ParameterSharding:
    """Row-wise over a group of `ranks`, in TorchRec's equal blocks: the last ones may be short or empty."""
    block = -(-rows // ranks)
    starts = [min(rank * block, rows) for rank in range(ranks + 1)]
    shards = [
        ShardMetadata(shard_offsets=[a, 0], shard_sizes=[b - a, cols], placement=device_of(device_kind, rank, ranks))
        for rank, (a, b) in enumerate(zip(starts, starts[1:]))
    ]
    return ParameterSharding("row_wise", "dense", list(range(ranks)), EnumerableShardingSpec(shards))
