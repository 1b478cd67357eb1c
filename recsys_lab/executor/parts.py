"""Several parts of a model's tables as one: all exchanges of a pass are issued before one is waited for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torchrec.modules.embedding_configs import EmbeddingBagConfig
from torchrec.sparse.jagged_tensor import JaggedTensor, KeyedJaggedTensor, KeyedTensor

from recsys_lab.executor.ahead import Ahead, Begun
from recsys_lab.executor.execution import Config, Part
from recsys_lab.executor.table_batch import TableBatch


@dataclass(frozen=True)
class AllBegun:
    """Every part's ids on their way."""

    parts: tuple[Any, ...]

    def send(self) -> None:
        for part in self.parts:
            part.send()


class Parts(nn.Module):
    """In and out like the unsharded collection of the tables `configs`. Each part has the features of its own tables."""

    def __init__(self, configs: Sequence[Config], parts: Sequence[tuple[Part, list[str]]]):
        super().__init__()
        self.__dict__["_parts"] = list(parts)  # not searched by torch: their buffers are none of the model's
        self._pooled = isinstance(configs[0], EmbeddingBagConfig)
        self._dims = {feature: config.embedding_dim for config in configs for feature in config.feature_names}
        self.ahead: Ahead = Ahead(self.begin)

    @property
    def batches(self) -> list[TableBatch]:
        return [batch for part, _ in self._parts for batch in part.batches]

    def begin(self, sparse: KeyedJaggedTensor) -> Begun:
        return AllBegun(tuple(part.begin(only(sparse, features)) for part, features in self._parts))

    def forward(self, sparse: KeyedJaggedTensor) -> KeyedTensor | dict[str, JaggedTensor]:
        begun = self.ahead.take(sparse)
        waiting = [part.issue(own) for (part, _), own in zip(self._parts, begun.parts)]
        rows: dict[str, Any] = {}
        for part in waiting:
            arrived = part.wait()
            rows |= arrived.to_dict() if self._pooled else arrived
        if not self._pooled:
            return {feature: rows[feature] for feature in self._dims}
        return KeyedTensor(list(self._dims), list(self._dims.values()), torch.cat([rows[feature] for feature in self._dims], dim=1))


def only(batch: KeyedJaggedTensor, features: list[str]) -> KeyedJaggedTensor:
    """Those features of `batch`, in this order."""
    keys = batch.keys()
    return batch if keys == features else batch.permute([keys.index(feature) for feature in features])
