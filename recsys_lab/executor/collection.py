"""TorchRec's two sharded collections, pooled and sequences (a row for each id), with our look-up in them.

TorchRec keeps what it does well: which rank holds what, and which rows come back. `TableBatch` replaces its look-up kernels. Its update is
exact under every optimizer and sharding type (docs/decisions/sparse-optimizers.md). On CPUs ids and rows of pooled tables may travel by
recsys_lab/executor/cpu, which is faster and changes no result.

Means of rows that lie on several ranks are divided here. TorchRec 1.8 divides them too. But where one table of a collection needs it,
TorchRec also divides the tables of other sharding types. Sums become means, and means are divided twice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torchrec.distributed.embedding import EmbeddingCollectionContext, ShardedEmbeddingCollection
from torchrec.distributed.embedding_sharding import EmbeddingShardingContext
from torchrec.distributed.embedding_types import KJTList
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionContext, ShardedEmbeddingBagCollection
from torchrec.distributed.types import Awaitable, LazyAwaitable, ParameterSharding, ShardingEnv
from torchrec.modules.embedding_configs import EmbeddingBagConfig, PoolingType
from torchrec.modules.embedding_modules import EmbeddingBagCollection, EmbeddingCollection
from torchrec.sparse.jagged_tensor import JaggedTensor, KeyedJaggedTensor, KeyedTensor

from recsys_lab.base.environment import POOLED_EXCHANGE, TORCHREC, word_of
from recsys_lab.executor.column_order import ColumnOrder
from recsys_lab.executor.cpu import row_exchange
from recsys_lab.executor.cpu.id_exchange import IdExchange, sharding_inputs
from recsys_lab.executor.distinct_ids import Deduplication
from recsys_lab.executor.execution import Config, Execution, Part, Request, Running, keyed
from recsys_lab.executor.formats import WireFormats
from recsys_lab.executor.groups import own_group
from recsys_lab.executor.lookup import BatchedLookup, Stores, shards_of
from recsys_lab.executor.replicas import ReplicaGroup
from recsys_lab.executor.table_batch import TableBatch
from recsys_lab.executor.torch_private import OpenCollection, set_sequence_codecs, tables_of_ranks
from recsys_lab.executor.torchrec_plan import to_torchrec
from recsys_lab.models.table_configs import format_of, tables_of
from recsys_lab.plan.scheme import home_scheme, known_schemes

META = torch.device("meta")


def configs_of(collection: nn.Module) -> Sequence[Config]:
    """Of its tables, in order."""
    assert isinstance(collection, EmbeddingBagCollection | EmbeddingCollection)
    return collection.embedding_bag_configs() if isinstance(collection, EmbeddingBagCollection) else collection.embedding_configs()


class CollectionInput:
    """The input distribution of one sharded collection for one batch: TorchRec's, step by step."""

    def __init__(self, part: Any, features: KeyedJaggedTensor):
        self.context, self._part = part.create_context(), part
        self._sizes: Any = part.input_dist(self.context, features)

    def send(self) -> None:
        self._ids = self._sizes.wait()
        self._fetched = self._part.fetch_rows(self._ids)

    def wait(self) -> Any:
        """The ids that this rank looks up, by sharding type."""
        return self._ids.wait() if self._fetched is None else self._fetched.result()


class TorchRecPart(OpenCollection, Part):
    """Has no torch parameters: its weights are in `batches`, so neither DistributedDataParallel nor `state_dict` sees them.

    `replicas`: by scheme, the ranks that hold the same shards and average their gradients. `formats`: on the wire.
    """

    _replicas: Mapping[str, ReplicaGroup]
    _formats: dict[str, str]  # how weights are stored, by table
    _device: torch.device
    _stores: Stores
    _fetcher: ThreadPoolExecutor | None

    def __init__(
        self,
        module: nn.Module,
        params: dict[str, ParameterSharding],
        env: ShardingEnv,
        device: torch.device,
        replicas: Mapping[str, ReplicaGroup],
        formats: WireFormats,
        stores: Stores,
        fetcher: ThreadPoolExecutor | None,
    ):
        self.__dict__ |= {"_replicas": replicas, "_stores": stores, "_fetcher": fetcher}  # wanted before nn.Module's constructor has run
        self.__dict__["_formats"] = {c.name: format_of(c) for c in configs_of(module)}
        super().__init__(module, params, env, device=device, qcomm_codecs_registry=formats.torchrec)

    @property
    def batches(self) -> list[TableBatch]:
        return [batch for lookup in self.lookups for batch in lookup.batches]

    def fetch_rows(self, ids: Any) -> Future | None:
        """Fetches rows into the caches as soon as their `ids` have arrived. Its result is the ids. None: nothing is fetched ahead."""
        caches = [batch.cached for batch in self.batches if batch.cached is not None]
        if self._fetcher is None or not caches:
            return None
        finished = [lookup.finished() for lookup in self.lookups]

        def fetch() -> Any:
            arrived = ids.wait()
            for lookup, features, done in zip(self.lookups, arrived, finished):
                lookup.fetch(features, done)
            return arrived

        future = self._fetcher.submit(fetch)
        for cache in caches:
            cache.wait_for(future)
        return future

    def start_input_dist(self, sparse: KeyedJaggedTensor) -> CollectionInput:
        return CollectionInput(self, sparse)

    def start_output_dist(self, pending: CollectionInput) -> Callable[[], Any]:
        return self._output(pending).wait

    def forward(self, sparse: KeyedJaggedTensor) -> LazyAwaitable:
        """Waited for by whoever first reads it: what the model computes before overlaps."""
        return self._output(self.input_dist_prefetch.get(sparse))

    def _output(self: Any, pending: CollectionInput) -> LazyAwaitable:
        return self.compute_and_output_dist(pending.context, pending.wait())

    def make_lookup(self, scheme: str, tables: Any) -> BatchedLookup:
        return BatchedLookup(shards_of(tables, self._formats, self._stores), self._device, self._replicas.get(scheme))

    def init_data_parallel(self) -> None:
        """Replicas are averaged by us, not by a DistributedDataParallel of their own."""


class ShardedRows(TorchRecPart, ShardedEmbeddingCollection):
    """A batch's output is a JaggedTensor a feature. `dedup`: makes ids distinct before they travel."""

    _dedup: Deduplication | None

    def __init__(
        self,
        module: EmbeddingCollection,
        params: dict[str, ParameterSharding],
        env: ShardingEnv,
        device: torch.device,
        replicas: Mapping[str, ReplicaGroup],
        formats: WireFormats,
        *rest: Any,
        dedup: bool = False,
    ):
        super().__init__(module, params, env, device, replicas, formats, *rest)
        configs, schemes = module.embedding_configs(), known_schemes()
        travel = [config for config in configs if not schemes[params[config.name].sharding_type].at_home]
        stay = [config for config in configs if config not in travel]
        self.__dict__["_dedup"] = Deduplication(travel, stay, device) if dedup and travel else None
        for sharding, exchange in zip(self.shardings, self.output_dists) if formats.scaled else ():
            columns = {table.local_cols for of_rank in tables_of_ranks(sharding) for g in of_rank for table in g.embedding_tables}
            set_sequence_codecs(exchange, formats.of_sequences(max(columns)))  # TorchRec's shards of a type have one width

    def input_dist(self, ctx: EmbeddingCollectionContext, features: KeyedJaggedTensor) -> Awaitable[Awaitable[KJTList]]:
        if self._dedup is None:
            return super().input_dist(ctx, features)
        with torch.no_grad():
            ctx.distinct = distinct = self._dedup.of(features)
        return super().input_dist(ctx, distinct.features)

    def compute_and_output_dist(self, ctx: EmbeddingCollectionContext, input: KJTList) -> LazyAwaitable[dict[str, JaggedTensor]]:
        pending = super().compute_and_output_dist(ctx, input)
        if self._dedup is not None:
            pending.callbacks.append(ctx.distinct.copied)
        return pending


class ShardedBags(TorchRecPart, ShardedEmbeddingBagCollection):
    """A batch's output is a KeyedTensor."""

    _means: list[str]  # features
    _ids: IdExchange | None  # of the batches so far
    _order: ColumnOrder

    def __init__(
        self,
        module: EmbeddingBagCollection,
        params: dict[str, ParameterSharding],
        env: ShardingEnv,
        device: torch.device,
        replicas: Mapping[str, ReplicaGroup],
        formats: WireFormats,
        *rest: Any,
    ):
        configs, schemes = module.embedding_bag_configs(), known_schemes()
        spread = [c for c in configs if c.pooling == PoolingType.MEAN and schemes[params[c.name].sharding_type].sums_across_ranks]
        self.__dict__["_ids"] = None
        self.__dict__["_means"] = [feature for config in spread for feature in config.feature_names]
        summed = [replace(c, pooling=PoolingType.SUM) if c in spread else c for c in configs]
        whole = tables_of(EmbeddingBagCollection, summed, META) if spread else module
        super().__init__(whole, params, env, device, replicas, formats, *rest)
        widths = {feature: config.embedding_dim for config in configs for feature in config.feature_names}
        self.__dict__["_order"] = ColumnOrder([sharding.embedding_names() for sharding in self.shardings], widths)
        if formats.scaled or (device.type == "cpu" and word_of(POOLED_EXCHANGE) != TORCHREC):
            self.output_dists[:] = [row_exchange.in_place_of(one, formats) for one in self.output_dists]

    def input_dist(self, ctx: EmbeddingBagCollectionContext, features: KeyedJaggedTensor) -> Awaitable[Awaitable[KJTList]]:
        if self._means:
            keys, lengths = features.keys(), features.lengths().view(-1, features.stride())
            ctx.divisor = torch.stack([lengths[keys.index(feature)] for feature in self._means]).clamp(min=1)
        if not IdExchange.takes(features):
            return super().input_dist(ctx, features)
        exchange = self._ids
        if exchange is None or exchange.keys != features.keys():
            exchange = self.__dict__["_ids"] = IdExchange(sharding_inputs(self), features.keys())
        ctx.sharding_contexts = [EmbeddingShardingContext([features.stride()] * self.env.world_size) for _ in exchange.inputs]
        return exchange.start(features)

    def compute_and_output_dist(self, ctx: EmbeddingBagCollectionContext, input: KJTList) -> LazyAwaitable[KeyedTensor]:
        exchanges = zip(self.lookups, self.output_dists, input, ctx.sharding_contexts)
        pending = _PendingColumns([exchange(look_up(ids), context) for look_up, exchange, ids, context in exchanges], self._order)
        if self._means:
            pending.callbacks.append(partial(_divided, features=self._means, lengths=ctx.divisor))
        return pending


class _PendingColumns(LazyAwaitable[KeyedTensor]):
    """Pooled rows under way, by sharding type."""

    def __init__(self, parts: list[Awaitable[torch.Tensor]], order: ColumnOrder):
        super().__init__()
        self._parts, self._order = parts, order

    def _wait_impl(self) -> KeyedTensor:
        return self._order.together([part.wait() for part in self._parts])


def _divided(pooled: KeyedTensor, features: list[str], lengths: torch.Tensor) -> KeyedTensor:
    """`pooled` with the sums of `features` divided by their bags' `lengths` [features, B]."""
    columns = pooled.to_dict()
    columns |= {feature: columns[feature] / length.unsqueeze(1) for feature, length in zip(features, lengths)}
    return keyed(columns, dict(zip(pooled.keys(), pooled.length_per_key())))


def shard_collection(
    configs: Sequence[Config],
    parameters: dict[str, ParameterSharding],
    env: ShardingEnv,
    device: torch.device,
    replicas: Mapping[str, dist.ProcessGroup],
    formats: WireFormats,
    stores: Stores | None = None,
    pipeline: bool = False,
    dedup: bool = False,
) -> TorchRecPart:
    """A collection of tables of one kind, sharded over a process group by TorchRec.

    Args:
        configs: the tables, all pooled or all of sequences.
        parameters: TorchRec's sharding of each table.
        env: the group whose ranks exchange.
        device: of this rank.
        replicas: by scheme, the process group whose ranks hold the same shards as this one and average their gradients.
        formats: number formats on the wire.
        stores: by table, where its rows are.
        pipeline: whether a thread fetches rows of stores as soon as a batch's ids are there.
        dedup: whether equal ids of a rank's batch travel once; of bags, whose sums travel, nothing changes.

    Returns:
        The part of a model that exchanges ids and rows of these tables.
    """
    replica_groups = {scheme: ReplicaGroup(group, formats.gradients) for scheme, group in replicas.items()}
    pooled = isinstance(configs[0], EmbeddingBagConfig)
    unsharded: Any = EmbeddingBagCollection if pooled else EmbeddingCollection
    fetcher = ThreadPoolExecutor(1, "rows-ahead") if stores and pipeline else None
    how = (replica_groups, formats, stores or {}, fetcher)
    module = tables_of(unsharded, configs, META)
    if pooled:
        return ShardedBags(module, parameters, env, device, *how)
    return ShardedRows(module, parameters, env, device, *how, dedup=dedup)


def run(request: Request) -> Running:
    """All tables of the request as one collection, over all ranks: `Execution.run` of the schemes that TorchRec exchanges. Collective."""
    plan, home = request.plan, home_scheme().name
    replicated = any(placement.scheme == home for _, placement in request.placed)
    replicas = own_group([list(range(plan.world_size))] if replicated else [])
    parameters = to_torchrec([placement for _, placement in request.placed], plan.ranks_per_host, request.device.type)
    env, replica_groups = ShardingEnv.from_process_group(dist.group.WORLD), {} if replicas is None else {home: replicas}
    stored = (request.stores, request.pipeline, request.dedup)
    return Running(shard_collection(request.configs, parameters, env, request.device, replica_groups, request.formats, *stored))


#: Of schemes that need nothing but TorchRec's exchange.
EXECUTION = Execution(run)
