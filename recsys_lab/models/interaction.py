"""What DLRM, DCN and XLRM have in common: vectors of one dimension interact, the dense features' own among them.

dense [B, K] -> dense arch -> 1 x [B, D] -+-> interaction -> over MLP -> logit [B]
sparse -> sparse arch ------> F x [B, D] -+

The dense arch is the bottom MLP. The sparse arch is the tables, and the tower modules where the model has some (towers.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import torch
from torch import Tensor, nn
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor, KeyedTensor

from recsys_lab.models.click_model import ClickModel
from recsys_lab.models.first_order import FirstOrder
from recsys_lab.models.layer_norm import LayerNorm
from recsys_lab.models.layers import begin_silent, by_feature, embedding_bags, feature_names
from recsys_lab.models.linear import MLP, Linear
from recsys_lab.models.towers import FirstOrderTower, TowerModules
from recsys_lab.tables import Table

#: Of the usual first values of tables, where a component of them is added to the logit. There they are noise until they are learnt.
FIRST_ORDER_SHARE = 1 / 3

#: What the tables gave by feature, [B, D] each. A list: what the tower modules gave, [B, O_t] of each tower t, where an executor ran them.
LookedUp: TypeAlias = KeyedTensor | Mapping[str, Tensor] | list[Tensor]


class InteractionModel(ClickModel):
    """A model adds what interacts how, in `predict`.

    Attributes:
        bottom: the MLP of the dense features, None where there are none.
        over: the last MLP, whose end is the logit.
        normalise: of vectors, before they interact: nn.Identity or LayerNorm.
        first_dense: the first-order weights of the dense features.
        tower_modules: of each tower t one that maps [B, F_t, N], its features in the tower's order, to [B, O_t].
        tower_widths: O_t of each.
        vector_dim: D.
    """

    bottom: nn.Module | None
    over: MLP
    normalise: nn.Module
    first_dense: nn.Linear | None
    tower_modules: nn.ModuleList
    tower_widths: tuple[int, ...]
    vector_dim: int
    adds_first_order: bool = False

    def forward(self, dense: Tensor | None, sparse: KeyedJaggedTensor) -> Tensor:
        """dense [B, K] or None, F features of B bags -> logits [B]."""
        return self.predict(dense, self.embeddings(sparse))

    def predict_from_towers(self, dense: Tensor | None, outputs: list[Tensor]) -> Tensor:
        """The model after its tower modules: dense [B, K] and each tower's [B, O_t], in the towers' order -> logits [B].

        For an executor that runs each module where its tower's tables are.
        """
        return self.predict(dense, outputs)

    def add_sparse_arch(
        self, tables: Sequence[Table], dim: int, device: torch.device | None, towers: TowerModules | None, first_order: bool = False
    ) -> tuple[int, int]:
        """Adds the tables, and before them the modules of `towers`. Returns how many vectors interact, and their dimension.

        Raises UserError for a sequence feature.
        """
        self.features, self.vector_dim = feature_names(tables), dim if towers is None else towers.dim
        if towers is not None:
            self.tower_features, self.tower_widths = towers.features, tuple(towers.widths)
            self.tower_modules = nn.ModuleList(map(FirstOrderTower, towers.modules) if first_order else towers.modules)
        self.embeddings = embedding_bags(tables, device)
        return (len(self.features) if towers is None else -(-sum(towers.widths) // towers.dim)), self.vector_dim

    def normalisation(self, wanted: bool, dim: int, device: torch.device | None) -> nn.Module:
        """LayerNorm if `wanted`, and if towers, which normalise what enters them, leave something to normalise: the dense features' own."""
        return LayerNorm(dim, device=device) if wanted and not (self.tower_features and self.bottom is None) else nn.Identity()

    def add_first_order(self, wanted: bool, dense_width: int, device: torch.device | None) -> None:
        """If `wanted`, the logit has a first-order part: the first component of each embedding is its id's weight too."""
        self.adds_first_order = wanted
        self.initial_share = FIRST_ORDER_SHARE if wanted else 1.0
        self.first_dense = Linear(dense_width, 1, bias=False, device=device) if wanted and dense_width else None

    def dense_arch(self, dense: Tensor | None) -> Tensor | None:
        """dense [B, K] -> [B, D] through the bottom MLP; None where there are no dense features."""
        return None if self.bottom is None else self.bottom(dense)

    def sparse_arch(self, looked_up: LookedUp) -> list[Tensor]:
        """The vectors of the features, or those that tower modules make of them: each entry [B, any number, D].

        Where a tower gives no whole vectors, the columns of all towers are read as vectors side by side. The last may end in zeros.
        """
        if not self.tower_features:
            return side_by_side(looked_up, self.features)
        outputs = looked_up if isinstance(looked_up, list) else self.run_towers(looked_up)
        if any(width % self.vector_dim for width in self.tower_widths):
            outputs = [nn.functional.pad(torch.cat(outputs, dim=1), (0, -sum(self.tower_widths) % self.vector_dim))]
        return [output.unflatten(1, (-1, self.vector_dim)) for output in outputs]

    def run_towers(self, looked_up: KeyedTensor | Mapping[str, Tensor]) -> list[Tensor]:
        """F x [B, N] -> [B, O_t] of each tower."""
        rows = by_feature(looked_up)
        towers = zip(self.tower_modules, self.tower_features)
        return [module(torch.stack([rows[feature] for feature in own], dim=1)) for module, own in towers]

    def together(self, bottom: Tensor | None, vectors: list[Tensor]) -> Tensor:
        """All that interacts, normalised: [B, F + 1, D], or [B, F, D] without dense features.

        What comes from towers was normalised as it went in. Normalising it twice costs Frappe 0.001 to 0.002 AUC (experiments/dmt).
        """
        if not self.tower_features:
            return self.normalise(torch.cat(with_bottom(bottom, vectors), dim=1))
        own = [] if bottom is None else [self.normalise(bottom.unsqueeze(1))]
        return torch.cat([*own, *vectors], dim=1)

    def plus_first_order(self, logits: Tensor, dense: Tensor | None, vectors: list[Tensor]) -> Tensor:
        """`logits` [B] plus the first-order part of dense [B, K] and of `vectors`, if there is one."""
        if not self.adds_first_order:
            return logits
        of_part = slice(1) if self.tower_features else slice(None)  # a tower's first output has the weights of its features
        logits = logits + torch.cat([part[:, of_part, 0] for part in vectors], dim=1).sum(1)
        return logits if self.first_dense is None else logits + self.first_dense(dense).squeeze(1)

    @torch.no_grad()
    def begin_with(self, start: FirstOrder) -> None:
        begin_silent(self.over, start.bias)
        if self.first_dense is not None:
            self.first_dense.weight.copy_(torch.from_numpy(start.dense))


def with_bottom(bottom: Tensor | None, vectors: list[Tensor]) -> list[Tensor]:
    """`vectors`, each entry [B, any number, D], behind the dense features' [B, D], where there is one."""
    return vectors if bottom is None else [bottom.unsqueeze(1), *vectors]


def side_by_side(looked_up: KeyedTensor | Mapping[str, Tensor], features: Sequence[str]) -> list[Tensor]:
    """The vectors of `features`, each entry [B, any number, D]: one entry where the tables give them in this order."""
    if not isinstance(looked_up, Mapping) and looked_up.keys() == features:
        return [looked_up.values().unflatten(1, (len(features), -1))]
    rows = by_feature(looked_up)
    return [rows[feature].unsqueeze(1) for feature in features]
