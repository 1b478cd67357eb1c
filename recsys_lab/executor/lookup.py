"""Our look-up in place of TorchRec's kernels: all shards of one scheme on this rank, pooled or as sequences."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

import numpy as np
import torch
from torch import nn
from torchrec.distributed.embedding_types import GroupedEmbeddingConfig
from torchrec.modules.embedding_configs import PoolingType
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

from recsys_lab.executor.replicas import ReplicaGroup
from recsys_lab.executor.store.cached_rows import Held
from recsys_lab.executor.table_batch import HeldShard, TableBatch
from recsys_lab.plan.store import Store

#: By table, of those that have a cache.
Stores: TypeAlias = Mapping[str, Store]
#: By part of a look-up, batches that are done and still pinned.
Finished: TypeAlias = list[list[tuple[np.ndarray, bool]]]
MODE_OF_POOLING = {PoolingType.SUM: "sum", PoolingType.MEAN: "mean", PoolingType.NONE: "none"}


def shards_of(groups: list[GroupedEmbeddingConfig], formats: Mapping[str, str], stores: Stores) -> list[HeldShard]:
    """What TorchRec has this rank hold, in the order of its features. `formats`: by table, how its weights are stored."""
    shards = []
    for table, pooling in [(table, group.pooling) for group in groups for table in group.embedding_tables]:
        row, col = table.local_metadata.shard_offsets if table.local_metadata else (0, 0)
        extent = (row, row + table.local_rows, col, col + table.local_cols)
        how = (table.num_features(), formats[table.name], MODE_OF_POOLING[pooling])
        shards.append(HeldShard(table.name, *extent, *how, store=stores.get(table.name)))
    return shards


class BatchedLookup(nn.Module):
    """Ids of F features -> pooled rows [B, sum of the features' widths]. Of sequences a row for each id [N, D].

    `replicas`: the ranks that hold the same shards, or None.
    """

    def __init__(self, shards: Iterable[HeldShard], device: torch.device, replicas: ReplicaGroup | None):
        super().__init__()
        self._parts: list[tuple[TableBatch, list[int]]] = []  # with the positions of its features among the look-up's
        self._features = 0
        self._fetched: list[tuple[KeyedJaggedTensor, list[Held | None]]] = []
        by_kind: dict[tuple, list[tuple[HeldShard, range]]] = {}
        for shard in shards:
            positions = range(self._features, self._features + shard.features)
            alone = None if shard.store is None else shard
            by_kind.setdefault((shard.width, shard.format, shard.mode, alone), []).append((shard, positions))
            self._features += shard.features
        for members in by_kind.values():
            batch = TableBatch([shard for shard, _ in members], device, replicas)
            self._parts.append((batch, [position for _, positions in members for position in positions]))
        self._anchor = torch.zeros((), device=device, requires_grad=True)

    @property
    def batches(self) -> list[TableBatch]:
        return [batch for batch, _ in self._parts]

    def fetch(self, features: KeyedJaggedTensor, finished: Finished) -> None:
        """Has the rows that `features` will read in the caches. On a thread of its own, while another batch computes."""
        parts = [self._own(features, positions) for _, positions in self._parts]
        batch_rows = [
            None if batch.cached is None else batch.cached.fetch(own.values(), done)
            for (batch, _), own, done in zip(self._parts, parts, finished)
        ]
        self._fetched.append((features, batch_rows))

    def finished(self) -> Finished:
        """What `fetch` wants to know. It is read when a batch's ids leave, so that no thread's speed decides what is fetched."""
        return [[] if batch.cached is None else batch.cached.finished() for batch in self.batches]

    def forward(self, features: KeyedJaggedTensor) -> torch.Tensor:
        samples, fetched = features.stride(), self._fetched_for(features)
        if not self._parts:  # this rank holds nothing, but takes part in the exchange of gradients
            return self._anchor.expand(samples, 1)[:, :0]
        if len(self._parts) == 1:
            return self._parts[0][0].look_up(features.values(), features.offsets(), samples, fetched[0])
        rows: list[torch.Tensor] = [features.values()] * self._features
        for (batch, positions), batch_rows in zip(self._parts, fetched):
            own = self._own(features, positions)
            looked_up = batch.look_up(own.values(), own.offsets(), samples, batch_rows)
            of_feature = looked_up.split(own.length_per_key()) if batch.mode == "none" else looked_up.split(batch.width, dim=1)
            for position, part in zip(positions, of_feature):
                rows[position] = part
        return torch.cat(rows, dim=0 if self._parts[0][0].mode == "none" else 1)

    def _own(self, features: KeyedJaggedTensor, positions: list[int]) -> KeyedJaggedTensor:
        return features if len(self._parts) == 1 else features.permute(positions)

    def _fetched_for(self, features: KeyedJaggedTensor) -> list[Held | None]:
        """What was fetched for `features`, by part."""
        for index, (batch, batch_rows) in enumerate(self._fetched):
            if batch is features:
                del self._fetched[: index + 1]
                return batch_rows
        return [None] * len(self._parts)
