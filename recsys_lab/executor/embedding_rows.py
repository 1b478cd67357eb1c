"""TorchRec's sharded EmbeddingCollection (sequences: a row for each id, nothing pooled) with our look-up in it.

As `embedding_bags` for pooled tables. A batch's output is a JaggedTensor a feature.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torchrec.distributed.embedding import ShardedEmbeddingCollection
from torchrec.distributed.types import LazyAwaitable, ParameterSharding, QuantizedCommCodecs, ShardingEnv
from torchrec.modules.embedding_modules import EmbeddingCollection
from torchrec.sparse.jagged_tensor import JaggedTensor, KeyedJaggedTensor

from recsys_lab.executor.ahead import Ahead, ShardedInput
from recsys_lab.executor.lookup import BatchedLookup, shards_of
from recsys_lab.executor.replicas import Replicas
from recsys_lab.executor.table_batch import TableBatch
from recsys_lab.models.table_configs import format_of


class ShardedRows(ShardedEmbeddingCollection):
    """Has no torch parameters: its weights are in `batches`. `replicas` and `codecs` as in `ShardedBags`."""

    _replicas: Mapping[str, Replicas]
    _formats: dict[str, str]  # how weights are stored, by table

    def __init__(
        self,
        module: EmbeddingCollection,
        params: dict[str, ParameterSharding],
        env: ShardingEnv,
        device: torch.device,
        replicas: Mapping[str, Replicas],
        codecs: dict[str, QuantizedCommCodecs] | None,
    ):
        self.__dict__["_replicas"] = replicas  # wanted before nn.Module's constructor has run
        self.__dict__["_formats"] = {c.name: format_of(c) for c in module.embedding_configs()}
        super().__init__(module, params, env, device=device, qcomm_codecs_registry=codecs)
        self.ahead = Ahead(self.begin)

    def forward(self, features: KeyedJaggedTensor) -> LazyAwaitable[dict[str, JaggedTensor]]:
        return self.issue(self.ahead.take(features))

    def begin(self, features: KeyedJaggedTensor) -> ShardedInput:
        return ShardedInput(self, features)

    def issue(self, begun: ShardedInput) -> LazyAwaitable[dict[str, JaggedTensor]]:
        return self.compute_and_output_dist(begun.context, begun.received())

    @property
    def batches(self) -> list[TableBatch]:
        return [batch for lookup in self._lookups for batch in lookup.batches]

    def _create_lookups(self) -> None:
        for scheme, sharding in self._sharding_type_to_sharding.items():
            groups = sharding._grouped_embedding_configs_per_rank[self._env.rank]
            self._lookups.append(BatchedLookup(shards_of(groups, self._formats), self._device, self._replicas.get(scheme)))

    def init_data_parallel(self) -> None:
        """Replicas are averaged by us, not by a DistributedDataParallel of their own."""

    def _initialize_torch_state(self, skip_registering: bool = False) -> None:
        """No state of torch's kind: checkpoints are made from `batches`."""
