"""DCN-v2 (Wang et al. 2021, figure 1, stacked) in MLPerf's shape: dense features have a bottom MLP, as in DLRM.

dense [B, K] -> bottom MLP --------+-> concat x0 [B, N] -> low-rank cross layers -> over MLP -> logit [B]
sparse -> tables -> F x [B, D] ----+

With towers, the outputs of its tower modules interact instead of the embeddings (DMT, section 4, listing 2).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from recsys_lab.models.click_model import ModelInputs
from recsys_lab.models.dcn import DCN, DCNTowers
from recsys_lab.models.interaction import InteractionModel, LookedUp
from recsys_lab.models.layer_norm import LayerNorm
from recsys_lab.models.layers import LowRankCross, check_arch, mlp
from recsys_lab.models.linear import Linear
from recsys_lab.models.options import Towers
from recsys_lab.models.towers import TowerModules, check_towers, over_layers_of, passes_through


class DCNNetwork(InteractionModel):
    """F: the vectors that interact beside the dense features' own, one a feature or what tower modules make of them. N = (F + 1) D."""

    def __init__(self, inputs: ModelInputs, options: DCN):
        super().__init__()
        tables, dense_width, device = inputs.checked(options.rows, options.lengths, options.dense_features)
        check_arch(options.embedding_dim, options.bottom_layers, options.over_layers)
        width = options.embedding_dim // inputs.column_slices  # of a table
        towers = tower_modules(check_towers(inputs), options, width, device)
        vectors, dim = self.add_sparse_arch(tables, width, device, towers, bool(options.first_order))
        self.bottom = mlp(dense_width, [*options.bottom_layers[:-1], dim], device) if dense_width else None
        self.normalise = self.normalisation(options.normalise_vectors, dim, device)
        width = dim * (vectors + (1 if dense_width else 0))
        self.cross = LowRankCross(width, options.cross_layers, options.cross_rank, device)
        self.over = mlp(width, over_layers_of(options, towers), device, dropout=options.dropout, linear_end=True)
        self.add_first_order(bool(options.first_order), dense_width, device)

    def predict(self, dense: Tensor | None, looked_up: LookedUp) -> Tensor:
        """Figure 1: dense [B, K] or None, and what the tables gave -> logits [B]."""
        bottom = self.dense_arch(dense)  # [B, D], computed while sharded tables exchange their rows; None without dense features
        vectors = self.sparse_arch(looked_up)  # F x [B, D], in parts of [B, any number, D]
        x0 = self.together(bottom, vectors).flatten(1)  # [B, N]
        crossed = self.cross(x0)  # [B, N]
        logits = self.over(crossed).squeeze(1)  # [B]
        return self.plus_first_order(logits, dense, vectors)


class DCNTower(nn.Module):
    """[B, F, N] -> [B, `vectors` D]: a smaller CrossNet and a projection (listing 2). One feature of D = N needs no projection."""

    def __init__(
        self, features: int, width: int, tower: DCNTowers, vectors: int, dim: int, device: torch.device | None, *, normalise: bool = False
    ):
        super().__init__()
        self.normalise = LayerNorm(width, device=device) if normalise else nn.Identity()
        self.cross = LowRankCross(features * width, tower.cross_layers, tower.cross_rank, device)
        passes = passes_through(features, width, vectors, dim)
        self.project = nn.Identity() if passes else Linear(features * width, vectors * dim, device=device)

    def forward(self, embeddings: Tensor) -> Tensor:
        return self.project(self.cross(self.normalise(embeddings).flatten(1)))


def tower_modules(towers: Towers, options: DCN, width: int, device: torch.device | None) -> TowerModules | None:
    """The modules of `towers`, for tables of `width` columns: a number of vectors a tower, or one a feature. None where there are none."""
    tower = options.tower
    if not towers:
        return None
    dim = options.embedding_dim if tower.dim is None else tower.dim
    counts = [len(own) if tower.vectors is None else tower.vectors for own in towers]
    modules: list[nn.Module] = [
        DCNTower(len(own), width, tower, count, dim, device, normalise=options.normalise_vectors) for own, count in zip(towers, counts)
    ]
    return TowerModules(towers, modules, [count * dim for count in counts], dim)
