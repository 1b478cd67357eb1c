"""TorchRec's sharded EmbeddingBagCollection with our look-up in it.

TorchRec keeps what it does well: who sends which ids to whom, and which pooled rows come back. Its look-up kernels are replaced
by `TableBatch`, whose update is exact under every optimizer and sharding type (docs/decisions/sparse-optimizers.md).
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.distributed as dist
from torchrec.distributed.embeddingbag import ShardedEmbeddingBagCollection
from torchrec.distributed.types import ParameterSharding, ShardingEnv
from torchrec.modules.embedding_modules import EmbeddingBagCollection

from recsys_lab.distributed.lookup import BatchedLookup, shards_of
from recsys_lab.distributed.table_batch import TableBatch


class ShardedBags(ShardedEmbeddingBagCollection):
    """Has no torch parameters: its weights are in `batches`, so neither DistributedDataParallel nor `state_dict` sees them.

    `replicas`: by scheme, the process group whose ranks hold the same shards and average their gradients.
    """

    _replicas: Mapping[str, dist.ProcessGroup]

    def __init__(
        self,
        module: EmbeddingBagCollection,
        params: dict[str, ParameterSharding],
        env: ShardingEnv,
        device: torch.device,
        replicas: Mapping[str, dist.ProcessGroup],
    ):
        self.__dict__["_replicas"] = replicas  # wanted before nn.Module's constructor has run
        super().__init__(module, params, env, device=device)

    @property
    def batches(self) -> list[TableBatch]:
        return [batch for lookup in self._lookups for batch in lookup.batches]

    def _create_lookups(self) -> None:
        for scheme, sharding in zip(self._sharding_types, self._embedding_shardings):
            groups = sharding._grouped_embedding_configs_per_rank[self._env.rank]
            self._lookups.append(BatchedLookup(shards_of(groups, scheme), self._device, self._replicas.get(scheme)))

    def init_data_parallel(self) -> None:
        """Replicas are averaged by us, not by a DistributedDataParallel of their own."""

    def _initialize_torch_state(self, skip_registering: bool = False) -> None:
        """No state of torch's kind: checkpoints are made from `batches`."""
