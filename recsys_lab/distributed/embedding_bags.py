"""TorchRec's sharded EmbeddingBagCollection with our look-up in it.

TorchRec keeps what it does well: who sends which ids to whom, and which pooled rows come back. Its look-up kernels are replaced
by `TableBatch`, whose update is exact under every optimizer and sharding type (docs/decisions/sparse-optimizers.md).
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn
from torchrec.distributed.embedding_types import GroupedEmbeddingConfig, ShardedEmbeddingTable
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder, ShardedEmbeddingBagCollection
from torchrec.distributed.types import ParameterSharding, ShardingEnv
from torchrec.modules.embedding_configs import PoolingType, data_type_to_dtype
from torchrec.modules.embedding_modules import EmbeddingBagCollection
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

from recsys_lab.distributed.table_batch import HeldShard, TableBatch
from recsys_lab.plan.sharding_plan import SCHEMES

#: Where rows of one table lie on several ranks, TorchRec sums in the look-up and divides for the mean at the end.
SUMMED_ACROSS_RANKS = ("row_wise", "table_row_wise", "grid_shard")


class AnySharder(EmbeddingBagCollectionSharder):
    """Makes `ShardedBags`. Offers every sharding type: TorchRec leaves out half of them on CPU, though they run."""

    def sharding_types(self, compute_device_type: str) -> list[str]:
        return list(SCHEMES)

    def shard(
        self,
        module: EmbeddingBagCollection,
        params: dict[str, ParameterSharding],
        env: ShardingEnv,
        device: torch.device | None = None,
        module_fqn: str | None = None,
    ) -> ShardedBags:
        return ShardedBags(
            module,
            params,
            env,
            fused_params=self.fused_params,
            device=device,
            qcomm_codecs_registry=self.qcomm_codecs_registry,
            module_fqn=module_fqn,
        )


class ShardedBags(ShardedEmbeddingBagCollection):
    """Has no torch parameters: its weights are in `batches`, so neither DistributedDataParallel nor `state_dict` sees them."""

    @property
    def batches(self) -> list[TableBatch]:
        return [batch for lookup in self._lookups for batch, _ in lookup.batches]

    def _create_lookups(self) -> None:
        for scheme, sharding in zip(self._sharding_types, self._embedding_shardings):
            groups = sharding._grouped_embedding_configs_per_rank[self._env.rank]
            self._lookups.append(BatchedLookup(groups, scheme, self._device, self._env.process_group))

    def init_data_parallel(self) -> None:
        """Replicas are averaged when the optimizer steps, not by a DistributedDataParallel of their own."""

    def _initialize_torch_state(self, skip_registering: bool = False) -> None:
        """No state of torch's kind: checkpoints are made from `batches`."""


class BatchedLookup(nn.Module):
    """All shards of one scheme on this rank: ids of F features -> pooled rows [B, sum of the features' widths]."""

    def __init__(self, groups: list[GroupedEmbeddingConfig], scheme: str, device: torch.device, world: dist.ProcessGroup):
        super().__init__()
        replicas = world if scheme == "data_parallel" and world.size() > 1 else None
        self.batches: list[tuple[TableBatch, list[int]]] = []  # with the positions of its features among the lookup's
        self.widths: list[int] = []  # of each feature
        by_kind: dict[tuple, list[tuple[ShardedEmbeddingTable, list[int]]]] = {}
        for group in groups:
            mean = group.pooling == PoolingType.MEAN and scheme not in SUMMED_ACROSS_RANKS
            for table in group.embedding_tables:
                features = list(range(len(self.widths), len(self.widths) + table.num_features()))
                self.widths += [table.local_cols] * len(features)
                kind = (table.local_cols, data_type_to_dtype(table.data_type), "mean" if mean else "sum")
                by_kind.setdefault(kind, []).append((table, features))
        for (width, dtype, mode), tables in by_kind.items():
            shards, offset = [], 0
            for table, features in tables:
                shards.append(_held(table, len(features), offset))
                offset += table.local_rows
            batch = TableBatch(shards, width, dtype, mode, device, replicas)
            self.batches.append((batch, [f for _, features in tables for f in features]))
        self._anchor = torch.zeros((), device=device, requires_grad=True)

    def forward(self, features: KeyedJaggedTensor) -> torch.Tensor:
        rows = features.stride()
        if not self.batches:  # this rank holds nothing, but takes part in the exchange of gradients
            return self._anchor.expand(rows, 1)[:, :0]
        if len(self.batches) == 1:
            return self.batches[0][0].look_up(features.values(), features.offsets(), rows)
        parts: list[torch.Tensor] = [features.values()] * len(self.widths)
        for batch, positions in self.batches:
            own = features.permute(positions)
            pooled = batch.look_up(own.values(), own.offsets(), rows)
            for position, part in zip(positions, pooled.split(batch.weight.shape[1], dim=1)):
                parts[position] = part
        return torch.cat(parts, dim=1)


def _held(table: ShardedEmbeddingTable, features: int, offset: int) -> HeldShard:
    row, col = table.local_metadata.shard_offsets if table.local_metadata else (0, 0)
    return HeldShard(table.name, row, row + table.local_rows, col, col + table.local_cols, features, offset)
