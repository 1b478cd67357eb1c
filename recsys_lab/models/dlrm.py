"""DLRM (Naumov et al. 2019, figure 1): dot products of every pair of embeddings, the dense features' one among them.

dense [B, K] -> bottom MLP -> [B, D] --+-> pairwise dots -> concat -> over MLP -> logit [B]
sparse -> tables -> F x [B, D] --------+
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

from recsys_lab.models.click_model import ClickModel
from recsys_lab.models.layers import check_inputs, check_layers, check_least, dot_interaction, embedding_bags, feature_names, mlp
from recsys_lab.tables import Table


class DLRM(ClickModel):
    """`dense_width`: K, 0 where the data have no dense features; then there is no bottom MLP, and only embeddings interact.

    `bottom_layers` end in `embedding_dim`, `over_layers` in 1. `dropout` is between the over MLP's layers.
    `normalise_vectors`: LayerNorm of each feature's vector before they interact, so that interactions learn as fast from a
    large table, whose first values are small, as from a small one.
    `rows`, `lengths` and `dense_features` are set by variants that fix their own inputs. Raises UserError where sizes do not fit.
    """

    def __init__(
        self,
        tables: tuple[Table, ...],
        dense_width: int,
        device: torch.device | None = None,
        *,
        embedding_dim: int,
        bottom_layers: list[int],
        over_layers: list[int],
        dropout: float = 0.0,
        normalise_vectors: bool = False,
        rows: list[int] | None = None,
        lengths: list[int] | None = None,
        dense_features: int | None = None,
    ):
        super().__init__()
        check_inputs("model", tables, dense_width, rows, lengths, dense_features)
        check_layers("model.bottom_layers", bottom_layers, embedding_dim, "as wide as an embedding")
        check_layers("model.over_layers", over_layers, 1, "one logit")
        check_least("model.dropout", dropout, 0, below=1)
        self.features = feature_names(tables)
        self.embeddings = embedding_bags(tables, device)
        self.bottom = mlp(dense_width, bottom_layers, device) if dense_width else None
        self.normalise = nn.LayerNorm(embedding_dim, device=device) if normalise_vectors else nn.Identity()
        vectors = len(self.features) + (1 if dense_width else 0)
        over_width = vectors * (vectors - 1) // 2 + (embedding_dim if dense_width else 0)
        self.over = mlp(over_width, over_layers, device, dropout=dropout, linear_end=True)

    def forward(self, dense: Tensor | None, sparse: KeyedJaggedTensor) -> Tensor:
        """dense [B, K] or None, F features of B bags -> logits [B]."""
        return self.predict(dense, self.embeddings(sparse).to_dict())

    def predict(self, dense: Tensor | None, pooled: dict[str, Tensor]) -> Tensor:
        """The model after its tables: dense [B, K] and each feature's [B, D] -> logits [B]."""
        vectors = [pooled[feature] for feature in self.features]
        if self.bottom is None:
            return self.over(dot_interaction(self.normalise(torch.stack(vectors, dim=1)))).squeeze(1)
        bottom = self.bottom(dense)
        dots = dot_interaction(self.normalise(torch.stack([bottom, *vectors], dim=1)))
        return self.over(torch.cat([bottom, dots], dim=1)).squeeze(1)
