"""DLRM (Naumov et al. 2019, figure 1): dot products of every pair of embeddings, the dense features' one among them.

dense [B, K] -> bottom MLP -> [B, D] --+-> pairwise dots -> concat -> over MLP -> logit [B]
sparse -> tables -> F x [B, D] --------+

With towers, the outputs of its tower modules interact instead of the embeddings (DMT, section 4, listing 1).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from recsys_lab.base.ranges import DenseFeatures, DepthFromZero, Dimension, Length, RowCount, ShareBelowOne, Width
from recsys_lab.base.schema import check_fields
from recsys_lab.errors import UserError
from recsys_lab.models.click_model import ModelInputs
from recsys_lab.models.interaction import InteractionModel, with_bottom
from recsys_lab.models.layer_norm import LayerNorm
from recsys_lab.models.layers import check_arch, dot_interaction, mlp
from recsys_lab.models.linear import Linear
from recsys_lab.models.towers import TowerModel, TowerModules, passes_through


@dataclass(frozen=True)
class DLRMTowers:
    """A tower module's `c` vectors a feature and `p` a tower, of `dim` each; null: as the embeddings. DMT compresses N / (c dim) times.

    `over_layers`: the over MLP's in a model with towers; null: the same as without.
    """

    c: DepthFromZero = 1
    p: DepthFromZero = 0
    dim: Width | None = None
    over_layers: list[Width] | None = None

    def __post_init__(self) -> None:
        check_fields(self, "model.tower")


class DLRM(InteractionModel):
    """DLRM (Naumov et al. 2019): bottom MLP, dots of all pairs of vectors, over MLP. Without dense features only embeddings interact.

    Args:
        inputs: tables, K and device.
        embedding_dim: D of every table.
        bottom_layers: widths; the last is `embedding_dim`, with towers their D.
        over_layers: widths; the last is 1.
        dropout: between the over MLP's layers.
        normalise_vectors: LayerNorm of each vector before it interacts, with towers as it enters its tower. Interactions then learn as fast
            from a large table, whose first values are small, as from a small one.
        first_order: each vector's first component is added to the logit, and dense features have a linear part.
        tower: DLRMWithTowers' alone.
        rows, lengths, dense_features, file: set by variants that fix their own inputs; `file` is a CSV of tables.

    Raises:
        UserError: where sizes do not fit.
    """

    def __init__(
        self,
        inputs: ModelInputs,
        *,
        embedding_dim: Dimension,
        bottom_layers: list[Width],
        over_layers: list[Width],
        dropout: ShareBelowOne = 0.0,
        normalise_vectors: bool = False,
        first_order: bool | None = None,
        tower: DLRMTowers = DLRMTowers(),
        rows: list[RowCount] | None = None,
        lengths: list[Length] | None = None,
        dense_features: DenseFeatures | None = None,
        file: str | None = None,
    ):
        super().__init__()
        tables, dense_width, device = inputs.checked(rows, lengths, dense_features)
        check_arch(embedding_dim, bottom_layers, over_layers)
        vectors, dim = self.add_vectors(tables, embedding_dim, device, tower, normalise_vectors)
        self.bottom = mlp(dense_width, [*bottom_layers[:-1], dim], device) if dense_width else None
        self.normalise = LayerNorm(dim, device=device) if normalise_vectors else nn.Identity()
        vectors += 1 if dense_width else 0
        over_width = vectors * (vectors - 1) // 2 + (dim if dense_width else 0)
        if over_width < 1:
            raise UserError("one vector has no other to interact with", where="model", given="one feature", allowed="2 or more")
        self.over = mlp(over_width, over_layers, device, dropout=dropout, linear_end=True)
        self.add_first_order(first_order, dense_width, device)

    def score(self, dense: Tensor | None, bottom: Tensor | None, vectors: list[Tensor]) -> Tensor:
        return self.first_order(self.over(self.interact(bottom, vectors)).squeeze(1), dense, vectors)

    def interact(self, bottom: Tensor | None, vectors: list[Tensor]) -> Tensor:
        """The bottom MLP's output, [B, D] or None, before the dots of every pair of it and `vectors`.

        Each entry of `vectors` is [B, any number, D].
        """
        if isinstance(self.normalise, nn.Identity):  # then the parts need no copy, and the first is what stands before the dots
            return dot_interaction(*with_bottom(bottom, vectors), lead=bottom is not None)
        dots = dot_interaction(self.together(bottom, vectors))
        return dots if bottom is None else torch.cat([bottom, dots], dim=1)


class DLRMWithTowers(TowerModel, DLRM):
    """DLRM of the vectors that its tower modules make: c a feature and p a tower."""

    def modules_of(self, width: int, tower: DLRMTowers, normalise: bool, device: torch.device | None) -> TowerModules:
        dim = width if tower.dim is None else tower.dim
        if tower.c + tower.p < 1:
            raise UserError("a tower gives no vector", where="model.tower.c + model.tower.p", given=0, allowed="1 or more")
        modules = [dlrm_tower(len(own), width, tower, dim, device, normalise=normalise) for own in self.tower_features]
        return TowerModules(modules, [tower.c * len(own) + tower.p for own in self.tower_features], dim)


DLRM.with_towers = DLRMWithTowers


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


def dlrm_tower(features: int, width: int, tower: DLRMTowers, dim: int, device: torch.device | None, *, normalise: bool) -> nn.Module:
    """The module of a tower of so many features. Where there is nothing to compress, it normalises at most."""
    if not passes_through(features, width, tower.c * features + tower.p, dim):
        return DLRMTower(features, width, tower.c, tower.p, dim, device, normalise=normalise)
    return nn.Sequential(LayerNorm(width, device=device), nn.Flatten()) if normalise else nn.Flatten()
