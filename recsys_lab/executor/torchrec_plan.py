"""Our plan as TorchRec's. The other direction is the planner's (`recsys_lab.sharders.torchrec`)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from torchrec.distributed import types as tr
from torchrec.distributed.sharding_plan import placement as device_of
from torchrec.distributed.types import EnumerableShardingSpec, ParameterSharding, ShardMetadata

from recsys_lab.plan import Placement, Shard
from recsys_lab.plan.scheme import scheme_of
from recsys_lab.tables import Table


def to_torchrec(placed: Iterable[tuple[Table, Placement]], ranks_per_host: int, device_kind: str) -> tr.EmbeddingModuleShardingPlan:
    """TorchRec's plan for those tables, whose schemes it has by the same names, on devices of `device_kind` (cpu, cuda).

    A replicated table has no sharding spec, as TorchRec has it. The compute kernel is always `dense`: the executor brings its own look-up,
    so TorchRec must make no fused optimizer.
    """
    plan = {}
    for _, placement in placed:
        ranks = [rank for shard in placement.shards for rank in shard.ranks]
        spec = None if scheme_of(placement).at_home else shards_spec(placement.shards, device_kind, ranks_per_host)
        plan[placement.table] = ParameterSharding(placement.scheme, "dense", ranks, spec)
    return tr.EmbeddingModuleShardingPlan(plan)


def shards_spec(shards: Sequence[Shard], device_kind: str, ranks_per_host: int) -> EnumerableShardingSpec:
    """Of shards on one rank each."""
    places = [device_of(device_kind, shard.ranks[0], ranks_per_host) for shard in shards]
    return EnumerableShardingSpec([ShardMetadata([s.row_start, s.col_start], [s.rows, s.cols], at) for s, at in zip(shards, places)])
