"""TorchRec's two kinds of collection, pooled and sequences, behind one door."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import torch
import torch.distributed as dist
from torchrec.distributed.types import ParameterSharding, ShardingEnv
from torchrec.modules.embedding_configs import EmbeddingBagConfig, EmbeddingConfig
from torchrec.modules.embedding_modules import EmbeddingBagCollection, EmbeddingCollection

from recsys_lab.executor.embedding_bags import ShardedBags
from recsys_lab.executor.embedding_rows import ShardedRows
from recsys_lab.executor.formats import WireFormats
from recsys_lab.executor.replicas import Replicas

Config: TypeAlias = EmbeddingBagConfig | EmbeddingConfig
Sharded: TypeAlias = ShardedBags | ShardedRows


def configs_of(collection: EmbeddingBagCollection | EmbeddingCollection) -> Sequence[Config]:
    """Of its tables, in order."""
    return collection.embedding_bag_configs() if isinstance(collection, EmbeddingBagCollection) else collection.embedding_configs()


def shard_collection(
    configs: Sequence[Config],
    parameters: dict[str, ParameterSharding],
    env: ShardingEnv,
    device: torch.device,
    replicas: Mapping[str, dist.ProcessGroup],
    formats: WireFormats,
) -> Sharded:
    """A collection of the tables `configs` (one kind), sharded by `parameters` over the group of `env`.

    `replicas`: by scheme, the process group whose ranks hold the same shards as this one and average their gradients.
    """
    meta = torch.device("meta")
    alike = {scheme: Replicas(group, formats.gradients) for scheme, group in replicas.items()}
    pooled = [config for config in configs if isinstance(config, EmbeddingBagConfig)]
    if pooled:
        return ShardedBags(EmbeddingBagCollection(pooled, device=meta), parameters, env, device, alike, formats.torchrec)
    rows = [config for config in configs if isinstance(config, EmbeddingConfig)]
    return ShardedRows(EmbeddingCollection(rows, device=meta), parameters, env, device, alike, formats.torchrec)
