"""Our plan as TorchRec's. The other direction is the planner's (`recsys_lab.planners.torchrec`)."""

from __future__ import annotations

from torchrec.distributed import types as tr
from torchrec.distributed.sharding_plan import placement as device_of
from torchrec.distributed.types import EnumerableShardingSpec, ParameterSharding, ShardMetadata

from recsys_lab.plan import Placement, ShardingPlan


def to_torchrec(plan: ShardingPlan, module: str, device_kind: str) -> tr.ShardingPlan:
    """TorchRec's plan for the embedding module at path `module` of the model, on devices of `device_kind` (cpu, cuda).

    The compute kernel is always `dense`: the executor brings its own look-up, so TorchRec must make no fused optimizer.
    """
    parameters = {p.table: parameter_sharding(p, device_kind, plan.ranks_per_host) for p in plan.placements}
    return tr.ShardingPlan({module: tr.EmbeddingModuleShardingPlan(parameters)})


def parameter_sharding(placement: Placement, device_kind: str, ranks_per_host: int) -> ParameterSharding:
    """One table's part of TorchRec's plan. A replicated table has no sharding spec, as TorchRec has it."""
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
