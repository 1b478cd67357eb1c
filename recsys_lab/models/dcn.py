"""DCN-v2 (Wang et al. 2021, figure 1, stacked) in MLPerf's shape: dense features have a bottom MLP, as in DLRM.

dense [B, K] -> bottom MLP --------+-> concat x0 [B, N] -> low-rank cross layers -> over MLP -> logit [B]
sparse -> tables -> F x [B, D] ----+

With towers, the outputs of its tower modules interact instead of the embeddings (DMT, section 4, listing 2).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from recsys_lab.base.ranges import DenseFeatures, DepthFromZero, Dimension, Length, RowCount, ShareBelowOne, Width
from recsys_lab.base.schema import check_fields
from recsys_lab.models.click_model import ModelInputs
from recsys_lab.models.interaction import InteractionModel
from recsys_lab.models.layer_norm import LayerNorm
from recsys_lab.models.layers import LowRankCross, check_arch, mlp
from recsys_lab.models.linear import Linear
from recsys_lab.models.towers import TowerModel, TowerModules, passes_through


@dataclass(frozen=True)
class DCNTowers:
    """A tower module's cross layers, and the `vectors` of `dim` each that it projects them to; `dim` null: as the embeddings.

    `vectors` null: one for each feature, as listing 2 says. The FLOPs of DMT's table 4 are those of one vector a tower and one cross layer.
    `over_layers`: the over MLP's in a model with towers; null: the same as without.
    """

    cross_layers: DepthFromZero = 1
    cross_rank: Width = 32
    vectors: Width | None = 1
    dim: Width | None = None
    over_layers: list[Width] | None = None

    def __post_init__(self) -> None:
        check_fields(self, "model.tower")


class DCN(InteractionModel):
    """DCN-v2 (Wang et al. 2021): bottom MLP, low-rank cross layers, over MLP. Without dense features there is no bottom MLP.

    Args:
        inputs: tables, K and device.
        embedding_dim: D of every table.
        bottom_layers: widths; the last is `embedding_dim`, with towers their D.
        cross_layers: how many.
        cross_rank: r of W = U V.
        over_layers: widths; the last is 1.
        dropout: between the over MLP's layers.
        normalise_vectors: LayerNorm of each vector before it interacts, with towers as it enters its tower. Interactions then learn as fast
            from a large table, whose first values are small, as from a small one.
        first_order: each vector's first component is added to the logit, and dense features have a linear part.
        tower: DCNWithTowers' alone.
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
        cross_layers: DepthFromZero,
        cross_rank: Width,
        over_layers: list[Width],
        dropout: ShareBelowOne = 0.0,
        normalise_vectors: bool = False,
        first_order: bool | None = None,
        tower: DCNTowers = DCNTowers(),
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
        width = dim * (vectors + (1 if dense_width else 0))
        self.cross = LowRankCross(width, cross_layers, cross_rank, device)
        self.over = mlp(width, over_layers, device, dropout=dropout, linear_end=True)
        self.add_first_order(first_order, dense_width, device)

    def score(self, dense: Tensor | None, bottom: Tensor | None, vectors: list[Tensor]) -> Tensor:
        x0 = self.together(bottom, vectors).flatten(1)
        return self.first_order(self.over(self.cross(x0)).squeeze(1), dense, vectors)


class DCNWithTowers(TowerModel, DCN):
    """DCN of the vectors that its tower modules make: a number a tower, or one a feature."""

    def modules_of(self, width: int, tower: DCNTowers, normalise: bool, device: torch.device | None) -> TowerModules:
        dim = width if tower.dim is None else tower.dim
        counts = [len(own) if tower.vectors is None else tower.vectors for own in self.tower_features]
        sizes = zip(self.tower_features, counts)
        modules: list[nn.Module] = [DCNTower(len(own), width, tower, count, dim, device, normalise=normalise) for own, count in sizes]
        return TowerModules(modules, counts, dim)


DCN.with_towers = DCNWithTowers


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
