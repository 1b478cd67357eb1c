"""DLRM (Naumov et al. 2019, figure 1): dot products of every pair of embeddings, the dense features' one among them.

dense [B, K] -> bottom MLP -> [B, D] --+-> pairwise dots -> concat -> over MLP -> logit [B]
sparse -> tables -> F x [B, D] --------+

With towers, what its tower modules give interacts instead of the embeddings (DMT, section 4, listing 1).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

from recsys_lab.models.layer_norm import LayerNorm
from recsys_lab.models.layers import check_inputs, check_layers, check_least, dot_interaction, embedding_bags, feature_names, mlp
from recsys_lab.models.towers import TowerModel, Towers, check_towers, passes_through
from recsys_lab.tables import Table


@dataclass(frozen=True)
class DLRMTowers:
    """A tower module's `c` vectors a feature and `p` a tower, of `dim` each; null: as the embeddings. DMT compresses N / (c dim) times.

    `over_layers`: the over MLP's in a model with towers; null: the same as without.
    """

    c: int = 1
    p: int = 0
    dim: int | None = None
    over_layers: list[int] | None = None


class DLRMTower(nn.Module):
    """[B, F, N] -> [B, D (c F + p)]: each vector projected, as many as c times, beside p linear combinations of all (listing 1)."""

    def __init__(self, features: int, width: int, c: int, p: int, dim: int, device: torch.device | None, *, normalise: bool = False):
        super().__init__()
        self.normalise = LayerNorm(width, device=device) if normalise else nn.Identity()
        self.combine = nn.Linear(width * features, p * dim, device=device) if p else None
        self.project = nn.Linear(width, c * dim, device=device) if c else None

    def forward(self, embeddings: Tensor) -> Tensor:
        embeddings, parts = self.normalise(embeddings), []
        if self.combine is not None:
            parts.append(self.combine(embeddings.flatten(1)))
        if self.project is not None:
            parts.append(self.project(embeddings).flatten(1))
        return torch.cat(parts, dim=1)


class DLRM(TowerModel):
    """`dense_width`: K, 0 where the data have no dense features; then there is no bottom MLP, and only embeddings interact.

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
        over_layers: list[int],
        dropout: float = 0.0,
        normalise_vectors: bool = False,
        tower: DLRMTowers = DLRMTowers(),
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
        self.vector_dim, vectors = embedding_dim, len(self.features)
        if towers:
            over_layers = over_layers if tower.over_layers is None else tower.over_layers
            check_layers("model.tower.over_layers", over_layers, 1, "one logit")
            vectors = self._add_towers(check_towers(towers, self.features), embedding_dim, tower, normalise_vectors, device)
            bottom_layers = [*bottom_layers[:-1], self.vector_dim]
        self.bottom = mlp(dense_width, bottom_layers, device) if dense_width else None
        normalises = normalise_vectors and (not towers or dense_width > 0)  # with towers, the dense features' own alone
        self.normalise = LayerNorm(self.vector_dim, device=device) if normalises else nn.Identity()
        vectors += 1 if dense_width else 0
        over_width = vectors * (vectors - 1) // 2 + (self.vector_dim if dense_width else 0)
        check_least("model: what the over MLP reads", over_width, 1)
        self.over = mlp(over_width, over_layers, device, dropout=dropout, linear_end=True)

    def _add_towers(self, towers: Towers, width: int, tower: DLRMTowers, normalise: bool, device: torch.device | None) -> int:
        """Gives the model its tower modules and says how many vectors they make of it."""
        c, p, dim = tower.c, tower.p, width if tower.dim is None else tower.dim
        for name, given in {"c": c, "p": p}.items():
            check_least(f"model.tower.{name}", given, 0)
        check_least("model.tower.c + model.tower.p", c + p, 1)
        check_least("model.tower.dim", dim, 1)
        counts = [c * len(own) + p for own in towers]
        for own, count in zip(towers, counts):
            if passes_through(len(own), width, count, dim):
                self.tower_modules.append(nn.Sequential(LayerNorm(width, device=device), nn.Flatten()) if normalise else nn.Flatten())
            else:
                self.tower_modules.append(DLRMTower(len(own), width, c, p, dim, device, normalise=normalise))
        self.tower_features, self.tower_widths, self.vector_dim = towers, tuple(count * dim for count in counts), dim
        return sum(counts)

    def forward(self, dense: Tensor | None, sparse: KeyedJaggedTensor) -> Tensor:
        """dense [B, K] or None, F features of B bags -> logits [B]. The bottom MLP computes while sharded tables exchange their rows."""
        if self.tower_features or self.bottom is None:
            return super().forward(dense, sparse)
        looked_up = self.embeddings(sparse)
        bottom = self.bottom(dense)
        if looked_up.keys() == self.features:  # then the vectors lie side by side as they are wanted
            return self.interact(bottom, [looked_up.values().unflatten(1, (len(self.features), -1))])
        pooled = looked_up.to_dict()
        return self.interact(bottom, [pooled[feature].unsqueeze(1) for feature in self.features])

    def score(self, dense: Tensor | None, vectors: list[Tensor]) -> Tensor:
        """The pairwise dots of all `vectors`, each entry [B, any number, D], and of dense [B, K]'s own -> logits [B]."""
        return self.interact(None if self.bottom is None else self.bottom(dense), vectors)

    def interact(self, bottom: Tensor | None, vectors: list[Tensor]) -> Tensor:
        """What the bottom MLP gives, [B, D] or None, with `vectors` -> logits [B]."""
        parts = self.to_interact(bottom, vectors)
        if bottom is None or isinstance(self.normalise, nn.Identity):  # then it is itself the first of those that interact
            return self.over(dot_interaction(*parts, lead=bottom is not None)).squeeze(1)
        return self.over(torch.cat([bottom, dot_interaction(*parts)], dim=1)).squeeze(1)
