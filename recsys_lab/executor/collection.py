"""TorchRec's two kinds of collection, pooled and sequences, behind one door: for the schemes that TorchRec exchanges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
import torch.distributed as dist
from torchrec.distributed.types import ParameterSharding, ShardingEnv
from torchrec.modules.embedding_configs import EmbeddingBagConfig, EmbeddingConfig
from torchrec.modules.embedding_modules import EmbeddingBagCollection, EmbeddingCollection

from recsys_lab.executor.execution import Config, Request, Running
from recsys_lab.executor.formats import WireFormats
from recsys_lab.executor.groups import own_group
from recsys_lab.executor.replicas import Replicas
from recsys_lab.executor.torchrec_parts import META, ShardedBags, ShardedRows, TorchRecPart
from recsys_lab.executor.torchrec_plan import to_torchrec
from recsys_lab.plan.scheme import home_scheme


def shard_collection(
    configs: Sequence[Config],
    parameters: dict[str, ParameterSharding],
    env: ShardingEnv,
    device: torch.device,
    replicas: Mapping[str, dist.ProcessGroup],
    formats: WireFormats,
) -> TorchRecPart:
    """A collection of the tables `configs` (one kind), sharded by `parameters` over the group of `env`.

    `replicas`: by scheme, the process group whose ranks hold the same shards as this one and average their gradients.
    """
    alike = {scheme: Replicas(group, formats.gradients) for scheme, group in replicas.items()}
    bags = [config for config in configs if isinstance(config, EmbeddingBagConfig)]
    if bags:
        return ShardedBags(EmbeddingBagCollection(bags, device=META), parameters, env, device, alike, formats.torchrec)
    rows = [config for config in configs if isinstance(config, EmbeddingConfig)]
    return ShardedRows(EmbeddingCollection(rows, device=META), parameters, env, device, alike, formats.torchrec)


def run(request: Request) -> Running:
    """All tables of the request as one collection, over all ranks: `Execution.run` of the schemes that TorchRec exchanges. Collective."""
    plan, home = request.plan, home_scheme().name
    replicated = any(placement.scheme == home for _, placement in request.placed)
    replicas = own_group([list(range(plan.world_size))] if replicated else [])
    part = shard_collection(
        request.configs,
        to_torchrec(request.placed, plan.ranks_per_host, request.device.type),
        ShardingEnv.from_process_group(dist.group.WORLD),
        request.device,
        {} if replicas is None else {home: replicas},
        request.formats,
    )
    return Running(part)
