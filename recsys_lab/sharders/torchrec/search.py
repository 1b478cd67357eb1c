"""TorchRec's search itself: what `planner.py` asks, answered by TorchRec's EmbeddingShardingPlanner on the meta device."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from torchrec.distributed.embedding import EmbeddingCollectionSharder
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.planner import EmbeddingShardingPlanner, ParameterConstraints, Topology
from torchrec.distributed.planner.proposers import GreedyProposer, UniformProposer
from torchrec.distributed.planner.storage_reservations import FixedPercentageStorageReservation
from torchrec.distributed.planner.types import Enumerator, PlannerError, ShardingOption
from torchrec.distributed.types import ParameterSharding
from torchrec.modules.embedding_configs import DataType, EmbeddingBagConfig, EmbeddingConfig, PoolingType
from torchrec.modules.embedding_modules import EmbeddingBagCollection, EmbeddingCollection

from recsys_lab.base.quiet import quiet_torchrec
from recsys_lab.plan import Placement, Shard
from recsys_lab.schemes.replicated import DATA_PARALLEL
from recsys_lab.sharders.torchrec.copies import Greedy, with_idle_ranks
from recsys_lab.sharders.torchrec.memory import AsStored
from recsys_lab.sharders.torchrec.planner import Search
from recsys_lab.sharders.torchrec.types import SCHEMES
from recsys_lab.tables import Table
from recsys_lab.tables.spec import TABLE_FORMATS

#: What a look-up reads: by that TorchRec counts time.
DATA_TYPES = dict.fromkeys(TABLE_FORMATS, DataType.BF16) | {"fp32": DataType.FP32, "fp16": DataType.FP16}
POOLINGS = {"sum": PoolingType.SUM, "mean": PoolingType.MEAN}
#: TorchRec reads an optimizer's memory from its class. Of LAMB's own it would count half.
OPTIMIZERS = {"sgd": torch.optim.SGD, "adagrad": torch.optim.Adagrad, "adam": torch.optim.Adam, "lamb": torch.optim.Adam}
#: Proposals without a better plan after which a greedy search ends. TorchRec's is endless: a minute for 26 tables on 512 ranks.
PATIENCE = 25


def answered(request: dict[str, Any]) -> list[Any] | None:
    """What TorchRec finds for a `Search`, both plain: table, scheme and shards of each placement. None where nothing fits."""
    quiet_torchrec()
    tables = tuple(Table(**one | {"features": tuple(one["features"])}) for one in request["tables"])
    types = tuple(None if own is None else tuple(own) for own in request["types"])
    plain = {name: tuple(value) if isinstance(value, list) else value for name, value in request.items()}
    placements = _placements(Search(**plain | {"tables": tables, "types": types}))
    return (
        None
        if placements is None
        else [[p.table, p.scheme, [[s.ranks, s.row_start, s.row_stop, s.col_start, s.col_stop] for s in p.shards]] for p in placements]
    )


def _placements(search: Search) -> tuple[Placement, ...] | None:
    tables = search.tables
    constraints = {
        table.name: ParameterConstraints(
            sharding_types=None if types is None else list(types),
            compute_kernels=["fused", "dense"],  # on the device itself; dense is TorchRec's only one for replicas
            min_partition=width,
            pooling_factors=[length] * len(table.features),
        )
        for table, types, width, length in zip(tables, search.types, search.widths, search.lengths)
    }
    topology = with_idle_ranks(_topology(search))
    planner = EmbeddingShardingPlanner(
        topology=topology,
        batch_size=search.batch_size,
        enumerator=AsStored(topology, constraints, tables, search.batch_size, search.sparse_optimizer),
        constraints=constraints,
        partitioner=Greedy(),
        proposer=[
            GreedyProposer(threshold=PATIENCE),
            GreedyProposer(use_depth=False, threshold=PATIENCE),
            UniformProposer(),
            _WithoutReplicas(threshold=PATIENCE),
            _WithoutReplicas(use_depth=False, threshold=PATIENCE),
        ],
        storage_reservation=FixedPercentageStorageReservation(0.0),  # the topology holds only what a plan may fill
        stats=[],
    )
    try:
        sharder = _SequenceSharder() if tables[0].pooling == "none" else _AnyTypeSharder()
        sharding = planner.plan(_Model(tables, search.sparse_optimizer), [sharder])
    except PlannerError:
        return None
    return from_torchrec(tables, sharding.plan["tables"])


def from_torchrec(tables: tuple[Table, ...], sharding: Mapping[str, ParameterSharding]) -> tuple[Placement, ...]:
    """TorchRec's plan of one embedding module as our placements, in the order of `tables`."""
    return tuple(_placement(table, sharding[table.name]) for table in tables)


def _placement(table: Table, sharding: ParameterSharding) -> Placement:
    ranks = sharding.ranks or []
    if sharding.sharding_spec is None:
        return Placement(table.name, sharding.sharding_type, (Shard(tuple(ranks), 0, table.rows, 0, table.dim),))
    shards = []
    for rank, shard in zip(ranks, sharding.sharding_spec.shards, strict=True):
        (row, col), (rows, cols) = shard.shard_offsets, shard.shard_sizes
        shards.append(Shard((rank,), row, row + rows, col, col + cols))
    return Placement(table.name, sharding.sharding_type, tuple(shards))


class _WithoutReplicas(GreedyProposer):
    """Searches without replicas, where a table has another option.

    TorchRec's greedy search begins with the cheapest option of each table. Replicas look cheap, and the search seldom leaves them. For
    MLPerf's 26 tables on 64 GPUs it ends at 1.53 ms by its own estimate. Without replicas it ends at 1.15 ms.
    """

    def load(self, search_space: list[ShardingOption], enumerator: Enumerator | None = None) -> None:
        others = {option.name for option in search_space if option.sharding_type != DATA_PARALLEL}
        super().load([o for o in search_space if o.sharding_type != DATA_PARALLEL or o.name not in others], enumerator)


class _Model(nn.Module):
    """Tables on the meta device, marked with the optimizer whose state TorchRec must count."""

    def __init__(self, tables: tuple[Table, ...], sparse_optimizer: str):
        super().__init__()
        self.tables = _sequences(tables) if tables[0].pooling == "none" else _bags(tables)
        kind = OPTIMIZERS.get(sparse_optimizer)
        for parameter in self.tables.parameters():
            parameter._optimizer_classes = [kind or _row_wise_adagrad()]


def _bags(tables: tuple[Table, ...]) -> EmbeddingBagCollection:
    configs = [EmbeddingBagConfig(**_of_table(table), pooling=POOLINGS[table.pooling]) for table in tables]
    return EmbeddingBagCollection(configs, device=torch.device("meta"))


def _sequences(tables: tuple[Table, ...]) -> EmbeddingCollection:
    return EmbeddingCollection([EmbeddingConfig(**_of_table(table)) for table in tables], device=torch.device("meta"))


def _of_table(table: Table) -> dict[str, Any]:
    """What TorchRec's config of a table has, pooled or not."""
    return {
        "name": table.name,
        "num_embeddings": table.rows,
        "embedding_dim": table.dim,
        "feature_names": list(table.features),
        "data_type": DATA_TYPES[table.dtype],
    }


def _row_wise_adagrad() -> type:
    from torchrec.optim.rowwise_adagrad import RowWiseAdagrad

    return RowWiseAdagrad


class _AnyTypeSharder(EmbeddingBagCollectionSharder):
    """Offers every sharding type: TorchRec leaves out half of them on CPU, though they run."""

    def sharding_types(self, compute_device_type: str) -> list[str]:
        return list(SCHEMES)

    def compute_kernels(self, sharding_type: str, compute_device_type: str) -> list[str]:
        return ["dense"] if sharding_type == DATA_PARALLEL else ["fused"]


class _SequenceSharder(EmbeddingCollectionSharder):
    """Has TorchRec's four types of sequences, with the kernels of pooled tables."""

    def compute_kernels(self, sharding_type: str, compute_device_type: str) -> list[str]:
        return ["dense"] if sharding_type == DATA_PARALLEL else ["fused"]


def _topology(search: Search) -> Topology:
    memory, intra_host, cross_host = search.bandwidths
    on_gpu = search.kind == "cuda"
    return Topology(
        world_size=search.ranks,
        local_world_size=search.ranks_per_host,
        compute_device=search.kind,
        hbm_cap=search.room_bytes if on_gpu else 0,
        ddr_cap=0 if on_gpu else search.room_bytes,
        hbm_mem_bw=memory,
        ddr_mem_bw=memory,
        intra_host_bw=intra_host,
        inter_host_bw=cross_host,
    )
