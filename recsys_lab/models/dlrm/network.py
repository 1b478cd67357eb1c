"""DLRM (Naumov et al. 2019, figure 1): dot products of every pair of embeddings, the dense features' one among them.

dense [B, K] -> bottom MLP -> [B, D] --+-> pairwise dots -> concat -> over MLP -> logit [B]
sparse -> tables -> F x [B, D] --------+

With towers, the outputs of its tower modules interact instead of the embeddings (DMT, section 4, listing 1).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from recsys_lab.errors import UserError
from recsys_lab.models.click_model import ModelInputs
from recsys_lab.models.dlrm import DLRM, DLRMTowers
from recsys_lab.models.interaction import InteractionModel, LookedUp, with_bottom
from recsys_lab.models.layer_norm import LayerNorm
from recsys_lab.models.layers import check_arch, dot_interaction, mlp
from recsys_lab.models.linear import Linear
from recsys_lab.models.options import Towers
from recsys_lab.models.towers import TowerModules, check_towers, over_layers_of, passes_through


class DLRMNetwork(InteractionModel):
    """F: the vectors that interact beside the dense features' own, one a feature or what tower modules make of them."""

    def __init__(self, inputs: ModelInputs, options: DLRM):
        super().__init__()
        tables, dense_width, device = inputs.checked(options.rows, options.lengths, options.dense_features)
        check_arch(options.embedding_dim, options.bottom_layers, options.over_layers)
        width = options.embedding_dim // inputs.column_slices  # of a table
        towers = tower_modules(check_towers(inputs), options, width, device)
        vectors, dim = self.add_sparse_arch(tables, width, device, towers, bool(options.first_order))
        self.bottom = mlp(dense_width, [*options.bottom_layers[:-1], dim], device) if dense_width else None
        self.normalise = self.normalisation(options.normalise_vectors, dim, device)
        vectors += 1 if dense_width else 0
        over_width = vectors * (vectors - 1) // 2 + (dim if dense_width else 0)
        if over_width < 1:
            raise UserError("one vector has no other to interact with", where="model", given="one feature", allowed="2 or more")
        self.over = mlp(over_width, over_layers_of(options, towers), device, dropout=options.dropout, linear_end=True)
        self.add_first_order(bool(options.first_order), dense_width, device)

    def predict(self, dense: Tensor | None, looked_up: LookedUp) -> Tensor:
        """Figure 1: dense [B, K] or None, and what the tables gave -> logits [B]."""
        bottom = self.dense_arch(dense)  # [B, D], computed while sharded tables exchange their rows; None without dense features
        vectors = self.sparse_arch(looked_up)  # F x [B, D], in parts of [B, any number, D]
        interactions = self.interaction(bottom, vectors)  # [B, D + F (F + 1) / 2]
        logits = self.over(interactions).squeeze(1)  # [B]
        return self.plus_first_order(logits, dense, vectors)

    def interaction(self, bottom: Tensor | None, vectors: list[Tensor]) -> Tensor:
        """The dense features' vector [B, D], where there is one, before the dots of every pair of it and `vectors`."""
        if isinstance(self.normalise, nn.Identity):  # then the parts need no copy, and the first is what stands before the dots
            return dot_interaction(*with_bottom(bottom, vectors), lead=bottom is not None)
        dots = dot_interaction(self.together(bottom, vectors))
        return dots if bottom is None else torch.cat([bottom, dots], dim=1)


class DLRMTower(nn.Module):
    """[B, F, N] -> [B, D (c F + p)]: c projections of each vector, beside p linear combinations of all (listing 1)."""

    def __init__(self, features: int, width: int, c: int, p: int, dim: int, device: torch.device | None, *, normalise: bool = False):
        super().__init__()
        self.normalise = LayerNorm(width, device=device) if normalise else nn.Identity()
        self.combine = Linear(width * features, p * dim, device=device) if p else None
        self.project = Linear(width, c * dim, device=device) if c else None

    def forward(self, embeddings: Tensor) -> Tensor:
        embeddings, parts = self.normalise(embeddings), []
        if self.combine is not None:
            parts.append(self.combine(embeddings.flatten(1)))
        if self.project is not None:
            parts.append(self.project(embeddings).flatten(1))
        return torch.cat(parts, dim=1)


def tower_modules(towers: Towers, options: DLRM, width: int, device: torch.device | None) -> TowerModules | None:
    """The modules of `towers`, for tables of `width` columns: c vectors a feature and p a tower. None where there are none."""
    tower = options.tower
    if not towers:
        return None
    if tower.c + tower.p < 1:
        raise UserError("a tower gives no vector", where="model.tower.c + model.tower.p", given=0, allowed="1 or more")
    dim = options.embedding_dim if tower.dim is None else tower.dim
    modules = [dlrm_tower(len(own), width, tower, dim, device, normalise=options.normalise_vectors) for own in towers]
    return TowerModules(towers, modules, [(tower.c * len(own) + tower.p) * dim for own in towers], dim)


def dlrm_tower(features: int, width: int, tower: DLRMTowers, dim: int, device: torch.device | None, *, normalise: bool) -> nn.Module:
    """The module of a tower of so many features. Where there is nothing to compress, it normalises at most."""
    if not passes_through(features, width, tower.c * features + tower.p, dim):
        return DLRMTower(features, width, tower.c, tower.p, dim, device, normalise=normalise)
    return nn.Sequential(LayerNorm(width, device=device), nn.Flatten()) if normalise else nn.Flatten()
