"""XLRM: a synthetic model of the class that DMT calls XLRM (section 5.1), itself not public: interactions of several kinds, stacked.

dense [B, K] -> bottom MLP -> 1 x [B, N] -+-> interaction layer -> ... -> interaction layer -> concat -> over MLP -> logit [B]
sparse -> tables ----------> F x [B, N] --+

Each operator of a layer sees all its vectors and makes some new ones. DHEN does so (Zhang et al. 2022, "A Deep and Hierarchical Ensemble
Network", figure 2). With towers, each tower has a layer of the same operators for its features alone (DMT, section 5.2.2).
"""

from __future__ import annotations

import math
from functools import partial

import torch
from torch import Tensor, nn

from recsys_lab.errors import UserError
from recsys_lab.models.click_model import ModelInputs
from recsys_lab.models.interaction import InteractionModel, LookedUp, with_bottom
from recsys_lab.models.layer_norm import LayerNorm
from recsys_lab.models.layers import LowRankCross, check_arch, dot_interaction, mlp
from recsys_lab.models.linear import Linear, matmul
from recsys_lab.models.options import Towers
from recsys_lab.models.towers import TowerModules, check_towers
from recsys_lab.models.xlrm import XLRM, XLRMTowers

OPERATORS = 4


class XLRMNetwork(InteractionModel):
    """F: the vectors that interact beside the dense features' own, one a feature or what tower modules make of them."""

    def __init__(self, inputs: ModelInputs, options: XLRM):
        super().__init__()
        tables, dense_width, device = inputs.checked(options.rows, options.lengths, options.dense_features)
        per_operator, width = options.vectors, options.embedding_dim // inputs.column_slices  # of a table
        check_arch(options.embedding_dim, options.bottom_layers, options.over_layers)
        towers = tower_modules(check_towers(inputs), options, width, device)
        vectors, dim = self.add_sparse_arch(tables, width, device, towers)
        self.bottom = mlp(dense_width, [*options.bottom_layers[:-1], dim], device) if dense_width else None
        vectors += 1 if dense_width else 0
        if vectors < 2:
            raise UserError("one vector has no other to interact with", where="model", given="one feature", allowed="2 or more")
        self.layers = nn.Sequential()
        for _ in range(options.layers):
            self.layers.append(InteractionLayer(vectors, per_operator, dim, options.cross_rank, options.mlp_width, device))
            vectors = OPERATORS * per_operator
        self.over = mlp(vectors * dim, options.over_layers, device, dropout=options.dropout, linear_end=True)

    def predict(self, dense: Tensor | None, looked_up: LookedUp) -> Tensor:
        """dense [B, K] or None, and what the tables gave -> logits [B]."""
        bottom = self.dense_arch(dense)  # [B, D], computed while sharded tables exchange their rows; None without dense features
        vectors = self.sparse_arch(looked_up)  # F x [B, D], in parts of [B, any number, D]
        x = torch.cat(with_bottom(bottom, vectors), dim=1)  # [B, F + 1, D]
        interactions = self.layers(x)  # [B, OPERATORS * `vectors`, D]
        return self.over(interactions.flatten(1)).squeeze(1)


class XLRMTower(nn.Module):
    """[B, F, N] -> [B, O]: an interaction layer, whose vectors are projected where whole ones are more than the tower sends.

    So 12 features that are compressed 3 times give 4 vectors of N, one an operator, and 6 features 4 of N / 2. One feature alone has
    nothing to interact with: it is projected.
    """

    def __init__(self, features: int, dim: int, tower: XLRMTowers, device: torch.device | None):
        super().__init__()
        sent = features * dim / tower.compression
        each = math.ceil(sent / (OPERATORS * dim))  # vectors of an operator
        vectors = OPERATORS * each if features > 1 else 1
        width = min(math.ceil(sent / vectors), dim)
        of_several = partial(InteractionLayer, features, each, dim, tower.cross_rank, tower.mlp_width, device)
        self.interact = of_several() if features > 1 else nn.Identity()
        self.project = Linear(dim, width, device=device) if width < dim else nn.Identity()
        self.columns = vectors * width

    def forward(self, embeddings: Tensor) -> Tensor:
        return self.project(self.interact(embeddings)).flatten(1)


class InteractionLayer(nn.Module):
    """[B, n, N] -> [B, 4 m, N]: each operator makes m vectors of all n. A linear mixture of the n is added to them.

    dots: those of every pair, -> linear. cross: a low-rank cross layer over all values, mixed to m. MLP: all values -> `width` -> m.
    attention: each vector over all of them, with one head, mixed to m. The vectors are normalised first, as the first values of a large
    table are small.
    """

    def __init__(self, vectors: int, outputs: int, dim: int, cross_rank: int, width: int, device: torch.device | None):
        super().__init__()
        self.dim = dim
        self.normalise = LayerNorm(dim, device=device)
        self.dots = Linear(vectors * (vectors - 1) // 2, outputs * dim, device=device)
        self.cross = LowRankCross(vectors * dim, 1, cross_rank, device)
        self.cross_mix = Linear(vectors, outputs, device=device)
        self.mlp = mlp(vectors * dim, [width, outputs * dim], device, linear_end=True)
        self.query_key_value = Linear(dim, 3 * dim, device=device)
        self.attention_mix = Linear(vectors, outputs, device=device)
        self.mix = Linear(vectors, OPERATORS * outputs, bias=False, device=device)

    def forward(self, x: Tensor) -> Tensor:
        x = self.normalise(x)
        flat = x.flatten(1)
        dots = self.dots(dot_interaction(x)).unflatten(1, (-1, self.dim))
        crossed = mixed(self.cross_mix, self.cross(flat).view_as(x))
        perceived = self.mlp(flat).unflatten(1, (-1, self.dim))
        query, key, value = self.query_key_value(x).chunk(3, dim=2)
        attended = mixed(self.attention_mix, matmul(matmul(query, key.mT).div(self.dim**0.5).softmax(2), value))
        return torch.cat([dots, crossed, perceived, attended], dim=1) + mixed(self.mix, x)


def mixed(linear: nn.Linear, x: Tensor) -> Tensor:
    """[B, n, N] -> [B, m, N]: linear combinations of the n vectors. As `linear(x.mT).mT`, without keeping a turned copy of x."""
    y = matmul(linear.weight.expand(x.shape[0], -1, -1), x)
    return y if linear.bias is None else y + linear.bias.unsqueeze(1)


def tower_modules(towers: Towers, options: XLRM, width: int, device: torch.device | None) -> TowerModules | None:
    """The modules of `towers`, for tables of `width` columns. None where there are none."""
    if not towers:
        return None
    modules = [XLRMTower(len(own), width, options.tower, device) for own in towers]
    return TowerModules(towers, list(modules), [module.columns for module in modules], options.embedding_dim)
