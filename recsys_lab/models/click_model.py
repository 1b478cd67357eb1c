"""What every model has, so that executors and the cost count can take it apart."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torchrec.modules.embedding_modules import EmbeddingBagCollection, EmbeddingCollection
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

from recsys_lab.base.losses import BINARY
from recsys_lab.errors import UserError
from recsys_lab.models.first_order import FirstOrder
from recsys_lab.models.next_item import NextItem
from recsys_lab.models.options import ModelKind, Towers
from recsys_lab.tables import Table


@dataclass(frozen=True)
class ModelInputs:
    """What a model is built for.

    Attributes:
        tables: those that its features read.
        dense_width: K, dense values a sample; 0: none.
        device: where weights lie; meta where only costs are counted.
        towers: groups of features, each with a tower module, for a model with `has_towers`.
        column_slices: how many tables, by columns, stand for each of the model's own.
    """

    tables: tuple[Table, ...]
    dense_width: int
    device: torch.device | None = None
    towers: Towers = ()
    column_slices: int = 1

    def checked(
        self, rows: list[int] | None, lengths: list[int] | None, dense_features: int | None
    ) -> tuple[tuple[Table, ...], int, torch.device | None]:
        """The inputs, for a model that fixes its own by the keys of these names. Sizes of tables may differ: a local run scales them down.

        Args:
            rows: one entry for each table; None: the data decide.
            lengths: look-ups a sample, one entry for each table.
            dense_features: K.

        Returns:
            (tables, dense width, device).

        Raises:
            UserError: where the data have other tables or dense features.
        """
        if rows is not None and len(rows) * self.column_slices != len(self.tables):
            allowed = len(rows) * self.column_slices
            raise UserError("this model fixes its tables", where="model.rows", given=f"{len(self.tables)} tables", allowed=f"{allowed}")
        if rows is not None and lengths is not None and len(rows) != len(lengths):
            raise UserError("one length a table is needed", where="model.lengths", given=len(lengths), allowed=f"{len(rows)}")
        if dense_features is not None and dense_features != self.dense_width:
            where = "model.dense_features"
            raise UserError("this model fixes its dense features", where=where, given=self.dense_width, allowed=dense_features)
        return self.tables, self.dense_width, self.device


class ClickModel(nn.Module, ModelKind):
    """A model on one device, in parts that executors and the cost count can take apart.

    Attributes:
        first_order_column: of a row, which of its values is its first-order weight, of a model that has one.
        initial_share: of the usual first values of tables.
        features: in the order of the tables.
        embeddings: its tables, which an executor may replace by sharded ones.
        objective: what its outputs are and how they are trained; click: a logit a row.
        loss_weight: what the loss is multiplied by.
        next_item: how items are scored, of a model for the next item.
        tower_features: the features of each tower, of a model with towers.
    """

    first_order_column: int = 0
    initial_share: float = 1.0

    features: list[str]
    embeddings: EmbeddingBagCollection | EmbeddingCollection
    objective: str = "click"
    loss_weight: float = 1.0
    next_item: NextItem | None = None

    @property
    def loss(self) -> str:
        """Of a model for the next item: of base/losses.py."""
        return BINARY if self.next_item is None else self.next_item.loss

    tower_features: Towers = ()

    def forward(self, dense: Tensor | None, sparse: KeyedJaggedTensor) -> Tensor:
        """dense [B, K] or None, F features of B bags -> logits [B]."""
        return self.predict(dense, self.embeddings(sparse).to_dict())

    def predict(self, dense: Tensor | None, looked_up: Any) -> Tensor:
        """Everything after the tables.

        Args:
            dense: [B, K]; None: the data have no dense values.
            looked_up: by feature what the tables gave, [B, D] where they pool.

        Returns:
            Logits [B].
        """
        raise NotImplementedError

    def example_values(self, samples: int, dense_width: int, mean_lengths: Mapping[str, float]) -> Any:
        """What `predict` reads beside the tables, on the meta device: dense values [B, K], or None. `mean_lengths`: as in `example`."""
        return torch.empty(samples, dense_width, device="meta") if dense_width else None

    def begin_with(self, start: FirstOrder) -> None:
        """Sets the weights outside the tables so that the model gives just what `start` gives, once the tables' first-order column holds
        its weights. For a model with `begins_first_order` whose `start_keys` are true, in FP32.
        """
        raise NotImplementedError

    def example(self, samples: int, mean_lengths: Mapping[str, float]) -> Any:
        """What the tables would give `predict`, on the meta device, to count costs.

        Args:
            samples: B.
            mean_lengths: look-ups a sample by feature, 1 where it has none. Pooled vectors do not depend on them.

        Returns:
            By feature [B, D].
        """
        dims = {name: config.embedding_dim for config in table_configs(self) for name in config.feature_names}
        return {name: torch.empty(samples, dim, device="meta", requires_grad=True) for name, dim in dims.items()}


def table_configs(model: ClickModel) -> list[Any]:
    """TorchRec's configs of the model's unsharded tables."""
    tables = model.embeddings
    return tables.embedding_configs() if isinstance(tables, EmbeddingCollection) else tables.embedding_bag_configs()
