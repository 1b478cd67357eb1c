"""DCN-v2 (Wang et al. 2021, figure 1, stacked) in MLPerf's shape: dense features have a bottom MLP, as in DLRM.

dense [B, K] -> bottom MLP --------+-> concat x0 [B, N] -> low-rank cross layers -> over MLP -> logit [B]
sparse -> tables -> F x [B, D] ----+

With towers, what its tower modules give interacts instead of the embeddings (DMT, section 4, listing 2).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from recsys_lab.models.layer_norm import LayerNorm
from recsys_lab.models.layers import LowRankCross, check_inputs, check_layers, check_least, embedding_bags, feature_names, mlp
from recsys_lab.models.towers import TowerModel, Towers, check_towers, passes_through
from recsys_lab.tables import Table


@dataclass(frozen=True)
class DCNTowers:
    """A tower module's cross layers, and the `vectors` of `dim` each that it projects them to; `dim` null: as the embeddings.

    `vectors` null: one a feature, as listing 2 says; the FLOPs of DMT's table 4 are those of one a tower and one cross layer.
    `over_layers`: the over MLP's in a model with towers; null: the same as without.
    """

    cross_layers: int = 1
    cross_rank: int = 32
    vectors: int | None = 1
    dim: int | None = None
    over_layers: list[int] | None = None


class DCNTower(nn.Module):
    """[B, F, N] -> [B, `vectors` D]: a smaller CrossNet and a projection (listing 2), which one feature of D = N can do without."""

    def __init__(
        self, features: int, width: int, tower: DCNTowers, vectors: int, dim: int, device: torch.device | None, *, normalise: bool = False
    ):
        super().__init__()
        self.normalise = LayerNorm(width, device=device) if normalise else nn.Identity()
        self.cross = LowRankCross(features * width, tower.cross_layers, tower.cross_rank, device)
        passes = passes_through(features, width, vectors, dim)
        self.project = nn.Identity() if passes else nn.Linear(features * width, vectors * dim, device=device)

    def forward(self, embeddings: Tensor) -> Tensor:
        return self.project(self.cross(self.normalise(embeddings).flatten(1)))


class DCN(TowerModel):
    """`dense_width`: K, 0 where the data have no dense features; then there is no bottom MLP.

    `bottom_layers` end in `embedding_dim`, with towers in their D instead; `over_layers` in 1. `dropout` is between the over MLP's
    layers. `normalise_vectors`: LayerNorm of each vector before it interacts, with towers as it enters its tower, so that interactions
    learn as fast from a large table, whose first values are small, as from a small one.
    `rows`, `lengths` and `dense_features` are set by variants that fix their own inputs. Raises UserError where sizes do not fit.
    """

    def __init__(
        self,
        tables: tuple[Table, ...],
        dense_width: int,
        device: torch.device | None = None,
        towers: Towers = (),
        *,
        embedding_dim: int,
        bottom_layers: list[int],
        cross_layers: int,
        cross_rank: int,
        over_layers: list[int],
        dropout: float = 0.0,
        normalise_vectors: bool = False,
        tower: DCNTowers = DCNTowers(),
        rows: list[int] | None = None,
        lengths: list[int] | None = None,
        dense_features: int | None = None,
    ):
        super().__init__()
        check_inputs("model", tables, dense_width, rows, lengths, dense_features)
        check_layers("model.bottom_layers", bottom_layers, embedding_dim, "as wide as an embedding")
        check_layers("model.over_layers", over_layers, 1, "one logit")
        check_least("model.dropout", dropout, 0, below=1)
        check_least("model.cross_layers", cross_layers, 0)
        check_least("model.cross_rank", cross_rank, 1)
        self.features = feature_names(tables)
        self.embeddings = embedding_bags(tables, device)
        self.vector_dim, vectors = embedding_dim, len(self.features)
        if towers:
            over_layers = over_layers if tower.over_layers is None else tower.over_layers
            check_layers("model.tower.over_layers", over_layers, 1, "one logit")
            vectors = self._add_towers(check_towers(towers, self.features), embedding_dim, tower, normalise_vectors, device)
            bottom_layers = [*bottom_layers[:-1], self.vector_dim]
        self.bottom = mlp(dense_width, bottom_layers, device) if dense_width else None
        normalises = normalise_vectors and (not towers or dense_width > 0)  # with towers, the dense features' own alone
        self.normalise = LayerNorm(self.vector_dim, device=device) if normalises else nn.Identity()
        width = self.vector_dim * (vectors + (1 if dense_width else 0))
        self.cross = LowRankCross(width, cross_layers, cross_rank, device)
        self.over = mlp(width, over_layers, device, dropout=dropout, linear_end=True)

    def _add_towers(self, towers: Towers, width: int, tower: DCNTowers, normalise: bool, device: torch.device | None) -> int:
        """Gives the model its tower modules and says how many vectors they make of it."""
        dim = width if tower.dim is None else tower.dim
        counts = [len(own) if tower.vectors is None else tower.vectors for own in towers]
        check_least("model.tower.cross_layers", tower.cross_layers, 0)
        for name, given in {"cross_rank": tower.cross_rank, "vectors": min(counts), "dim": dim}.items():
            check_least(f"model.tower.{name}", given, 1)
        modules = [DCNTower(len(own), width, tower, count, dim, device, normalise=normalise) for own, count in zip(towers, counts)]
        self.tower_modules.extend(modules)
        self.tower_features, self.tower_widths, self.vector_dim = towers, tuple(count * dim for count in counts), dim
        return sum(counts)

    def score(self, dense: Tensor | None, vectors: list[Tensor]) -> Tensor:
        """All `vectors`, each entry [B, any number, D], and dense [B, K]'s own crossed with one another -> logits [B]."""
        x0 = self.together(None if self.bottom is None else self.bottom(dense), vectors).flatten(1)
        return self.over(self.cross(x0)).squeeze(1)
