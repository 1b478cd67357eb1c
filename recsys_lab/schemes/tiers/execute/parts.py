"""The look-up of each tier of `recsys_lab.schemes.tiers.execute.tiered`: at home, or over a process group by TorchRec's row-wise exchange."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torchrec.modules.embedding_configs import EmbeddingBagConfig, PoolingType

from recsys_lab.executor.collection import Config, Sharded, shard_collection
from recsys_lab.executor.formats import WireFormats
from recsys_lab.executor.groups import Groups, env_of
from recsys_lab.executor.lookup import BatchedLookup, ToHold
from recsys_lab.executor.replicas import Replicas
from recsys_lab.executor.table_batch import HeldShard, TableBatch
from recsys_lab.executor.torchrec_plan import even_blocks
from recsys_lab.models.table_configs import format_of
from recsys_lab.plan import Placement
from recsys_lab.plan.sharding_plan import TIERS


@dataclass(frozen=True)
class TierParts:
    """By tier. Those that are exchanged are in the order in which their exchanges are issued."""

    exchanged: dict[str, Sharded]
    at_home: dict[str, BatchedLookup]

    @property
    def batches(self) -> list[TableBatch]:
        return [batch for part in (*self.exchanged.values(), *self.at_home.values()) for batch in part.batches]


def parts_of(
    configs: Sequence[Config], placements: dict[str, Placement], groups: Groups, device: torch.device, formats: WireFormats
) -> TierParts:
    """The tiers of the tables `configs`, without those that have no rows. Pooled rows are summed; a mean is for the caller to divide.

    A tier whose process group has one member only is looked up at home.
    """
    parts = TierParts({}, {})
    for tier in reversed(TIERS):  # the slowest exchange first
        group = {"row_sharded": groups.rows, "host_sharded": groups.host}.get(tier)
        replicas = {"host_sharded": groups.peers, "replicated": groups.replicas}.get(tier)
        begin = {c.name: _begin(placements[c.name], tier) for c in configs}
        own = [_only(c, placements[c.name].tier_rows[tier]) for c in configs if placements[c.name].tier_rows[tier]]
        if own and group is None:
            alike = None if replicas is None else Replicas(replicas, formats.gradients)
            parts.at_home[tier] = BatchedLookup([_whole_tier(c, begin[c.name]) for c in own], device, alike)
        elif own and group is not None:
            blocks = {c.name: even_blocks(c.num_embeddings, c.embedding_dim, group.size(), device.type) for c in own}
            alike_of = {} if replicas is None else {"row_wise": replicas}
            made = shard_collection(own, blocks, env_of(group), device, alike_of, formats)
            for batch in made.batches:
                batch.shards = [_moved(shard, begin[shard.table]) for shard in batch.shards]
            parts.exchanged[tier] = made
    return parts


def _begin(placement: Placement, tier: str) -> int:
    """The first of the tier's rows."""
    rows = list(placement.tier_rows.values())
    return sum(rows[: TIERS.index(tier)])


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
