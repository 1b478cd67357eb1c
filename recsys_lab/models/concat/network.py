"""DLRM with concatenation for interaction: pooled vectors side by side, of any widths, as production models have them.

dense [B, K] -> bottom MLP -> [B, N] -+-> concat -> over MLP -> logit [B]
sparse -> tables -> F x [B, D_f] -----+
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor, KeyedTensor

from recsys_lab.models.click_model import ClickModel, ModelInputs
from recsys_lab.models.concat import Concat
from recsys_lab.models.layers import by_feature, check_layers, embedding_bags, feature_names, mlp


class ConcatNetwork(ClickModel):
    """Without dense features there is no bottom MLP."""

    def __init__(self, inputs: ModelInputs, options: Concat):
        super().__init__()
        tables, dense_width, device = inputs.checked(options.rows, options.lengths, options.dense_features)
        bottom_layers, over_layers = options.bottom_layers, options.over_layers
        check_layers("model.bottom_layers", bottom_layers, bottom_layers[-1] if bottom_layers else 1, "1 or more")
        check_layers("model.over_layers", over_layers, 1, "one logit")
        self.features = feature_names(tables)
        self.embeddings = embedding_bags(tables, device)
        self.bottom = mlp(dense_width, bottom_layers, device) if dense_width else None
        columns = sum(len(table.features) * table.dim for table in tables) + (bottom_layers[-1] if dense_width else 0)
        self.over = mlp(columns, over_layers, device, dropout=options.dropout, linear_end=True)

    def forward(self, dense: Tensor | None, sparse: KeyedJaggedTensor) -> Tensor:
        """dense [B, K] or None, F features of B bags -> logits [B]."""
        return self.predict(dense, self.embeddings(sparse))

    def predict(self, dense: Tensor | None, looked_up: KeyedTensor | Mapping[str, Tensor]) -> Tensor:
        """dense [B, K] or None and each feature's [B, D_f] -> logits [B]."""
        bottom = [] if self.bottom is None else [self.bottom(dense)]  # [B, N], computed while sharded tables exchange their rows
        rows = by_feature(looked_up)
        vectors = [rows[feature] for feature in self.features]  # F x [B, D_f]
        return self.over(torch.cat([*bottom, *vectors], dim=1)).squeeze(1)
