"""The tiers of tables that are placed row by row: at home, or over a process group by TorchRec's exchange of row blocks."""

from __future__ import annotations

from dataclasses import dataclass, replace

from torchrec.distributed.types import ParameterSharding
from torchrec.modules.embedding_configs import EmbeddingBagConfig, PoolingType

from recsys_lab.executor.collection import Sharded, shard_collection
from recsys_lab.executor.execution import Config, Request
from recsys_lab.executor.groups import env_of
from recsys_lab.executor.lookup import BatchedLookup, ToHold
from recsys_lab.executor.replicas import Replicas
from recsys_lab.executor.table_batch import HeldShard, TableBatch
from recsys_lab.executor.torchrec_plan import shards_spec
from recsys_lab.models.table_configs import format_of
from recsys_lab.plan import Placement
from recsys_lab.plan.tiers import tier_rows
from recsys_lab.schemes.row_blocks.placement import ROW_WISE, row_blocks
from recsys_lab.schemes.tiers.execute.groups import Groups
from recsys_lab.tables import Table
from recsys_lab.tables.tiers import TIERS


@dataclass(frozen=True)
class TierParts:
    """By tier. Those that are exchanged are in the order in which their exchanges are issued."""

    exchanged: dict[str, Sharded]
    at_home: dict[str, BatchedLookup]

    @property
    def batches(self) -> list[TableBatch]:
        return [batch for part in (*self.exchanged.values(), *self.at_home.values()) for batch in part.batches]


def parts_of(request: Request, groups: Groups) -> TierParts:
    """The tiers of the request's tables, without those that have no rows. Pooled rows are summed; a mean is for the caller to divide.

    A tier whose process group has one member only is looked up at home.
    """
    parts, device = TierParts({}, {}), request.device
    for tier in reversed(TIERS):  # the slowest exchange first
        group, replicas = groups.rows.get(tier), groups.replicas.get(tier)
        begin = {p.table: _begin(p, tier) for _, p in request.placed}
        rows = {p.table: tier_rows(p)[tier] for _, p in request.placed}
        own = [_only(c, rows[c.name]) for c in request.configs if rows[c.name]]
        if own and group is None:
            alike = None if replicas is None else Replicas(replicas, request.formats.gradients)
            parts.at_home[tier] = BatchedLookup([_whole_tier(c, begin[c.name]) for c in own], device, alike)
        elif own and group is not None:
            tables = {t.name: t.with_rows(rows[t.name]) for t, _ in request.placed}
            blocks = {c.name: _even_blocks(tables[c.name], group.size(), device.type) for c in own}
            alike_of = {} if replicas is None else {ROW_WISE: replicas}
            sharded = shard_collection(own, blocks, env_of(group), device, alike_of, request.formats)
            for batch in sharded.batches:
                batch.shards = [_moved(shard, begin[shard.table]) for shard in batch.shards]
            parts.exchanged[tier] = sharded
    return parts


def _even_blocks(table: Table, ranks: int, device_kind: str) -> ParameterSharding:
    """Row blocks over a group of `ranks`, as TorchRec's plan has them."""
    spec = shards_spec(row_blocks(table, range(ranks)), device_kind, ranks)
    return ParameterSharding(ROW_WISE, "dense", list(range(ranks)), spec)


def _begin(placement: Placement, tier: str) -> int:
    """The first of the tier's rows."""
    rows = list(tier_rows(placement).values())
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
