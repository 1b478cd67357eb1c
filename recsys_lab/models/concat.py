"""DLRM with concatenation for interaction: pooled vectors side by side, of any widths, as production models have them.

dense [B, K] -> bottom MLP -> [B, N] -+-> concat -> over MLP -> logit [B]
sparse -> tables -> F x [B, D_f] -----+
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

from recsys_lab.base.ranges import DenseFeatures, Dimension, Length, RowCount, ShareBelowOne, Width
from recsys_lab.models.click_model import ClickModel, ModelInputs
from recsys_lab.models.layers import check_layers, embedding_bags, feature_names, mlp


class Concat(ClickModel):
    """`dims`: the dimension of each table; null: `embedding_dim` for all. `over_layers` end in 1; `dropout` is between them.

    Without dense features there is no bottom MLP. `rows`, `lengths`, `dims`, `dense_features` and `file` (a CSV of
    tables) are set by variants that fix their own inputs. Raises UserError where sizes do not fit.
    """

    def __init__(
        self,
        inputs: ModelInputs,
        *,
        embedding_dim: Dimension,
        bottom_layers: list[Width],
        over_layers: list[Width],
        dropout: ShareBelowOne = 0.0,
        rows: list[RowCount] | None = None,
        lengths: list[Length] | None = None,
        dims: list[Dimension] | None = None,
        dense_features: DenseFeatures | None = None,
        file: str | None = None,
    ):
        super().__init__()
        tables, dense_width, device = inputs.checked(rows, lengths, dense_features)
        check_layers("model.bottom_layers", bottom_layers, bottom_layers[-1] if bottom_layers else 1, "1 or more")
        check_layers("model.over_layers", over_layers, 1, "one logit")
        self.features = feature_names(tables)
        self.embeddings = embedding_bags(tables, device)
        self.bottom = mlp(dense_width, bottom_layers, device) if dense_width else None
        columns = sum(len(table.features) * table.dim for table in tables) + (bottom_layers[-1] if dense_width else 0)
        self.over = mlp(columns, over_layers, device, dropout=dropout, linear_end=True)

    def forward(self, dense: Tensor | None, sparse: KeyedJaggedTensor) -> Tensor:
        """dense [B, K] or None, F features of B bags -> logits [B]. The bottom MLP computes while sharded tables exchange their rows."""
        looked_up = self.embeddings(sparse)
        bottom = None if self.bottom is None else self.bottom(dense)
        return self._score(bottom, looked_up.to_dict())

    def predict(self, dense: Tensor | None, looked_up: Mapping[str, Tensor]) -> Tensor:
        """dense [B, K] or None and each feature's [B, D_f] -> logits [B]."""
        return self._score(None if self.bottom is None else self.bottom(dense), looked_up)

    def _score(self, bottom: Tensor | None, looked_up: Mapping[str, Tensor]) -> Tensor:
        vectors = [looked_up[feature] for feature in self.features]
        return self.over(torch.cat(vectors if bottom is None else [bottom, *vectors], dim=1)).squeeze(1)
