"""Our plan as TorchRec's. The other direction is the planner's (`recsys_lab.sharders.torchrec`)."""

from __future__ import annotations

from collections.abc import Iterable

from torchrec.distributed import types as tr
from torchrec.distributed.sharding_plan import placement as device_of
from torchrec.distributed.types import EnumerableShardingSpec, ParameterSharding, ShardMetadata

from recsys_lab.plan import Placement, Shard
from recsys_lab.plan.scheme import scheme_of
from recsys_lab.tables import Table


def to_torchrec(placed: Iterable[tuple[Table, Placement]], ranks_per_host: int, device_kind: str) -> tr.EmbeddingModuleShardingPlan:
    """TorchRec's plan for those tables, whose schemes it has by the same names, on devices of `device_kind` (cpu, cuda)."""
    return tr.EmbeddingModuleShardingPlan({p.table: parameter_sharding(p, device_kind, ranks_per_host) for _, p in placed})


def parameter_sharding(placement: Placement, device_kind: str, ranks_per_host: int) -> ParameterSharding:
    """One table's part of TorchRec's plan. A replicated table has no sharding spec, as TorchRec has it.

    The compute kernel is always `dense`: the executor brings its own look-up, so TorchRec must make no fused optimizer.
    """
    ranks = [rank for shard in placement.shards for rank in shard.ranks]
    spec = None if scheme_of(placement).at_home else shards_spec(placement.shards, device_kind, ranks_per_host)
    return ParameterSharding(sharding_type=placement.scheme, compute_kernel="dense", ranks=ranks, sharding_spec=spec)


def shards_spec(shards: Iterable[Shard], device_kind: str, ranks_per_host: int) -> EnumerableShardingSpec:
    """Of shards on one rank each."""
    return EnumerableShardingSpec(
        [
            ShardMetadata(
                shard_offsets=[shard.row_start, shard.col_start],
                shard_sizes=[shard.rows, shard.cols],
                placement=device_of(device_kind, shard.ranks[0], ranks_per_host),
            )
            for shard in shards
        ]
    )
