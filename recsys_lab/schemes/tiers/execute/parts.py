"""The tiers of tables that are placed row by row: at home, or over a process group by TorchRec's exchange of row blocks.

Each tier has process groups of its own: their collectives run beside one another.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from torchrec.distributed.types import ParameterSharding
from torchrec.modules.embedding_configs import EmbeddingBagConfig, PoolingType

from recsys_lab.executor.collection import TorchRecPart, shard_collection
from recsys_lab.executor.execution import Config, Request
from recsys_lab.executor.groups import env_of, own_group
from recsys_lab.executor.lookup import BatchedLookup, ToHold
from recsys_lab.executor.replicas import Replicas
from recsys_lab.executor.table_batch import HeldShard, TableBatch
from recsys_lab.executor.torchrec_plan import shards_spec
from recsys_lab.models.table_configs import format_of
from recsys_lab.plan import ShardingPlan
from recsys_lab.plan.tiers import tier_rows
from recsys_lab.schemes.row_blocks.placement import ROW_WISE, row_blocks
from recsys_lab.schemes.tiers.placement import holders
from recsys_lab.tables.tiers import HOST_SHARDED, REPLICATED, ROW_SHARDED, TIERS


@dataclass(frozen=True)
class TierParts:
    """By tier. Those that are exchanged are in the order in which their exchanges are issued."""

    exchanged: dict[str, TorchRecPart]
    at_home: dict[str, BatchedLookup]

    @property
    def batches(self) -> list[TableBatch]:
        exchanged = [batch for part in self.exchanged.values() for batch in part.batches]
        return exchanged + [batch for lookup in self.at_home.values() for batch in lookup.batches]


def parts_of(request: Request) -> TierParts:
    """The tiers of the request's tables, without those that have no rows. Pooled rows are summed; a mean is for the caller to divide.

    A tier whose process group has one member only is looked up at home. Collective: every rank makes all groups, its own or not.
    """
    parts, device = TierParts({}, {}), request.device
    for tier in reversed(TIERS):  # the slowest exchange first
        rows = {p.table: list(tier_rows(p).values()) for _, p in request.placed}
        own = [_only(config, count) for config in request.configs if (count := rows[config.name][TIERS.index(tier)])]
        if not own:
            continue
        begin = {table: sum(counts[: TIERS.index(tier)]) for table, counts in rows.items()}  # the first of the tier's rows
        group, replicas = map(own_group, _ranks(request.plan, tier))
        if group is None:
            alike = None if replicas is None else Replicas(replicas, request.formats.gradients)
            parts.at_home[tier] = BatchedLookup([_whole_tier(config, begin[config.name]) for config in own], device, alike)
            continue
        blocks = {}
        for config in own:
            table, _ = request.plan.by_table[config.name]
            spec = shards_spec(row_blocks(table.with_rows(config.num_embeddings), range(group.size())), device.type, group.size())
            blocks[table.name] = ParameterSharding(ROW_WISE, "dense", list(range(group.size())), spec)
        alike_of = {} if replicas is None else {ROW_WISE: replicas}
        parts.exchanged[tier] = shard_collection(own, blocks, env_of(group), device, alike_of, request.formats)
        for batch in parts.exchanged[tier].batches:
            batch.shards = [_moved(shard, begin[shard.table]) for shard in batch.shards]
    return parts


def _ranks(plan: ShardingPlan, tier: str) -> tuple[Sequence[Sequence[int]], Sequence[Sequence[int]]]:
    """Between which ranks the tier's ids and rows travel, and which hold the same rows and average their gradients."""
    world, same = range(plan.world_size), holders(plan.hosts, plan.ranks_per_host)
    hosts = [world[first : first + plan.ranks_per_host] for first in world[:: plan.ranks_per_host]]
    return {ROW_SHARDED: ([world], []), HOST_SHARDED: (hosts, same[HOST_SHARDED]), REPLICATED: ([], same[REPLICATED])}[tier]


def _moved(shard: HeldShard, begin: int) -> HeldShard:
    """Its rows numbered as the table's, not the tier's."""
    return replace(shard, row_start=begin + shard.row_start, row_stop=begin + shard.row_stop)


def _only(config: Config, rows: int) -> Config:
    """The table, as if it had the tier's rows only."""
    if isinstance(config, EmbeddingBagConfig):
        return replace(config, num_embeddings=rows, pooling=PoolingType.SUM)
    return replace(config, num_embeddings=rows)


def _whole_tier(config: Config, begin: int) -> ToHold:
    shard = HeldShard(config.name, begin, begin + config.num_embeddings, 0, config.embedding_dim, len(config.feature_names), 0)
    return ToHold(shard, format_of(config), "sum" if isinstance(config, EmbeddingBagConfig) else "none")
