"""Towers of DMT (Disaggregated Multi-Tower, Luo et al. 2024): a model whose features are in groups, each with a tower module.

    dense [B, K] -> bottom MLP ------------------------------------+-> interaction of all -> over MLP -> logit [B]
    tower t: F_t x [B, N] -> tower module t -> [B, O_t] of D each -+

A tower module sees its own features only, so its ranks need no others (section 3.2). N: an embedding's dimension; D: of what modules
give, and of all that interacts after them. A model brings its own module in its own file; here is what models have in common.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

from recsys_lab.errors import UserError
from recsys_lab.models.click_model import ClickModel

#: Groups of feature names, one a tower.
Towers = tuple[tuple[str, ...], ...]


class TowerModel(ClickModel):
    """A click model of pooled features. Without towers all of them interact at once; with towers, what the tower modules give.

    `tower_modules`: module t maps [B, F_t, N], its features in the tower's order, to [B, O_t]. `tower_widths`: O_t. `vector_dim`: D.
    """

    tower_widths: tuple[int, ...] = ()
    vector_dim: int
    normalise: nn.Module  # of vectors, before they interact: nn.Identity or nn.LayerNorm

    def __init__(self) -> None:
        super().__init__()
        self.tower_modules = nn.ModuleList()

    def forward(self, dense: Tensor | None, sparse: KeyedJaggedTensor) -> Tensor:
        """dense [B, K] or None, F features of B bags -> logits [B]."""
        return self.predict(dense, self.embeddings(sparse).to_dict())

    def predict(self, dense: Tensor | None, pooled: dict[str, Tensor]) -> Tensor:
        """The model after its tables: dense [B, K] and each feature's [B, N] -> logits [B]."""
        if not self.tower_features:
            return self.score(dense, [pooled[feature].unsqueeze(1) for feature in self.features])
        towers = zip(self.tower_modules, self.tower_features)
        return self.predict_from_towers(dense, [module(torch.stack([pooled[f] for f in own], dim=1)) for module, own in towers])

    def predict_from_towers(self, dense: Tensor | None, outputs: list[Tensor]) -> Tensor:
        """The model after its tower modules: dense [B, K] and each tower's [B, O_t], in the towers' order -> logits [B]."""
        return self.score(dense, [output.unflatten(1, (-1, self.vector_dim)) for output in outputs])

    def together(self, bottom: Tensor | None, vectors: list[Tensor]) -> Tensor:
        """All that interacts, [B, n, D]: the dense features' [B, D], where there is one, and `vectors`, each entry [B, any number, D].

        Each is normalised once: what comes from towers was as it went in. Twice costs Frappe 0.001 to 0.002 AUC (experiments/dmt).
        """
        own = [] if bottom is None else [bottom.unsqueeze(1)]
        if not self.tower_features:
            return self.normalise(torch.cat([*own, *vectors], dim=1))
        return torch.cat([*map(self.normalise, own), *vectors], dim=1)

    def to_interact(self, bottom: Tensor | None, vectors: list[Tensor]) -> list[Tensor]:
        """The same in parts, each [B, any number, D]: as they are where nothing is normalised, so that nothing is copied."""
        if not isinstance(self.normalise, nn.Identity):
            return [self.together(bottom, vectors)]
        return vectors if bottom is None else [bottom.unsqueeze(1), *vectors]

    def score(self, dense: Tensor | None, vectors: list[Tensor]) -> Tensor:
        """The global interaction: dense [B, K] and the vectors that interact, each entry [B, any number, D] -> logits [B]."""
        raise NotImplementedError


def check_towers(towers: Sequence[Sequence[str]], features: Sequence[str]) -> Towers:
    """`towers` as tuples. Raises UserError unless every feature is in exactly one, and none is empty."""
    if not towers:
        return ()
    named = [feature for tower in towers for feature in tower]
    if any(not tower for tower in towers):
        raise UserError("a tower has no features", where="towers", given=f"{len(towers)} towers of {len(named)} features")
    if odd := [feature for feature in features if named.count(feature) != 1]:
        raise UserError("a feature must be in one tower", where="towers", given=f"{odd[0]} in {named.count(odd[0])} of {len(towers)}")
    if unknown := [feature for feature in named if feature not in set(features)]:
        raise UserError("a tower has a feature that the data do not", where="towers", given=unknown[0])
    return tuple(tuple(tower) for tower in towers)


def passes_through(features: int, width: int, vectors: int, dim: int) -> bool:
    """Whether a tower has nothing to compress: one feature of `width`, of which one vector of that width is wanted.

    Without it the 16 towers of DMT's table 4, six of which have one of Criteo's 26 features, would cost 9.34 and not 8.75 MFLOP.
    """
    return features == 1 and (vectors, dim) == (1, width)
