"""DeepFM (Guo et al. 2017, figure 1). A factorisation machine and a deep MLP read the same embeddings, and their logits add up.

                                      +-> first order: sum of w_i x_i -----------------+
dense [B, K] ---> K fields -+         |                                                |
                            +-> w, V -+-> second order: sum of dots of all pairs V_i --+-> logit [B]
sparse -> tables -> F fields+         |                                                |
                                      +-> concat of all V_i -> deep MLP ---------------+

A row of a table is [V | w], D + 1 columns. It holds the embedding and the first-order weight of an id, in one look-up. A dense feature is a
field with one row, times its value. A bag is one field: what its pooling makes of its rows. The bias is the deep MLP's last.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from recsys_lab.models.click_model import ClickModel, ModelInputs
from recsys_lab.models.deepfm import DeepFM
from recsys_lab.models.first_order import FirstOrder
from recsys_lab.models.layers import begin_silent, check_layers, embedding_bags, feature_names, mlp


class DeepFMNetwork(ClickModel):
    """A field i is a feature, or one of the K dense values. Row widths: D of V_i, 1 of w_i."""

    def __init__(self, inputs: ModelInputs, options: DeepFM):
        super().__init__()
        tables, dense_width, device = inputs.checked(options.rows, options.lengths, options.dense_features)
        check_layers("model.deep_layers", options.deep_layers, 1, "one logit")
        dim = options.embedding_dim // inputs.column_slices
        self.row_widths, self.first_order_column = options.widths(dim), dim
        self.features = feature_names(tables)
        self.embeddings = embedding_bags(tables, device)
        self.dense_rows = nn.Embedding(dense_width, sum(self.row_widths), device=device) if dense_width else None
        fields = len(self.features) + dense_width
        self.deep = mlp(fields * dim, options.deep_layers, device, dropout=options.dropout, linear_end=True)
        self.pairs = Scale(device) if options.scale_pairs else nn.Identity()

    def predict(self, dense: Tensor | None, looked_up: Mapping[str, Tensor]) -> Tensor:
        """Figure 1: dense [B, K] or None and each feature's row [B, D + 1] -> logits [B]."""
        vectors, weights = self.fields(dense, looked_up).split(self.row_widths, dim=2)  # [B, F + K, D], [B, F + K, 1]
        first_order = weights.sum((1, 2))  # [B]
        deep = self.deep(vectors.flatten(1)).squeeze(1)  # [B]
        return first_order + self.pairs(second_order(vectors)) + deep

    def reset_parameters(self) -> None:
        """Rows of dense features start small enough that dots of pairs do not drown the deep MLP.

        They start large enough that values count.
        """
        if self.dense_rows is not None:
            nn.init.uniform_(self.dense_rows.weight, -0.1, 0.1)

    @torch.no_grad()
    def begin_with(self, start: FirstOrder) -> None:
        assert isinstance(self.pairs, Scale), "scale_pairs"
        self.pairs.weight.zero_()
        begin_silent(self.deep, start.bias)
        if self.dense_rows is not None:
            self.dense_rows.weight[:, -1] = torch.from_numpy(start.dense)

    def fields(self, dense: Tensor | None, looked_up: Mapping[str, Tensor]) -> Tensor:
        """The rows of all fields, [B, F + K, D + 1]."""
        rows = torch.stack([looked_up[feature] for feature in self.features], dim=1)
        if self.dense_rows is None or dense is None:
            return rows
        return torch.cat([rows, dense.unsqueeze(2) * self.dense_rows.weight], dim=1)


class Scale(nn.Module):
    """Times one weight, 1 at first."""

    def __init__(self, device: torch.device | None):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(1, device=device))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.ones_(self.weight)

    def forward(self, x: Tensor) -> Tensor:
        return x * self.weight


def second_order(vectors: Tensor) -> Tensor:
    """[B, n, D] -> [B]: dot products of all pairs of different vectors, added up in O(n D). It is half of (sum V)^2 - sum V^2.

    (Rendle 2010, "Factorization Machines", lemma 3.1).
    """
    return (vectors.sum(1).square() - vectors.square().sum(1)).sum(1) / 2
