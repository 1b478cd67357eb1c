"""XLRM: a synthetic model of the class that DMT calls XLRM (section 5.1), itself not public: interactions of several kinds, stacked.

dense [B, K] -> bottom MLP -> 1 x [B, N] -+-> interaction layer -> ... -> interaction layer -> concat -> over MLP -> logit [B]
sparse -> tables ----------> F x [B, N] --+

Each operator of a layer sees all its vectors and makes some new ones. DHEN does so (Zhang et al. 2022, "A Deep and Hierarchical Ensemble
Network", figure 2). With towers, each tower has a layer of the same operators for its features alone (DMT, section 5.2.2).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from recsys_lab.base.ranges import DenseFeatures, Depth, Dimension, Length, RowCount, ShareBelowOne, Width
from recsys_lab.base.schema import check_fields
from recsys_lab.errors import UserError
from recsys_lab.models.click_model import ModelInputs
from recsys_lab.models.interaction import InteractionModel, with_bottom
from recsys_lab.models.layer_norm import LayerNorm
from recsys_lab.models.layers import LowRankCross, check_arch, dot_interaction, mlp
from recsys_lab.models.linear import Linear, matmul
from recsys_lab.models.towers import TowerModel, TowerModules

OPERATORS = 4


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
    y = matmul(linear.weight.expand(len(x), -1, -1), x)
    return y if linear.bias is None else y + linear.bias.unsqueeze(1)


@dataclass(frozen=True)
class XLRMTowers:
    """A tower's layer makes `compression` times fewer vectors than the tower has features, rounded up to as many of each operator."""

    compression: Width = 2
    cross_rank: Width = 64
    mlp_width: Width = 256

    def __post_init__(self) -> None:
        check_fields(self, "model.tower")


class XLRM(InteractionModel):
    """`layers` interaction layers, each of whose operators makes `vectors` vectors. `bottom_layers` end in `embedding_dim`, `over_layers`
    in 1. `dropout` is between the over MLP's layers.

    `groups`: how many features, in order, are of the items, of the users, of both. It, `rows`, `lengths` and `dense_features` are set by
    variants that fix their own inputs. Raises UserError where sizes do not fit.
    """

    def __init__(
        self,
        inputs: ModelInputs,
        *,
        embedding_dim: Dimension,
        bottom_layers: list[Width],
        layers: Depth,
        vectors: Width,
        cross_rank: Width,
        mlp_width: Width,
        over_layers: list[Width],
        dropout: ShareBelowOne = 0.0,
        tower: XLRMTowers = XLRMTowers(),
        groups: dict[str, Width] | None = None,
        rows: list[RowCount] | None = None,
        lengths: list[Length] | None = None,
        dense_features: DenseFeatures | None = None,
    ):
        super().__init__()
        tables, dense_width, device = inputs.checked(rows, lengths, dense_features)
        check_arch(embedding_dim, bottom_layers, over_layers)
        came, _ = self.add_vectors(tables, embedding_dim, device, tower, normalise=False)
        self.bottom = mlp(dense_width, bottom_layers, device) if dense_width else None
        came += 1 if dense_width else 0
        if came < 2:
            raise UserError("one vector has no other to interact with", where="model", given="one feature", allowed="2 or more")
        self.layers = nn.Sequential()
        for _ in range(layers):
            self.layers.append(InteractionLayer(came, vectors, embedding_dim, cross_rank, mlp_width, device))
            came = OPERATORS * vectors
        self.over = mlp(came * embedding_dim, over_layers, device, dropout=dropout, linear_end=True)

    def score(self, dense: Tensor | None, bottom: Tensor | None, vectors: list[Tensor]) -> Tensor:
        x = torch.cat(with_bottom(bottom, vectors), dim=1)
        return self.over(self.layers(x).flatten(1)).squeeze(1)


class XLRMWithTowers(TowerModel, XLRM):
    """XLRM of the vectors that its tower modules make. One feature alone passes through its tower."""

    def modules_of(self, width: int, tower: XLRMTowers, normalise: bool, device: torch.device | None) -> TowerModules:
        modules: list[nn.Module] = []
        counts: list[int] = []
        for features in map(len, self.tower_features):
            vectors = -(-features // (OPERATORS * tower.compression))  # of each operator
            if features == 1:
                modules.append(nn.Flatten())
                counts.append(1)
                continue
            layer = InteractionLayer(features, vectors, width, tower.cross_rank, tower.mlp_width, device)
            modules.append(nn.Sequential(layer, nn.Flatten()))
            counts.append(OPERATORS * vectors)
        return TowerModules(modules, counts, width)


XLRM.with_towers = XLRMWithTowers
