"""Our look-up in place of TorchRec's kernels: all shards of one scheme on this rank, pooled or as sequences."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch import nn
from torchrec.distributed.embedding_types import GroupedEmbeddingConfig
from torchrec.modules.embedding_configs import PoolingType
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

from recsys_lab.executor.replicas import Replicas
from recsys_lab.executor.table_batch import HeldShard, TableBatch

MODE_OF_POOLING = {PoolingType.SUM: "sum", PoolingType.MEAN: "mean", PoolingType.NONE: "none"}


def shards_of(groups: list[GroupedEmbeddingConfig], formats: Mapping[str, str]) -> list[HeldShard]:
    """What TorchRec has this rank hold, in the order of its features. `formats`: by table, how its weights are stored."""
    held = []
    for table, pooling in [(table, group.pooling) for group in groups for table in group.embedding_tables]:
        row, col = table.local_metadata.shard_offsets if table.local_metadata else (0, 0)
        extent = (row, row + table.local_rows, col, col + table.local_cols)
        held.append(HeldShard(table.name, *extent, table.num_features(), formats[table.name], MODE_OF_POOLING[pooling]))
    return held


class BatchedLookup(nn.Module):
    """Ids of F features -> pooled rows [B, sum of the features' widths], or, of sequences, a row for each id [N, D].

    `replicas`: the ranks that hold the same shards, or None.
    """

    def __init__(self, shards: Iterable[HeldShard], device: torch.device, replicas: Replicas | None):
        super().__init__()
        self._parts: list[tuple[TableBatch, list[int]]] = []  # with the positions of its features among the look-up's
        self._features = 0
        by_kind: dict[tuple, list[tuple[HeldShard, range]]] = {}
        for shard in shards:
            positions = range(self._features, self._features + shard.features)
            by_kind.setdefault((shard.width, shard.format, shard.mode), []).append((shard, positions))
            self._features += shard.features
        for alike in by_kind.values():
            batch = TableBatch([shard for shard, _ in alike], device, replicas)
            self._parts.append((batch, [position for _, positions in alike for position in positions]))
        self._anchor = torch.zeros((), device=device, requires_grad=True)

    @property
    def batches(self) -> list[TableBatch]:
        return [batch for batch, _ in self._parts]

    def forward(self, features: KeyedJaggedTensor) -> torch.Tensor:
        samples = features.stride()
        if not self._parts:  # this rank holds nothing, but takes part in the exchange of gradients
            return self._anchor.expand(samples, 1)[:, :0]
        if len(self._parts) == 1:
            return self._parts[0][0].look_up(features.values(), features.offsets(), samples)
        rows: list[torch.Tensor] = [features.values()] * self._features
        for batch, positions in self._parts:
            own = features.permute(positions)
            looked_up = batch.look_up(own.values(), own.offsets(), samples)
            of_feature = looked_up.split(own.length_per_key()) if batch.mode == "none" else looked_up.split(batch.width, dim=1)
            for position, part in zip(positions, of_feature):
                rows[position] = part
        return torch.cat(rows, dim=0 if self._parts[0][0].mode == "none" else 1)
