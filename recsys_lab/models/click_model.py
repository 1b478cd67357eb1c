"""What every model has, so that executors and the cost count can take it apart."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torchrec.modules.embedding_modules import EmbeddingBagCollection, EmbeddingCollection
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

from recsys_lab.errors import UserError
from recsys_lab.tables import Table


@dataclass(frozen=True)
class ModelInputs:
    """What a model is built for. `dense_width`: dense values a sample, 0 where there are none. `device`: meta where only cost counts."""

    tables: tuple[Table, ...]
    dense_width: int
    device: torch.device | None = None

    def checked(
        self, rows: list[int] | None, lengths: list[int] | None, dense_features: int | None
    ) -> tuple[tuple[Table, ...], int, torch.device | None]:
        """(tables, dense width, device). Raises UserError if a model that fixes its own inputs (the keys of those names) is given others.

        Sizes of tables may differ: a local run scales them down.
        """
        if rows is not None and len(rows) != len(self.tables):
            raise UserError("this model fixes its tables", where="model.rows", given=f"{len(self.tables)} tables", allowed=f"{len(rows)}")
        if rows is not None and lengths is not None and len(rows) != len(lengths):
            raise UserError("one length a table is needed", where="model.lengths", given=len(lengths), allowed=f"{len(rows)}")
        if dense_features is not None and dense_features != self.dense_width:
            where = "model.dense_features"
            raise UserError("this model fixes its dense features", where=where, given=self.dense_width, allowed=dense_features)
        return self.tables, self.dense_width, self.device


class ClickModel(nn.Module):
    """`embeddings` are its tables, which an executor may replace by sharded ones; `predict` is everything after them.

    `has_first_order`: an id's row has a weight that goes into the logit as it is. `initial_share`: of the usual first values of tables.
    `objective`: what its outputs are and how they are trained; click: a logit a row. `with_towers`: the model's class for a sharder whose
    towers have modules, null where it has none (towers.py). `tower_features`: the features of each tower of a model of that class.
    """

    has_first_order: bool = False
    initial_share: float = 1.0
    with_towers: ClassVar[type[ClickModel] | None] = None

    features: list[str]
    embeddings: EmbeddingBagCollection | EmbeddingCollection
    objective: str = "click"
    tower_features: tuple[tuple[str, ...], ...] = ()

    @staticmethod
    def widths(dim: int) -> tuple[int, ...]:
        """The vectors that a row of a table holds side by side, by their widths, where the model's embeddings have `dim`.

        A model that reads more than an embedding of each id says so here: (dim, 1) adds a first-order weight (deepfm.py).
        """
        return (dim,)

    def forward(self, dense: Tensor | None, sparse: KeyedJaggedTensor) -> Tensor:
        """dense [B, K] or None, F features of B bags -> logits [B]."""
        return self.predict(dense, self.embeddings(sparse).to_dict())

    def predict(self, dense: Tensor | None, looked_up: Any) -> Tensor:
        """dense [B, K] and what the tables gave for each feature ([B, D] where they pool) -> logits [B]."""
        raise NotImplementedError

    def example(self, samples: int, mean_lengths: Mapping[str, float]) -> Any:
        """What the tables would give `predict` for that many samples, on the meta device.

        `mean_lengths`: look-ups a sample by feature, 1 where it has none. Pooled vectors do not depend on them.
        """
        dims = {name: config.embedding_dim for config in table_configs(self) for name in config.feature_names}
        return {name: torch.empty(samples, dim, device="meta", requires_grad=True) for name, dim in dims.items()}


def table_configs(model: ClickModel) -> list[Any]:
    """TorchRec's configs of the model's unsharded tables."""
    tables = model.embeddings
    return tables.embedding_configs() if isinstance(tables, EmbeddingCollection) else tables.embedding_bag_configs()
