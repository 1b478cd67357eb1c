"""Our plan as TorchRec's. The other direction is the planner's (`recsys_lab.sharders.torchrec`)."""

from __future__ import annotations

from collections.abc import Iterable

from torchrec.distributed import types as tr
from torchrec.distributed.sharding_plan import placement as device_of
from torchrec.distributed.types import EnumerableShardingSpec, ParameterSharding, ShardMetadata

from recsys_lab.plan import Placement
from recsys_lab.plan.scheme import scheme_of


def to_torchrec(placements: Iterable[Placement], ranks_per_host: int, device_kind: str) -> tr.EmbeddingModuleShardingPlan:
    """TorchRec's plan for tables under schemes that it has by the same names, on devices of `device_kind` (cpu, cuda).

    A replicated table has no sharding spec, as TorchRec has it. The compute kernel is always `dense`: the executor brings its own look-up,
    so TorchRec must make no fused optimizer.
    """
    plan = {}
    for placement in placements:
        ranks = [rank for shard in placement.shards for rank in shard.ranks]
        shards = [
            ShardMetadata([s.row_start, s.col_start], [s.rows, s.cols], device_of(device_kind, s.ranks[0], ranks_per_host))
            for s in placement.shards
        ]
        spec = None if scheme_of(placement).at_home else EnumerableShardingSpec(shards)
        plan[placement.table] = ParameterSharding(placement.scheme, "dense", ranks, spec)
    return tr.EmbeddingModuleShardingPlan(plan)
