"""Tables whose rows lie in FlexShard's three tiers (arXiv 2301.02959, sections 4.4 and 4.5), in place of a model's collection.

| tier | ids and rows travel | gradients are averaged |
|---|---|---|
| replicated | nowhere | over all ranks |
| host-sharded | between the ranks of a host | over its peers on the other hosts |
| row-sharded | between all ranks | nowhere |

TorchRec's row-wise exchange serves the last two. Each tier has process groups of its own: their collectives run beside one another. All
exchanges of a pass are in flight at once. Every exchange of ids is issued before one is awaited. The same holds of the rows. The replicated
tier is looked up while they travel. Autograd runs last what was made first. So in the backward pass, too, all exchanges of gradients are
issued first. Then the replicated tier's gradient leaves, then the host-sharded tier's as soon as it is there.

Shapes: B samples, D columns, N ids of all tiers, n of one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torchrec.modules.embedding_configs import EmbeddingBagConfig, PoolingType
from torchrec.sparse.jagged_tensor import JaggedTensor, KeyedJaggedTensor, KeyedTensor

from recsys_lab.executor.collection import CollectionInput, TorchRecPart, shard_collection
from recsys_lab.executor.execution import Config, Part, Request, keyed
from recsys_lab.executor.groups import env_of, own_group
from recsys_lab.executor.lookup import BatchedLookup
from recsys_lab.executor.replicas import ReplicaGroup
from recsys_lab.executor.table_batch import HeldShard, TableBatch
from recsys_lab.executor.torchrec_plan import to_torchrec
from recsys_lab.models.table_configs import format_of
from recsys_lab.plan import ShardingPlan
from recsys_lab.plan.tiers import tier_rows
from recsys_lab.schemes.row_blocks.placement import ROW_WISE, in_row_blocks
from recsys_lab.schemes.tiers.execute.split import TierPart, TierSplit
from recsys_lab.schemes.tiers.execute.watch import TierWatch
from recsys_lab.schemes.tiers.placement import holders
from recsys_lab.tables.tiers import HOST_SHARDED, REPLICATED, ROW_SHARDED, TIERS


def parts_of(request: Request) -> tuple[dict[str, TorchRecPart], dict[str, BatchedLookup]]:
    """The tiers of the request's tables by name, without those that have no rows.

    First those that are exchanged, in the order in which their exchanges are issued. Then those that are looked up at home. Pooled rows are
    summed; a mean is for the caller to divide.

    A tier whose process group has one member only is looked up at home. Collective: every rank makes all groups, its own or not.
    """
    exchanged: dict[str, TorchRecPart] = {}
    at_home: dict[str, BatchedLookup] = {}
    rows, device = {p.table: list(tier_rows(p).values()) for _, p in request.placed}, request.device
    for tier in reversed(TIERS):  # the slowest exchange first
        own = [_only(config, count) for config in request.configs if (count := rows[config.name][TIERS.index(tier)])]
        if not own:
            continue
        begin = {table: sum(counts[: TIERS.index(tier)]) for table, counts in rows.items()}  # the first of the tier's rows
        group, replicas = map(own_group, _ranks(request.plan, tier))
        if group is None:
            replica_group = None if replicas is None else ReplicaGroup(replicas, request.formats.gradients)
            at_home[tier] = BatchedLookup([_whole_tier(config, begin[config.name]) for config in own], device, replica_group)
            continue
        tables = [request.plan.by_table[config.name][0].with_rows(config.num_embeddings) for config in own]
        blocks = to_torchrec([in_row_blocks(table, range(group.size())) for table in tables], group.size(), device.type)
        replica_groups = {} if replicas is None else {ROW_WISE: replicas}
        exchanged[tier] = shard_collection(own, blocks, env_of(group), device, replica_groups, request.formats, dedup=request.dedup)
        for batch in exchanged[tier].batches:  # whose rows are to be numbered as the table's, not the tier's
            moved = [(shard, begin[shard.table]) for shard in batch.shards]
            batch.shards = [replace(s, row_start=first + s.row_start, row_stop=first + s.row_stop) for s, first in moved]
    return exchanged, at_home


def _ranks(plan: ShardingPlan, tier: str) -> tuple[Sequence[Sequence[int]], Sequence[Sequence[int]]]:
    """Between which ranks the tier's ids and rows travel, and which hold the same rows and average their gradients."""
    world, same = range(plan.world_size), holders(plan.hosts, plan.ranks_per_host)
    hosts = [world[first : first + plan.ranks_per_host] for first in world[:: plan.ranks_per_host]]
    return {ROW_SHARDED: ([world], []), HOST_SHARDED: (hosts, same[HOST_SHARDED]), REPLICATED: ([], same[REPLICATED])}[tier]


def _only(config: Config, rows: int) -> Config:
    """The table, as if it had the tier's rows only."""
    if isinstance(config, EmbeddingBagConfig):
        return replace(config, num_embeddings=rows, pooling=PoolingType.SUM)
    return replace(config, num_embeddings=rows)


def _whole_tier(config: Config, begin: int) -> HeldShard:
    mode = "sum" if isinstance(config, EmbeddingBagConfig) else "none"
    extent = (begin, begin + config.num_embeddings, 0, config.embedding_dim)
    return HeldShard(config.name, *extent, len(config.feature_names), format_of(config), mode)


@dataclass(frozen=True)
class PendingTiers:
    """A batch cut by tier (`tier` of each of its ids). `inputs`: of the tiers that are exchanged, their ids under way."""

    batch: KeyedJaggedTensor
    tier: torch.Tensor
    parts: dict[str, TierPart]
    inputs: dict[str, CollectionInput]

    def send(self) -> None:
        for one in self.inputs.values():
            one.send()

    def lengths(self, features: list[str]) -> dict[str, torch.Tensor]:
        """[B] by feature."""
        return dict(zip(features, self.batch.lengths().view(len(features), -1)))


class TieredEmbeddings(Part):
    """All tables of the request."""

    _exchanged: dict[str, TorchRecPart]  # by tier
    _at_home: dict[str, BatchedLookup]

    def __init__(self, request: Request, split: TierSplit, watch: TierWatch):
        super().__init__()
        self._exchanged, self._at_home = parts_of(request)  # dicts, which torch does not search: their buffers are none of the model's
        self._split, self._watch = split, watch
        self._pooled, self._dims, bags = request.pooled, request.dims, (c for c in request.configs if isinstance(c, EmbeddingBagConfig))
        self._means = [feature for config in bags if config.pooling == PoolingType.MEAN for feature in config.feature_names]

    @property
    def batches(self) -> list[TableBatch]:
        exchanged = [batch for part in self._exchanged.values() for batch in part.batches]
        return exchanged + [batch for lookup in self._at_home.values() for batch in lookup.batches]

    def start_input_dist(self, sparse: KeyedJaggedTensor) -> PendingTiers:
        batch = self._split.own_features(sparse)
        tier, row = self._split.tier_and_row(batch)
        parts = self._split.parts(batch, tier, row)
        inputs = {name: one.start_input_dist(parts[name].features) for name, one in self._exchanged.items()}
        return PendingTiers(batch, tier, parts, inputs)

    def start_output_dist(self, pending: PendingTiers) -> Callable[[], Any]:
        self._watch.see(pending.batch, pending.tier)
        outputs = {name: part.start_output_dist(pending.inputs[name]) for name, part in self._exchanged.items()}
        at_home = {name: look_up(pending.parts[name].features) for name, look_up in self._at_home.items()}
        return partial(self._added_up if self._pooled else self._in_sequence, pending, at_home, outputs)

    def _added_up(
        self, batch: PendingTiers, at_home: Mapping[str, torch.Tensor], outputs: Mapping[str, Callable[[], KeyedTensor]]
    ) -> KeyedTensor:
        """Pooled rows of all tiers, a mean divided by its bag's length."""
        pooled = [wait().to_dict() for wait in outputs.values()]
        for name, matrix in at_home.items():
            features = batch.parts[name].features.keys()
            pooled.append(dict(zip(features, matrix.split([self._dims[f] for f in features], dim=1))))
        summed: dict[str, torch.Tensor] = {}
        for tier in pooled:
            summed |= {feature: summed[feature] + rows if feature in summed else rows for feature, rows in tier.items()}
        lengths = batch.lengths(self._split.features)
        summed |= {feature: summed[feature] / lengths[feature].clamp(min=1).unsqueeze(1) for feature in self._means}
        return keyed(summed, self._dims)

    def _in_sequence(self, batch: PendingTiers, at_home: Mapping[str, torch.Tensor], outputs: Mapping[str, Callable[[], dict]]) -> dict:
        """Rows of all tiers, each where its id stands in the sequence."""
        rows = dict(at_home)
        for name, wait in outputs.items():
            of_feature = wait()
            rows[name] = torch.cat([of_feature[feature].values() for feature in batch.parts[name].features.keys()])
        merged = merge_rows([part.order for part in batch.parts.values()], [rows[name] for name in batch.parts])
        sequences = dict(zip(self._split.features, merged.split(batch.batch.length_per_key())))
        lengths = batch.lengths(self._split.features)
        return {feature: JaggedTensor(sequences[feature], lengths=lengths[feature]) for feature in self._dims}


def merge_rows(positions: Sequence[torch.Tensor], rows: Sequence[torch.Tensor]) -> torch.Tensor:
    """[N, D] with `rows[k]` [n, D] at `positions[k]` [n]. Together the positions are 0 to N - 1, each once."""
    return _MergeRows.apply(len(positions), *positions, *rows)


class _MergeRows(torch.autograd.Function):
    """One copy in each direction, and the same bits every time: no two rows go to one position."""

    @staticmethod
    def forward(ctx, parts: int, *both: torch.Tensor) -> torch.Tensor:
        positions, rows = both[:parts], both[parts:]
        ctx.save_for_backward(*positions)
        merged = rows[0].new_empty(sum(len(part) for part in positions), rows[0].shape[1])
        for position, part in zip(positions, rows):
            merged.index_copy_(0, position, part)
        return merged

    @staticmethod
    def backward(ctx, grad: torch.Tensor):
        positions = ctx.saved_tensors
        return (None, *(None for _ in positions), *(grad.index_select(0, position) for position in positions))
