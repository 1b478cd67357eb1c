"""TorchRec's sharded EmbeddingCollection (sequences: a row for each id, nothing pooled) with our look-up in it.

As `embedding_bags` for pooled tables. A batch's output is a JaggedTensor a feature.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.distributed as dist
from torchrec.distributed.embedding import ShardedEmbeddingCollection
from torchrec.distributed.types import ParameterSharding, ShardingEnv
from torchrec.modules.embedding_modules import EmbeddingCollection

from recsys_lab.distributed.lookup import BatchedLookup, shards_of
from recsys_lab.distributed.table_batch import TableBatch

#: The schemes for which TorchRec has a sequence exchange.
SEQUENCE_SCHEMES = ("data_parallel", "table_wise", "column_wise", "row_wise")


class ShardedRows(ShardedEmbeddingCollection):
    """Has no torch parameters: its weights are in `batches`. `replicas` as in `ShardedBags`."""

    _replicas: Mapping[str, dist.ProcessGroup]

    def __init__(
        self,
        module: EmbeddingCollection,
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
        for scheme, sharding in self._sharding_type_to_sharding.items():
            groups = sharding._grouped_embedding_configs_per_rank[self._env.rank]
            self._lookups.append(BatchedLookup(shards_of(groups), self._device, self._replicas.get(scheme)))

    def init_data_parallel(self) -> None:
        """Replicas are averaged by us, not by a DistributedDataParallel of their own."""

    def _initialize_torch_state(self, skip_registering: bool = False) -> None:
        """No state of torch's kind: checkpoints are made from `batches`."""
